"""What a run really feeds its model: enough data or a clear word, and one order for any stop, rank, batch and thread.

Every run here is a real one, and what is compared are the tokens that reached the model: token i of a source is the
word `w<i>`, so the first input of a sample tells which window it is.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenmill_core.config import dump_toml
from tokenmill_core.errors import ConfigError, ExitCode, InputError
from tokenmill_shards import MixtureReader
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Batch, Engine
from tokenmill_trainer.loop import train
from tokenmill_trainer.watching.step_log import StepLog

LENGTH, BATCH = 64, 8
Windows = dict[int, list[int]]
"""Global index of a step's first sample ─▶ the windows of its samples, in the order of ranks and micro-batches."""
ON_RANKS = """
import json, os, sys
from tokenmill_trainer.cli import main
from tokenmill_trainer.engine import Engine
seen, forward = {}, Engine.__call__
def record(engine, batch):
    seen.setdefault(batch.first_sample, []).extend((batch.inputs[:, 0] // 64).tolist())
    open(f"{sys.argv[0]}.{os.environ['RANK']}", "w").write(json.dumps(seen))
    return forward(engine, batch)
Engine.__call__ = record
main()
"""
"""`pretrain` that writes down what reached the model on each rank."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def mixture(
    prep: Callable[..., Any], write_lines: Any, word_tokenizer: Callable[..., Path], tmp_path: Path
) -> Callable[..., Path]:
    """mixture(windows * 64 + 1): a mixture of one source of as many tokens, all of them in one document."""

    def make(num_tokens: int) -> Path:
        raw = write_lines("raw.jsonl", [" ".join(f"w{i}" for i in range(num_tokens - 1))])
        tokenizer, out = word_tokenizer(10_000), tmp_path / "mixture.json"
        assert prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1).code == 0
        done = prep("mix", f"a={tmp_path / 'tokens'}", "--seed", 5, "--out", out)
        assert done.code == 0, done.err
        return out

    return make


def settings(mixture: Path, sequence_length: int = LENGTH, num_workers: int = 2, **training: Any) -> RunConfig:
    """Of a run of 20 steps on a tiny model."""
    model = {"hidden_size": 16, "intermediate_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2}
    data = {"mixture": str(mixture), "sequence_length": sequence_length, "num_workers": num_workers}
    sizes = {"steps": 20, "global_batch_size": BATCH, "micro_batch_size": 4}
    return RunConfig.model_validate({"model": model, "data": data, "training": sizes | training})


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> Windows:
    """What reaches the model in this process."""
    seen: Windows = {}
    forward = Engine.__call__

    def record(engine: Engine, batch: Batch) -> Any:
        seen.setdefault(batch.first_sample, []).extend((batch.inputs[:, 0] // LENGTH).tolist())
        return forward(engine, batch)

    monkeypatch.setattr(Engine, "__call__", record)
    return seen


def on_ranks(ranks: int, config: RunConfig, out: Path, *options: str) -> Windows:
    """`pretrain run` on several ranks of this machine, and what reached their models together."""
    script, file = out.with_suffix(".py"), out.with_suffix(".toml")
    script.write_text(ON_RANKS)
    file.write_text(dump_toml(config))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launcher, str(script), "run", "--config", str(file), "--out", str(out), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    parts = [json.loads(script.with_suffix(f".py.{rank}").read_text()) for rank in range(ranks)]
    return {int(first): [window for part in parts for window in part[first]] for first in parts[0]}


def in_order(mixture: Path, samples: range) -> list[int]:
    """The windows of these samples, by the pure function alone."""
    reader = MixtureReader.open(str(mixture), LENGTH)
    return reader.mixture.locate(np.arange(samples.start, samples.stop)).window.tolist()


def joined(windows: Windows) -> list[int]:
    """All windows, step after step."""
    return [window for first in sorted(windows) for window in windows[first]]


def stop_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send this process SIGTERM while the metrics of `step` are written."""
    write = StepLog.write

    def strike(log: StepLog, row: dict[str, Any]) -> None:
        if row["step"] == step and "loss" in row:
            os.kill(os.getpid(), signal.SIGTERM)
        write(log, row)

    monkeypatch.setattr(StepLog, "write", strike)


# Enough data


