"""Runs this program on the GPU, in its turn: `gpu` starts it anew there. See PROMPT.md."""

import os
import sys

if "GPU_TURN" not in os.environ:
    os.execvp("gpu", ["gpu", sys.executable, *sys.argv])
