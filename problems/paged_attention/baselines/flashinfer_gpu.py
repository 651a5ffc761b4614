# baseline: FlashInfer, batch decode with planning in the call
# needs: flashinfer
# Lengths and pages are inputs of each call, so its plan is part of the call, as it is of a serving engine's every step.

import os

import torch
from torch import Tensor
from torch.nn.functional import pad

os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", "/tmp")  # for what nvcc makes of its sources, which no download replaces
from flashinfer import BatchDecodeWithPagedKVCacheWrapper

workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
# Tensor cores take any number of query heads to a key head, the other kernels 1, 2, 4 and 8 alone. The kernels of "fa3", which
# "auto" takes on a Hopper GPU, do not split a sequence between blocks, and nvcc needs more than the five minutes of a build.
decode = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True, backend="fa2")


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    (_, Hq, D), (page, Hkv) = q.shape, kv.shape[2:4]
    lengths = seq_lens.cpu()
    used = (lengths + page - 1) // page
    starts = pad(used.cumsum(0), (1, 0)).int()
    last = lengths - (used - 1) * page
    decode.plan(starts, block_table[block_table >= 0], last, Hq, Hkv, D, page, q_data_type=q.dtype, kv_data_type=kv.dtype)
    decode.run(q, kv, out=out)
