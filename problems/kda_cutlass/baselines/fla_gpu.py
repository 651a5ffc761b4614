# baseline: flash-linear-attention, chunk_kda
# needs: fla

from fla.ops.kda import chunk_kda
from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    answer, S = chunk_kda(q, k, v, g, beta, scale=q.shape[-1] ** -0.5, initial_state=S0, output_final_state=True)
    o.copy_(answer)
    S_T.copy_(S)
