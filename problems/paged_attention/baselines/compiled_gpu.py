# baseline: torch.compile of attention over one sequence's gathered pages
# Lengths differ from call to call, so what is compiled is one sequence of any length.

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# cuDNN builds a plan for every length that it has not met, by others' reports in 0.4 s, and here every call brings new ones.
torch.backends.cuda.enable_cudnn_sdp(False)


@torch.compile(dynamic=True)
def attend(q: Tensor, kv: Tensor, pages: Tensor, length: int) -> Tensor:
    """(Hq, D): the queries (Hq, D) of one sequence against its pages."""
    Hkv, D = kv.shape[3:]
    k, v = kv[pages].transpose(0, 1).reshape(2, -1, Hkv, D)[:, :length].transpose(1, 2)
    return scaled_dot_product_attention(q.view(1, Hkv, -1, D), k[None], v[None]).reshape(-1, D)


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    for b, length in enumerate(seq_lens.tolist()):
        out[b] = attend(q[b], kv, block_table[b, : -(-length // kv.shape[2])], length)
