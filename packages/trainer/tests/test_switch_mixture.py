"""A run that moves to another mixture on the way: nothing is drawn twice, nothing is left out, all is accounted for."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tokenmill_core.errors import ConfigError, VerificationError
from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest import RunManifest
from tokenmill_core.manifest_io import load_manifest, verify_files
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards import Mixture, MixtureReader
from tokenmill_shards.audit.trace import Tracer
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import list_checkpoints, require_verified
from tokenmill_trainer.cli.inspect import checkpoints
from tokenmill_trainer.loop import train
from tokenmill_trainer.resume import check_ledger
from tokenmill_trainer.run_folder import RunFolder, locate_mixture
from tokenmill_trainer.trace import trace_step

LENGTH, BATCH, STEPS = 32, 8, 12
SWITCH_STEP = 5
"""The last step on the first mixture: 40 samples."""
TAKES_OVER = 50 * LENGTH - 7
"""From sample 50 on, in the middle of step 7."""
MakeConfig = Callable[..., RunConfig]
Mix = Callable[..., Path]


@pytest.fixture(scope="module")
def mix(mixture: Path) -> Mix:
    """mix("second.json", …): another mixture of the same tokens, beside the first."""

    def make(name: str, *arguments: object) -> Path:
        code = "from tokenmill_core.cli import main; main()"
        sources = ("trainer=trainer:1", "core=core:5")
        command = [sys.executable, "-c", code, "mix", *sources, *arguments, "--out", name]
        done = subprocess.run(list(map(str, command)), cwd=mixture.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return mixture.parent / name

    return make


@pytest.fixture(scope="module")
def second(mix: Mix, mixture: Path) -> Path:
    """A mixture that goes on with the first one, with other shares."""
    return mix("second.json", "--continue", mixture.name, "--from", TAKES_OVER)


@pytest.fixture
def config(make_config: MakeConfig, mixture: Path) -> Callable[..., RunConfig]:
    def make(path: Path = mixture, **training: Any) -> RunConfig:
        steps = {"steps": STEPS, "global_batch_size": BATCH, "micro_batch_size": 4}
        data = {"mixture": str(path), "sequence_length": LENGTH}
        return make_config(model={"vocab_size": None}, data=data, training=steps | training, checkpoint={"interval": 4})

    return make


@pytest.fixture
def switched(tmp_path: Path, config: Callable[..., RunConfig], second: Path) -> Path:
    """A run of 5 steps on the first mixture and 7 on the second."""
    out = tmp_path / "run"
    train(config(steps=SWITCH_STEP), out)
    train(config(second), out, resume=True, allow_changes={"schedule"})
    return out


def drawn(path: Path, samples: int) -> Counter[str]:
    """How many of the first samples each source gives, one by one."""
    manifest = load_manifest(str(path), MixtureManifest).manifest
    source = Mixture(manifest, LENGTH).locate(np.arange(samples)).source
    return Counter(manifest.sources[number].name for number in source.tolist())


def test_what_was_drawn_of_each_source_is_what_the_mixtures_say(switched: Path, mixture: Path, second: Path) -> None:
    newest = require_verified(switched / "checkpoints", pytest.fail).manifest
    assert {use.name: use.samples for use in newest.sources} == drawn(second, STEPS * BATCH)
    assert {use.name: use.tokens for use in newest.sources} == {
        name: samples * LENGTH for name, samples in drawn(second, STEPS * BATCH).items()
    }
    assert sum(use.tokens for use in newest.sources) == newest.consumed_tokens == STEPS * BATCH * LENGTH
    assert drawn(second, 50) == drawn(mixture, 50)
    assert drawn(second, STEPS * BATCH) != drawn(mixture, STEPS * BATCH)


def test_every_step_is_traced_before_and_after(switched: Path, mixture: Path, second: Path) -> None:
    rows = [row for step in range(1, STEPS + 1) for row in trace_step(RunFolder(switched), step, with_text=False)]
    of_sample = {row["sample"]: row["source"] for row in rows}
    assert list(of_sample) == list(range(STEPS * BATCH))
    assert Counter(of_sample.values()) == drawn(second, STEPS * BATCH)
    before = Tracer(MixtureReader.open(str(mixture), LENGTH), with_text=False).samples(range(50))
    trained = {"rank": 0, "skipped": False}
    assert [row | trained | {"step": row["sample"] // BATCH + 1} for row in before] == rows[: len(before)]


def test_the_tokens_trained_on_are_those_of_the_pure_function(
    tmp_path: Path, config: Callable[..., RunConfig], second: Path
) -> None:
    out = tmp_path / "run"
    train(config(steps=SWITCH_STEP), out)
    expected = MixtureReader.open(str(second), LENGTH).samples(np.arange(SWITCH_STEP * BATCH, STEPS * BATCH)).tokens
    with initialize(config(second, micro_batch_size=2)) as engine:
        checkpoint.restore(engine, require_verified(out / "checkpoints", pytest.fail))
        seen = []
        for batch in engine.batches():
            seen.append(batch.inputs)
            engine.backward(engine(batch))
            engine.step()
    assert torch.equal(torch.cat(seen), torch.from_numpy(expected[:, :-1]))


def test_two_ranks_go_on_with_the_second_mixture_as_one_does(
    tmp_path: Path,
    config: Callable[..., RunConfig],
    second: Path,
    switched: Path,
    pretrain: Callable[..., Any],
    losses: Callable[[Path], list[float]],
) -> None:
    out = tmp_path / "two"
    train(config(steps=SWITCH_STEP), out)
    options = ("--set", f"training.steps={STEPS}", "--set", "training.micro_batch_size=1", "--allow-change", "schedule")
    pretrain("run", "--out", out, "--resume", "--mixture", second, *options, ranks=2)
    torch.testing.assert_close(torch.tensor(losses(out)), torch.tensor(losses(switched)), atol=1e-5, rtol=0)
    one, two = (require_verified(run / "checkpoints", pytest.fail).manifest for run in (switched, out))
    assert one.sources == two.sources
    assert two.world_size == 2
    rows = trace_step(RunFolder(out), STEPS, rank=1, with_text=False)
    assert sorted({row["sample"] for row in rows}) == list(range(92, 96))


def test_the_folder_keeps_every_mixture_it_was_trained_on(switched: Path, mixture: Path, second: Path) -> None:
    loaded = load_manifest(str(switched), RunManifest)
    verify_files(loaded)
    digests = [load_manifest(str(path)).manifest.digest for path in (second, mixture)]
    assert [ref.digest for ref in loaded.manifest.inputs] == digests
    assert load_manifest(str(switched / "mixture.json")).manifest.digest == digests[0]
    assert [path.name for path in RunFolder(switched).former_mixtures()] == [f"mixture-{digests[1][:12]}.json"]
    assert loaded.manifest.sources == require_verified(switched / "checkpoints", pytest.fail).manifest.sources
    tree = trace_lineage(loaded)
    assert [node.problem for mixture_node in tree.inputs for node in mixture_node.inputs] == [""] * 4


def test_going_on_with_another_mixture_is_said_once(
    tmp_path: Path,
    config: Callable[..., RunConfig],
    mixture: Path,
    second: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    train(config(steps=SWITCH_STEP), out)
    train(config(second, steps=6), out, resume=True, allow_changes={"schedule"})
    now, before = (load_manifest(str(path)).manifest for path in (second, mixture))
    line = (
        f"goes on with mixture {now.name} {now.digest[:12]}… from token {TAKES_OVER:,}; "
        f"trained on {before.digest[:12]}… before\n"
    )
    assert line in capfd.readouterr().err
    train(config(second, steps=7), out, resume=True, allow_changes={"schedule"})
    assert "goes on with mixture" not in capfd.readouterr().err


def test_where_they_part_may_be_reached_and_not_passed(
    tmp_path: Path, config: Callable[..., RunConfig], mix: Mix, mixture: Path, second: Path
) -> None:
    at_once = mix("at-once.json", "--continue", mixture.name, "--from", 40 * LENGTH)
    train(config(steps=SWITCH_STEP), tmp_path / "five")
    train(config(at_once, steps=6), tmp_path / "five", resume=True, allow_changes={"schedule"})
    train(config(steps=7), tmp_path / "seven")
    message = (
        r"data.mixture: it takes over from token 1,593, sample 50, but 56 samples are consumed; "
        r"mix it again from token 1792 or later"
    )
    with pytest.raises(ConfigError, match=message):
        train(config(second), tmp_path / "seven", resume=True, allow_changes={"schedule"})


def test_a_mixture_that_does_not_go_on_with_the_old_one_is_refused_with_the_way_out(
    tmp_path: Path, config: Callable[..., RunConfig], mix: Mix, second: Path, switched: Path
) -> None:
    other = mix("other.json", "--seed", 4)
    out = tmp_path / "run-on-first"
    train(config(steps=SWITCH_STEP), out)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match=r"goes on with it \(prep mix … --continue OLD.json --from TOKENS\)"):
        train(config(other), out, resume=True, allow_changes={"schedule"})
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    # Nor does the first go on with the second.
    with pytest.raises(ConfigError, match=r"data\.mixture: digest"):
        train(config(steps=13), switched, resume=True, allow_changes={"schedule"})


def test_a_switch_that_was_not_saved_is_found_again_or_taken_back(
    switched: Path, config: Callable[..., RunConfig], mixture: Path, second: Path
) -> None:
    """A kill between the start on the second mixture and its first checkpoint leaves those of the first alone."""
    run = RunFolder(switched)
    for path in list_checkpoints(run.checkpoints):
        if load_manifest(str(path)).manifest.inputs[0].digest != load_manifest(str(mixture)).manifest.digest:
            shutil.rmtree(path)
    assert Path(locate_mixture(run)).resolve() == second
    run.begin(config(), load_manifest(str(mixture), MixtureManifest))
    assert run.former_mixtures() == []
    assert Path(locate_mixture(run)).resolve() == mixture


def test_a_ledger_that_the_data_does_not_give_is_an_error(
    tmp_path: Path, config: Callable[..., RunConfig], mixture: Path
) -> None:
    train(config(steps=SWITCH_STEP), tmp_path / "run")
    found = require_verified(tmp_path / "run" / "checkpoints", pytest.fail).manifest
    reader = MixtureReader.open(str(mixture), LENGTH)
    check_ledger(reader, found)
    one = found.sources[0]
    altered = one.model_copy(update={"samples": one.samples + 1})
    wrong = found.model_copy(update={"sources": (altered, *found.sources[1:])})
    with pytest.raises(VerificationError, match=rf"{one.samples + 1} samples, .* of source 'core' were drawn"):
        check_ledger(reader, wrong)
    with pytest.raises(VerificationError, match="nothing of source 'core' were drawn"):
        check_ledger(reader, found.model_copy(update={"sources": found.sources[1:]}))


def test_the_list_of_checkpoints_shows_the_ledger(switched: Path, second: Path) -> None:
    listed = CliRunner().invoke(checkpoints, [str(switched), "--json"], standalone_mode=False)
    rows = json.loads(listed.stdout)
    assert [row["step"] for row in rows] == [12, 8]
    for row in rows:
        assert {use["name"]: use["samples"] for use in row["sources"]} == drawn(second, row["consumed_samples"])
