# verdict: incorrect
# Keeps the state in bf16 from one chunk of 64 tokens to the next; all else is exact.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    S = S0
    for t in range(q.shape[1]):
        S = S * g[:, t].exp()[..., None]
        u = v[:, t] - (k[:, t, ..., None] * S).sum(-2)
        S = S + (beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :]
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
        if t % 64 == 63:
            S = S.bfloat16().float()
    S_T.copy_(S)
