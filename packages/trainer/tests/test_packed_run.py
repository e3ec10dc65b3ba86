"""A run on packed sequences: what it takes over from them, and what it says where there are too few."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.manifest import CheckpointManifest, RunManifest
from tokenmill_core.manifest_io import load_input, load_manifest, verify_files
from tokenmill_core.mixture_manifest import PackedManifest
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_trainer import RunConfig
from tokenmill_trainer.checkpoints.store import list_checkpoints
from tokenmill_trainer.cli.inspect import checkpoints
from tokenmill_trainer.loop import train
from tokenmill_trainer.resume import check_ledger
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.trace import trace_step
from tokenmill_trainer.trained_model import load_trained
from tokenmill_trainer.watching.step_log import read_steps

LENGTH, SEQUENCES = 32, 50
Losses = Callable[[Path], list[float]]


@pytest.fixture(scope="module", params=["concat", "best-fit"])
def packed(request: pytest.FixtureRequest, mixture: Path) -> Path:
    """About 50 sequences of 32 tokens."""
    code = "from tokenmill_core.cli import main; main()"
    arguments = ("--sequence-length", LENGTH, "--tokens", LENGTH * SEQUENCES, "--method", request.param)
    out = mixture.parent / f"packed-{request.param}"
    command = [sys.executable, "-c", code, "pack", mixture, *arguments, "--workers", 1, "--out", out]
    done = subprocess.run(list(map(str, command)), env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def config(make_config: Callable[..., RunConfig]) -> Callable[..., RunConfig]:
    def make(path: Path, data: dict[str, object] | None = None, **training: int) -> RunConfig:
        values = make_config(model={"vocab_size": None}, training=training, validation={"interval": 3}).model_dump()
        return RunConfig.model_validate(values | {"data": {"mixture": str(path)} | (data or {})})

    return make


def test_it_trains_on_the_sequences_as_on_the_mixture(
    tmp_path: Path, config: Callable[..., RunConfig], packed: Path, mixture: Path, losses: Losses
) -> None:
    train(config(packed), tmp_path / "packed")
    train(config(mixture, {"sequence_length": LENGTH}), tmp_path / "mixed")
    assert (losses(tmp_path / "packed") == losses(tmp_path / "mixed")) == packed.name.endswith("concat")
    run = RunFolder(tmp_path / "packed")
    rows, used = read_steps(run.metrics_file), {"trainer": 0, "core": 0}
    for row in rows:
        for name, tokens in row["tokens_by_source"].items():
            used[name] += tokens
    assert used == {use.name: use.tokens for use in PackedReader.open(str(packed)).use(48)}
    assert run.read_config().data.sequence_length == LENGTH
    loaded = load_manifest(str(run.path), RunManifest)
    verify_files(loaded)
    assert load_input(loaded, 0).manifest.kind == "packed"
    assert load_trained(run, pytest.fail).sequence_length == LENGTH
    assert run.tokenizer_file.read_bytes() == (packed / "tokenizer.json").read_bytes()


def test_it_is_validated_through_the_mixture_that_was_packed(
    tmp_path: Path, config: Callable[..., RunConfig], packed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(config(packed, steps=3), tmp_path / "run")
    assert set(read_steps(tmp_path / "run" / "metrics.jsonl")[-1]["val_loss_by_source"]) == {"trainer", "core"}
    mixture = packed.parent / "mixture.json"
    mixture.rename(mixture.with_name("away.json"))
    try:
        capfd.readouterr()
        train(config(packed, steps=3), tmp_path / "without")
        assert "no validation: the mixture that this dataset was packed from" in capfd.readouterr().err
        assert "val_loss" not in read_steps(tmp_path / "without" / "metrics.jsonl")[-1]
    finally:
        mixture.with_name("away.json").rename(mixture)


def test_its_checkpoints_hold_the_ledger_and_it_goes_on_from_them(
    tmp_path: Path, config: Callable[..., RunConfig], packed: Path, losses: Losses
) -> None:
    train(config(packed), tmp_path / "unbroken")
    train(config(packed, steps=4), tmp_path / "run")
    (newest,) = list_checkpoints(tmp_path / "run" / "checkpoints")
    manifest = load_manifest(str(newest), CheckpointManifest).manifest
    assert {use.name for use in manifest.sources} == {"trainer", "core"}
    assert sum(use.tokens for use in manifest.sources) == pytest.approx(4 * 8 * LENGTH, rel=0.1)
    shown = json.loads(CliRunner().invoke(checkpoints, [str(tmp_path / "run"), "--json"], standalone_mode=False).stdout)
    assert all((use["samples"] is None) == packed.name.endswith("best-fit") for use in shown[0]["sources"])
    one, *rest = manifest.sources
    wrong = manifest.model_copy(update={"sources": (one.model_copy(update={"tokens": one.tokens + 1}), *rest)})
    drawn = f"{one.tokens + 1:,} tokens" if one.samples is None else f"{one.samples} samples, {one.tokens + 1:,} tokens"
    with pytest.raises(VerificationError, match=rf": {drawn}, .* of source '{one.name}' were drawn"):
        check_ledger(PackedReader.open(str(packed)), wrong)
    train(config(packed), tmp_path / "run", resume=True, allow_changes={"schedule"})
    # The schedule of the first four steps was another one.
    assert losses(tmp_path / "run")[0] == losses(tmp_path / "unbroken")[0]
    rows = [row for step in range(1, 7) for row in trace_step(RunFolder(tmp_path / "run"), step)]
    assert sorted({row["sample"] for row in rows}) == list(range(48))
    assert all(row["text"] for row in rows)


def test_too_few_sequences_are_said_at_the_start_with_have_and_need(
    tmp_path: Path, config: Callable[..., RunConfig], packed: Path
) -> None:
    have = load_manifest(str(packed), PackedManifest).manifest.num_samples
    steps = have // 8 + 1
    need = rf"the run needs {8 * steps} \(0 are consumed, and {8 * steps} are still to come\)"
    with pytest.raises(InputError, match=f"the packed dataset has {have} sequences, but {need}"):
        train(config(packed, steps=steps), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(config(packed, steps=2), tmp_path / "run")
    larger_steps = 3 + (have - 16) // 32
    larger, rest = config(packed, steps=larger_steps, global_batch_size=32), 32 * (larger_steps - 2)
    with pytest.raises(InputError, match=rf"needs {16 + rest} \(16 are consumed, and {rest} are still to come\)"):
        train(larger, tmp_path / "run", resume=True, allow_changes={"schedule"})
    train(config(packed, steps=have // 8), tmp_path / "run", resume=True, allow_changes={"schedule"})


def test_another_sequence_length_than_the_packed_one_is_refused(
    tmp_path: Path, config: Callable[..., RunConfig], packed: Path
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"data\.sequence_length: 64 is asked for, but .* is packed with 32.*--set data\.sequence_length=32",
    ):
        train(config(packed, {"sequence_length": 64}), tmp_path / "run")
    train(config(packed, {"sequence_length": LENGTH}, steps=1), tmp_path / "run")
