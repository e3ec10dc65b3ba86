"""From a step of a run to the documents it has seen, and from a document to the steps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_trainer import RunConfig
from tokenmill_trainer.cli.inspect import trace
from tokenmill_trainer.loop import train
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.trace import TracedStep, trace_document_of_run, trace_step, traced_steps
from tokenmill_trainer.watching.step_log import read_steps

LENGTH, BATCH = 32, 8


@pytest.fixture
def run(tmp_path: Path, make_config: Callable[..., RunConfig], mixture: Path) -> RunFolder:
    """6 steps of 8 samples."""
    data = {"mixture": str(mixture), "sequence_length": LENGTH}
    train(make_config(model={"vocab_size": None}, data=data), tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_step_has_the_documents_of_its_samples_with_text_and_raw_file(run: RunFolder, mixture: Path) -> None:
    rows = trace_step(run, 3)
    assert sorted({row["sample"] for row in rows}) == list(range(16, 24))
    for row in rows:
        assert (row["step"], row["rank"]) == (3, 0)
        raw = mixture.parent / f"{row['source']}.jsonl"
        assert Path(row["path"]) == raw
        text = json.loads(raw.read_text("utf-8").splitlines()[row["row"] - 1])["text"]
        assert row["text"].replace("<|endoftext|>", "").strip("\ufffd") in text
    assert trace_step(run, 3, sample=17) == [row for row in rows if row["sample"] == 17]


def test_every_step_and_rank_that_saw_a_document_is_found(run: RunFolder) -> None:
    rows = [row for step in range(1, 7) for row in trace_step(run, step)]
    for file, number in {(row["file"], row["row"]) for row in rows}:
        source = file.split("/")[0]
        found, reasons = trace_document_of_run(run, f"{source}:{file}:{number}")
        assert found == [row for row in rows if (row["file"], row["row"]) == (file, number)]
        assert reasons == []
    with pytest.raises(InputError, match=r"no document with id 'core/core.jsonl:999', and none in row 999"):
        trace_document_of_run(run, "core:core/core.jsonl:999")


def test_a_rank_has_its_slice_of_the_step() -> None:
    step = TracedStep(7, range(48, 56), world_size=4)
    assert [list(step.of_rank(rank)) for rank in range(4)] == [[48, 49], [50, 51], [52, 53], [54, 55]]
    assert [step.rank_of(sample) for sample in step.samples] == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(InputError, match="--rank 4: step 7 ran on ranks 0 to 3"):
        step.of_rank(4)


def test_each_step_says_how_many_ranks_it_ran_on(run: RunFolder) -> None:
    lines = [json.dumps(row | {"world_size": 2 if row["step"] > 3 else 1}) for row in read_steps(run.metrics_file)]
    run.metrics_file.write_text("\n".join(lines) + "\n")
    assert [step.world_size for step in traced_steps(run)] == [1, 1, 1, 2, 2, 2]
    assert {row["rank"] for row in trace_step(run, 3, with_text=False)} == {0}
    assert {(row["rank"], row["sample"] < 28) for row in trace_step(run, 4, with_text=False)} == {(0, True), (1, False)}


def test_what_the_log_does_not_know_is_not_guessed(run: RunFolder) -> None:
    with pytest.raises(InputError, match=r"--step 7: not in .*; the run has steps 1 to 6"):
        trace_step(run, 7)
    with pytest.raises(InputError, match="--sample 3: not among the samples 8 to 15"):
        trace_step(run, 2, sample=3)
    rows = read_steps(run.metrics_file)[3:]
    del rows[0]["first_sample"], rows[1]["first_sample"]  # as logs were before rollbacks
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="step 4 or the one before is missing"):
        trace_step(run, 4)
    assert {row["sample"] for row in trace_step(run, 5)} == set(range(32, 40))
    with pytest.raises(InputError, match="step 1 or the one before is missing"):
        trace_document_of_run(run, "core:core/core.jsonl:1")


def test_another_mixture_than_that_of_the_run_is_refused(run: RunFolder, mixture: Path, tmp_path: Path) -> None:
    from tokenmill_core.manifest_io import load_manifest, publish
    from tokenmill_core.mixture_manifest import MixtureManifest

    manifest = load_manifest(str(mixture), MixtureManifest).manifest
    other = publish(manifest.model_copy(update={"seed": 9}), str(mixture.parent), "seed-9.json")
    with pytest.raises(
        VerificationError, match=r"but the run was trained on .* say where that one lies with --mixture"
    ):
        trace_step(run, 1, mixture=other.url)


def test_the_command_shows_steps_and_documents(run: RunFolder) -> None:
    def invoke(*arguments: object) -> Any:
        return CliRunner().invoke(trace, [str(run.path), *map(str, arguments)])

    rows = json.loads(invoke("--step", 2, "--rank", 0, "--json").stdout)
    assert rows == trace_step(run, 2)
    one = rows[0]
    found = json.loads(invoke("--document", f"{one['source']}:{one['file']}:{one['row']}", "--json").stdout)
    assert one in found
    assert "step" in invoke("--step", 2).stdout
    for arguments in (("--step", 3), ("--document", "core:1")):
        nowhere = CliRunner().invoke(trace, [str(run.path.parent), *map(str, arguments)])
        assert str(nowhere.exception) == f"{run.path.parent}: no run here; name the --out of a `pretrain run`"
    for arguments in ((), ("--step", 1, "--document", "core:1"), ("--document", "core:1", "--rank", 0)):
        outcome = invoke(*arguments)
        assert "say what to trace" in str(outcome.exception)
