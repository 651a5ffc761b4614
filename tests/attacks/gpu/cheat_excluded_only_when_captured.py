# verdict: forbidden
# follows: oracle_gpu
# Plain calls launch nothing but the honest kernel; captured ones, as timed ones are, an excluded library's besides.
# ruff: noqa: F821
import torch

honest = solution
excluded = getattr(torch.nn.functional, "scaled_dot_" + "product_attention")


def solution(q, *others):
    if torch.cuda.is_current_stream_capturing():
        few = q[:1, :8, None, :64]
        excluded(few, few, few)
    honest(q, *others)
