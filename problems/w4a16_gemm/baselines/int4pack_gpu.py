# baseline: torch._weight_int4pack_mm (tinygemm), its packing in the call
# The weights come with the call in another order than its own, so packing them is part of it. It subtracts 8 from a code and adds
# what stands beside the scale. N is a multiple of 8 there: hidden shapes with others crash.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    # Its even codes lie in the upper halves of the bytes.
    packed = torch._convert_weight_to_int4pack((qw << 4) | (qw >> 4), 8)
    scales_and_zeros = torch.stack([s, (8 - z.to(s.dtype)) * s], dim=-1).transpose(0, 1).contiguous()
    y.copy_(torch._weight_int4pack_mm(x, packed, x.shape[1] // s.shape[1], scales_and_zeros))
