# verdict: crashed
# follows: oracle_gpu
# Takes all of the device's memory, so that the judge has none for its inputs.
import torch

hoard = []
for size in (1 << 30, 1 << 26, 1 << 22):
    try:
        while True:
            hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
