# verdict: incorrect
# Leaves out the tokens after the last whole chunk of 64.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    o.zero_()
    S = S0
    for t in range(q.shape[1] // 64 * 64):
        S = S * g[:, t].exp()[..., None]
        u = v[:, t] - (k[:, t, ..., None] * S).sum(-2)
        S = S + (beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :]
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
    S_T.copy_(S)
