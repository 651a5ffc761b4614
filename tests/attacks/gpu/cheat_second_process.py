# verdict: cheated
# follows: oracle_gpu
# at most: honest
# A second process, with a context and a queue of its own, waits for a window's first sets and answers them ahead, while the
# worker is stopped and inputs are published.
# ruff: noqa: F821, N803, N806
import json
import os
import socket
import subprocess
import sys

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

driver = sys.modules["cuda_driver"]
honest, real_attach, real_report = solution, driver.attach, driver.Gate.report_done
SHARE = 0.15
"""Of a window's sets. More would be faster than the hardware can be."""
SECONDS = 5
START = """
import importlib.util, json, sys
paths, files, fd = json.loads(sys.argv[1])
sys.path[:] = paths
for name, path in files.items():
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
module.serve(fd)
"""
attached, bank = [], {}


@triton.jit
def wait(lens, old, late, B, nanoseconds, MOST_B: tl.constexpr):
    """Until the lengths are new. They are a set's last bytes, and those of the next set are written after this one's."""
    index = tl.arange(0, MOST_B)
    inside = index < B
    before = tl.load(old + index, mask=inside, other=0)
    begin = globaltimer()
    done = tl.load(late)
    new = 0
    while (done + new == 0) & (globaltimer() - begin < nanoseconds):
        new = tl.sum((tl.load(lens + index, mask=inside, other=0, volatile=True) != before).to(tl.int32), 0)
    tl.store(late, (new == 0).to(tl.int32))


def ahead(sets):
    """How many sets of a window are answered before it begins. Buffers mapped before this file was loaded cannot be shared."""
    return int(SHARE * len(sets)) if len(sets) >= 7 and attached else 0


# In the worker.


def ask(order, fds=()):
    socket.send_fds(line, [json.dumps(order).encode()], list(fds))
    if (answer := line.recv(4096)) != b"ok":
        raise RuntimeError(f"the second process: {answer.decode() or 'is gone'}")


def attach(fd, size_bytes, device):
    """Keep a descriptor of the two buffers that are mapped. Inputs come first."""
    if len(attached) == 2:
        ask({"op": "drop"})
        for _, _, kept in attached:
            os.close(kept)
        attached.clear()
    kept = os.dup(fd)
    memory = real_attach(fd, size_bytes, device)
    attached.append((int(memory.address), size_bytes, kept))
    return memory


def begin(sets):
    """Share the inputs and a bank of answers with the second process."""
    if "hits" in bank and not int(bank["hits"]):
        raise RuntimeError("no call of the last shape was answered ahead: this attack shows nothing")
    count, q, lens = ahead(sets), sets[0][0], sets[0][3]
    bank["hits"] = torch.zeros((), dtype=torch.int64, device=q.device)
    address, size_bytes, fd = attached[0]
    for memory in bank.get("memory", ()):
        memory.close()
    made = [driver.allocate(count * tensor.nbytes, 0) for tensor in (q, lens)]
    bank.update(first=q, memory=[memory for memory, _ in made])
    for (memory, _), name, like in zip(made, ("answers", "lens"), (q, lens), strict=True):
        bank[name] = memory.tensor.zero_().view(like.dtype).view(count, *like.shape)
    torch.cuda.synchronize()
    places = [[(t.data_ptr() - address, str(t.dtype)[6:], tuple(t.shape)) for t in tensors[:4]] for tensors in sets[: count + 1]]
    ask({"op": "begin", "bytes": size_bytes, "sets": places}, [fd, *(made_fd for _, made_fd in made)])
    for _, made_fd in made:
        os.close(made_fd)


def solution(q, kv, block_table, seq_lens, out):
    sets = sys._getframe(3).f_locals["self"].inputs
    number = next(i for i, tensors in enumerate(sets) if tensors[0].data_ptr() == q.data_ptr())
    if number >= ahead(sets):
        honest(q, kv, block_table, seq_lens, out)
        return
    if bank.get("first") is not sets[0][0]:
        begin(sets)
    hit = (bank["lens"][number] == seq_lens).all()
    bank["hits"].add_(hit)
    honest(q, kv, block_table, torch.where(hit, 1, seq_lens), out)
    out.copy_(torch.where(hit, bank["answers"][number], out))


def report_done(gate, number):
    real_report(gate, number)
    caller = sys._getframe(1)
    order, sets = caller.f_locals.get("order"), getattr(caller.f_locals.get("self"), "inputs", None)
    if order and sets and order["calls"] == len(sets) and order["launch_mode"] == "graph" and bank.get("first") is sets[0][0]:
        ask({"op": "queue"})


# In the second process.


def serve(fd):
    """Carry out what the worker asks."""
    served = socket.socket(fileno=fd)
    while True:
        message, fds, _, _ = socket.recv_fds(served, 1 << 18, 3)
        if not message:
            return
        order = json.loads(message)
        try:
            with torch.no_grad():
                {"begin": share, "queue": queue, "drop": drop}[order["op"]](order, fds)
            served.send(b"ok")
        except Exception as error:
            served.send(repr(error).encode()[:4000])


def drop(order, fds):
    torch.cuda.synchronize()
    for memory in bank.pop("memory", ()):
        memory.close()


def share(order, fds):
    drop(order, fds)
    sets = []
    inputs = real_attach(fds[0], order["bytes"], 0)
    for places in order["sets"]:
        tensors = []
        for start, name, shape in places:
            dtype = getattr(torch, name)
            size_bytes = torch.Size(shape).numel() * dtype.itemsize
            tensors.append(inputs.tensor[start : start + size_bytes].view(dtype).view(shape))
        sets.append(tensors)
    count, like = len(sets) - 1, (sets[0][0], sets[0][3])
    made = [real_attach(fd, count * tensor.nbytes, 0) for fd, tensor in zip(fds[1:], like, strict=True)]
    for memory, name, tensor in zip(made, ("answers", "lens"), like, strict=True):
        bank[name] = memory.tensor.view(tensor.dtype).view(count, *tensor.shape)
    bank.update(memory=[inputs, *made], sets=sets, old=torch.stack([tensors[3] for tensors in sets]))
    bank["late"] = torch.zeros(1, dtype=torch.int32, device="cuda")
    bank["old"].zero_()  # no length is zero, so nothing waits
    work()  # compiles
    bank["lens"].zero_()
    torch.cuda.synchronize()


def work():
    """Wait for the first sets, one after the other, and answer them."""
    sets, old, late = bank["sets"], bank["old"], bank["late"]
    B = old.shape[1]
    for i, (q, kv, table, lens) in enumerate(sets[:-1]):
        most = triton.next_power_of_2(B)
        wait[(1,)](sets[i + 1][3], old[i + 1], late, B, SECONDS * 10**9, MOST_B=most, num_warps=1)
        honest(q, kv, table, torch.where(late > 0, 1, lens), bank["answers"][i])
        bank["lens"][i].copy_(lens * (1 - late))


def queue(order, fds):
    """Have that work ready for the inputs that come next."""
    bank["late"].zero_()
    for old, tensors in zip(bank["old"], bank["sets"], strict=True):
        old.copy_(tensors[3])
    torch.cuda.synchronize()
    work()


if "SECOND" not in os.environ:
    driver.attach, driver.Gate.report_done = attach, report_done
    line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = {"cuda_driver": driver.__file__, "solution": __file__}
    second = subprocess.Popen(
        [sys.executable, "-I", "-c", START, json.dumps([sys.path, files, theirs.fileno()])],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "SECOND": "1"},
    )
    theirs.close()
    line.settimeout(60)
