"""A run watched by what is not part of a base install. Each test is skipped where its library is absent."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIXTURE = ROOT / "manifests/sample/data/mixture.json"
SETTINGS = """
[model]
hidden_size = 48
intermediate_size = 96
num_layers = 2
num_heads = 6
num_kv_heads = 2
[data]
sequence_length = 32
[training]
steps = 6
global_batch_size = 4
micro_batch_size = 4
[schedule]
kind = "constant"
[checkpoint]
interval = 4
"""
Pretrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a run of seconds."""
    path = tmp_path_factory.mktemp("settings") / "run.toml"
    path.write_text(SETTINGS, "utf-8")
    return path


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables that keep every library on this machine and in a folder of its own."""
    folder = tmp_path_factory.mktemp("places")
    return {
        "WANDB_MODE": "offline",
        "WANDB_CACHE_DIR": str(folder / "wandb"),
        "WANDB_CONFIG_DIR": str(folder / "wandb"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "TRACKIO_DIR": str(folder / "trackio"),
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def pretrain(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    """Run `pretrain` as a process of its own, in a folder of its own. Foreign libraries warn as they like."""
    here = tmp_path_factory.mktemp("here")

    def run(
        *arguments: object, check: bool = True, ranks: int = 1, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        done = subprocess.run(
            [sys.executable, *launcher, "-m", "tokenmill_trainer", *map(str, arguments)],
            cwd=here,
            env={**os.environ, **places, **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    return run
