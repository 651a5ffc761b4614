"""Runs scripts that compile or interpret a folder's Triton kernels. They need Triton, but no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOAD = """
import importlib.util, sys
from types import SimpleNamespace
import torch

def load(stem):
    spec = importlib.util.spec_from_file_location(stem, f"{sys.argv[1]}/{stem}.py")
    sys.modules[stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
"""The head of every script: `load("oracle_gpu")` imports that file of the folder."""


def ran(script: str, folder: Path, tmp_path: Path, **given: str) -> list[list[str]]:
    """Run the script in a process of its own and return the words of each line that it prints. `given` is environment."""
    if not importlib.util.find_spec("triton"):
        pytest.skip("Triton is not installed")
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **given}
    command = [sys.executable, "-c", LOAD + script, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]
