# verdict: incorrect
# Keeps the state in S0 and so changes an input.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    S = S0
    for t in range(q.shape[1]):
        S.mul_(g[:, t].exp()[..., None])
        u = v[:, t] - (k[:, t, ..., None] * S).sum(-2)
        S.add_((beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :])
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
    S_T.copy_(S)
