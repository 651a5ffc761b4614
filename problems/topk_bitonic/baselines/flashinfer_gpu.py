# baseline: flashinfer.top_k, sorted
# needs: flashinfer

import os

from torch import Tensor

os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", "/tmp")  # for what nvcc makes of its sources, which no download replaces
import flashinfer


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    largest, places = flashinfer.top_k(x, len(ranks), sorted=True)
    values.copy_(largest)
    indices.copy_(places)
