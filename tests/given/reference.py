"""Twice the input, and how many of a row are positive."""

import torch


def make_inputs(shape, seed, input_class="public", device="cpu"):
    made = torch.Generator(device).manual_seed(seed)
    return (torch.randn(shape["R"], shape["N"], generator=made, device=device),)


def reference(x):
    return 2 * x.double(), (x > 0).sum(1)
