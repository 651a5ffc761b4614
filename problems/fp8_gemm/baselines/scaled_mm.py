# baseline: torch._scaled_mm, a scale for each row
# It wants N to be a multiple of 16: other weights are padded within the call, as they come with it, and their result is copied.

import torch
from torch import Tensor
from torch.nn.functional import pad


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    N = len(w)
    if more := -N % 16:
        # A zero byte is the zero of e4m3.
        w = pad(w.view(torch.uint8), (0, 0, 0, more)).view(w.dtype)
        sw = pad(sw, (0, 0, 0, more), value=1.0)
        y.copy_(torch._scaled_mm(x, w.T, scale_a=sx, scale_b=sw.T, out_dtype=torch.bfloat16)[:, :N])
    else:
        torch._scaled_mm(x, w.T, scale_a=sx, scale_b=sw.T, out_dtype=torch.bfloat16, out=y)
