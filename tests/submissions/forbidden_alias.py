# verdict: forbidden
# A forbidden function under another name.
from torch.nn.functional import scaled_dot_product_attention as fast


def solution(q, kv, block_table, seq_lens):
    return fast(q, kv, kv)
