"""Which hardware this machine is, where nobody said it."""

import torch

from arena import catalog
from arena.errors import JudgeError
from arena.schema import Hardware


def hardware_here(gpu: int) -> Hardware:
    """The hardware of GPU number `gpu` as CUDA counts; `cpu` where torch finds no GPU.

    UsageError when no hardware file lists that GPU, JudgeError when there are GPUs and not so many.
    """
    if not torch.cuda.is_available():
        return catalog.hardware("cpu")
    if gpu >= (count := torch.cuda.device_count()):
        raise JudgeError(f"there is no GPU {gpu}: torch counts {count} from 0")
    return catalog.hardware_of(torch.cuda.get_device_name(gpu))
