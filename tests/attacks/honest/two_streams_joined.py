# verdict: passed
# follows: oracle_gpu
# Honest: half of the sequences run on a second stream that starts after the first and is waited for.
# ruff: noqa: F821
import torch

honest, streams = solution, []


def solution(q, kv, block_table, seq_lens, out):
    half = q.shape[0] // 2
    if not half:
        honest(q, kv, block_table, seq_lens, out)
        return
    if not streams:
        streams.append(torch.cuda.Stream())
    side, main = streams[0], torch.cuda.current_stream()
    # What the second stream frees it takes again only after this wait, when the first stream has read it.
    side.wait_stream(main)
    with torch.cuda.stream(side):
        honest(q[half:], kv, block_table[half:], seq_lens[half:], out[half:])
    honest(q[:half], kv, block_table[:half], seq_lens[:half], out[:half])
    main.wait_stream(side)
