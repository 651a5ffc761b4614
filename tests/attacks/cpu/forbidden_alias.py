# verdict: forbidden
# A forbidden function under another name.
from torch.nn.functional import scaled_dot_product_attention as fast


def solution(x, y, count):
    y.copy_(fast(x, x, x))
