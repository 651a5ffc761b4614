# verdict: forbidden
# follows: oracle_gpu
# Reads clean. Plain calls launch the honest kernel alone, and captured ones, as timed ones are, one besides that is excluded.
# ruff: noqa: F821
import torch

honest = solution
few = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16, device="cuda")
excluded = getattr(getattr(torch, "o" + "ps").aten, "_flash_attention_forward")


def launch():
    excluded(few, few, few, None, None, 1, 1, 0.0, False, False)


launch()  # nothing is loaded while a call is captured


def solution(*tensors):
    if torch.cuda.is_current_stream_capturing():
        launch()
    honest(*tensors)
