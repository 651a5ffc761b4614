# baseline: flashinfer.top_k, sorted
# needs: flashinfer

import flashinfer
from torch import Tensor


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    largest, places = flashinfer.top_k(x, len(ranks), sorted=True)
    values.copy_(largest)
    indices.copy_(places)