@pytest.mark.parametrize("count", [50, 64])
def test_too_little_for_one_sequence_is_said_before_anything_is_written(
    mixture: Callable[..., Path], tmp_path: Path, count: int
) -> None:
    with pytest.raises(InputError, match=rf"source a has {count} tokens; sequence length 64 needs at least 65"):
        train(settings(mixture(count)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_sequence_on_four_ranks_repeats_every_epoch(mixture: Callable[..., Path], tmp_path: Path) -> None:
    windows = on_ranks(4, settings(mixture(65), steps=2, micro_batch_size=2), tmp_path / "run")
    assert windows == {0: [0] * BATCH, BATCH: [0] * BATCH}


def test_a_mixture_that_holds_nothing_out_trains_and_says_so(
    mixture: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(mixture(10 * LENGTH + 1), steps=2)
    config = config.model_copy(update={"validation": config.validation.model_copy(update={"interval": 1})})
    assert train(config, tmp_path / "run") is ExitCode.DONE
    assert "no validation: this mixture holds nothing out; mix it with --validation-share" in capsys.readouterr().err


# One order


def test_stopped_at_7_of_20_with_threads_reading_ahead_the_joined_list_is_the_unbroken_one(
    mixture: Callable[..., Path], tmp_path: Path, fed: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 windows: step 7 is in the middle of the first epoch, step 20 in the second."""
    path, log = mixture(100 * LENGTH + 1), tmp_path / "samples.jsonl"
    train(settings(path), tmp_path / "unbroken")
    unbroken = dict(fed)
    fed.clear()
    with monkeypatch.context() as patch:
        stop_after(7, patch)
        assert train(settings(path), tmp_path / "run", data_log=log) is ExitCode.STOPPED
    assert sorted(fed) == list(range(0, 7 * BATCH, BATCH))
    assert train(settings(path), tmp_path / "run", resume=True, data_log=log) is ExitCode.DONE
    assert fed == unbroken
    assert joined(fed) == in_order(path, range(20 * BATCH))
    assert [i for line in log.read_text().splitlines() for i in json.loads(line)["samples"]] == list(range(20 * BATCH))


def test_any_layout_goes_on_with_the_same_global_order(
    mixture: Callable[..., Path], tmp_path: Path, fed: Windows
) -> None:
    """Saved by 2 ranks × 4 samples; then 1 × 8, 1 × 2 four times over, 4 × 2, and 2 × 8, which is a larger batch."""
    path = mixture(100 * LENGTH + 1)
    assert joined(on_ranks(2, settings(path, steps=3), tmp_path / "saved")) == in_order(path, range(24))

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tmp_path / "saved", tmp_path / name))

    expected = in_order(path, range(24, 48))
    for size in (8, 2):
        fed.clear()
        config = settings(path, steps=6, micro_batch_size=size)
        train(config, copy(f"one-{size}"), resume=True, allow_changes={"schedule"})
        assert joined(fed) == expected
    going_on = ("--resume", "--allow-change", "schedule")
    assert joined(on_ranks(4, settings(path, steps=6, micro_batch_size=2), copy("four"), *going_on)) == expected
    larger = on_ranks(2, settings(path, steps=6, micro_batch_size=8, global_batch_size=16), copy("two"), *going_on)
    assert sorted(larger) == [24, 40, 56]
    assert joined(larger) == in_order(path, range(24, 72))


def test_another_sequence_length_cannot_go_on(mixture: Callable[..., Path], tmp_path: Path) -> None:
    path = mixture(100 * LENGTH + 1)
    train(settings(path, steps=2), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"data\.sequence_length: 128 here, 64 in the checkpoint"):
        train(settings(path, sequence_length=128, steps=2), tmp_path / "run", resume=True)


def test_each_window_comes_once_an_epoch_in_one_order_for_any_number_of_threads_and_ranks(
    mixture: Callable[..., Path], tmp_path: Path, fed: Windows
) -> None:
    """100 windows, 25 steps of 8 samples: two epochs."""
    path, orders = mixture(100 * LENGTH + 1), []
    for num_workers in (0, 1, 3):
        fed.clear()
        train(settings(path, num_workers=num_workers, steps=25), tmp_path / f"run-{num_workers}")
        orders.append(joined(fed))
    orders.append(joined(on_ranks(2, settings(path, num_workers=3, steps=25), tmp_path / "two")))
    assert orders == [orders[0]] * 4
    first, second = orders[0][:100], orders[0][100:]
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
