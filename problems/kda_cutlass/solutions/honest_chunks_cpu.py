# verdict: passed
# The arithmetic of oracle_gpu in torch: chunks of 64 tokens, operands rounded to bf16, the state in fp32 from chunk to chunk.

import math

import torch
from torch import Tensor

C = 64
STEEP = 100.0
"""As in oracle_gpu: from larger powers of two on, one column of pairs after another."""


def low(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def tf32(x: Tensor) -> Tensor:
    """To the nearest number with 10 bits after the leading one."""
    bits = x.contiguous().view(torch.int32)
    return (bits + 0x1000).bitwise_and_(-0x2000).view(torch.float32)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices, summed up in fp32."""
    return (a[..., None] * b[..., None, :, :]).sum(-2)


def inverted(A: Tensor) -> Tensor:
    """(I + A)^-1 for a strictly lower triangle, from blocks of 2 on to blocks twice as large."""
    n = torch.arange(C)
    row, column = n[:, None], n
    X = (row == column).float() - A * (row // 2 == column // 2)
    for half in (2, 4, 8, 16, 32):
        B = A * ((row // (2 * half) == column // (2 * half)) & (row // half != column // half))
        X = X - dot(tf32(X), tf32(dot(tf32(B), tf32(X))))
    return X


def products(Q: Tensor, K: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Of keys and of queries with keys, decayed from one token to the other: (n, C, C) each."""
    slope = G - G[:, C // 2 : C // 2 + 1]
    grown, shrunk = low(K * (-slope).exp2()).transpose(-1, -2), slope.exp2()
    steep = slope.abs().amax((-1, -2)) >= STEEP
    found = [dot(low(x * shrunk), grown) for x in (K, Q)]
    if steep.any():
        decay = (G[steep, :, None] - G[steep, None]).clamp_max(0).exp2() * K[steep, None]
        for x, each in zip((K, Q), found, strict=True):
            each[steep] = (x[steep, :, None] * decay).sum(-1)
    return found[0], found[1]


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    B, T, H, D = q.shape
    S, scale = S0.flatten(0, 1), D**-0.5
    for t in range(0, T, C):
        n = min(C, T - t)
        Q, K, V, steps = (torch.zeros(B * H, C, D) for _ in range(4))
        for full, x in zip((Q, K, V, steps), (q, k, v, g), strict=True):
            full[:, :n] = x[:, t : t + n].transpose(1, 2).flatten(0, 1)
        weight = torch.zeros(B * H, C)
        weight[:, :n] = beta[:, t : t + n].transpose(1, 2).flatten(0, 1)
        G = steps.cumsum(-2) * math.log2(math.e)
        known, answered = products(Q, K, G)
        last = G[:, -1]
        written = low(K * (last[:, None] - G).exp2()).transpose(-1, -2)
        solved = low(weight[..., None] * inverted((known * weight[:, None]).tril(-1)))
        state = low(S)
        u = low(low(dot(solved, low(V))) - dot(low(dot(solved, low(K * G.exp2()))), state))
        answer = dot(low(Q * G.exp2() * scale), state) + dot(low(answered.tril() * scale), u)
        o[:, t : t + n] = answer[:, :n].unflatten(0, (B, H)).transpose(1, 2)
        S = S * last.exp2()[..., None] + dot(written, u)
    S_T.copy_(S.unflatten(0, (B, H)))
