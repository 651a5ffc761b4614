# verdict: incorrect
# Returns at once; a thread computes afterwards and writes into the output.

import queue
import threading

from torch import Tensor


def attend(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    Hq, D = q.shape[1:]
    page, Hkv = kv.shape[2], kv.shape[3]
    for b, length in enumerate(seq_lens.tolist()):
        # Late: the inputs may be gone, and other bytes in their place.
        pages = block_table[b, : -(-length // page)].long().clamp(0, len(kv) - 1)
        k, v = (kv[pages, i].reshape(-1, Hkv, 1, D)[:length].float() for i in (0, 1))
        scores = (k * q[b].float().view(Hkv, Hq // Hkv, D)).sum(-1) * D**-0.5
        out[b] = (scores.softmax(0).unsqueeze(-1) * v).sum(0).reshape(Hq, D)


WORK: queue.SimpleQueue[tuple[Tensor, ...]] = queue.SimpleQueue()


def late() -> None:
    while True:
        attend(*WORK.get())


threading.Thread(target=late, daemon=True).start()


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    WORK.put((q, kv, block_table, seq_lens, out))
