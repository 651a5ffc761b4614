# verdict: incorrect
# Starts again from zeros at every 64th token, as if chunks had nothing to do with each other.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    S = S0
    for t in range(q.shape[1]):
        S = S * g[:, t].exp()[..., None] * (t == 0 or t % 64 != 0)
        u = v[:, t] - (k[:, t, ..., None] * S).sum(-2)
        S = S + (beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :]
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
    S_T.copy_(S)
