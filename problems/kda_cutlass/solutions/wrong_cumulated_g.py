# verdict: incorrect
# Takes g for sums over the tokens so far, and so the difference of two for one step's decay.

import torch
from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    S = S0
    g = g.diff(dim=1, prepend=torch.zeros_like(g[:, :1]))
    for t in range(q.shape[1]):
        S = S * g[:, t].exp()[..., None]
        u = v[:, t] - (k[:, t, ..., None] * S).sum(-2)
        S = S + (beta[:, t, :, None] * k[:, t].float())[..., None] * u[..., None, :]
        o[:, t] = (q[:, t, ..., None] * S).sum(-2) * q.shape[-1] ** -0.5
    S_T.copy_(S)
