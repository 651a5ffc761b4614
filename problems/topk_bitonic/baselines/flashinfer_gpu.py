# baseline: flashinfer.top_k, sorted
# needs: flashinfer

import flashinfer
from torch import Tensor


def solution(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = flashinfer.top_k(x, len(ranks), sorted=True)
    return values, indices
