"""Benchmarks that need hardware which is not at hand, tried with a tiny model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "trainer_gpu.py"


def trainer_gpu(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def test_gpu_table_of_a_tiny_model() -> None:
    done = trainer_gpu("--tiny")
    assert done.returncode == 0, done.stderr
    *_, row = done.stdout.splitlines()
    name, gpus, micro_batch, rate = (cell.strip() for cell in row.split("|")[1:5])
    assert (name, gpus, micro_batch) == ("tiny", "1", "4 x 64")
    assert float(rate.replace(",", "")) > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_it_needs() -> None:
    done = trainer_gpu()
    assert done.returncode == 1
    assert "needs an NVIDIA GPU" in done.stderr
    assert "Traceback" not in done.stderr
