# verdict: incorrect
# Plain linear attention: writes every value whole, without taking off what the state already answers.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    S = S0
    for t in range(q.shape[1]):
        S = S * g[:, t].exp()[..., None]
        u = v[:, t].float()
        S = S + (beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :]
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
    S_T.copy_(S)
