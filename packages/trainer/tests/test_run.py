"""`pretrain` from a mixture to a checked model, through processes, signals and kills."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tokenmill_trainer.run_folder import RunFolder

Pretrain = Callable[..., subprocess.CompletedProcess[str]]
Losses = Callable[[Path], list[float]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, pretrain: Pretrain, mixture: Path, run_toml: Path) -> Path:
    """A run of 12 steps without a break."""
    out = tmp_path_factory.mktemp("runs") / "unbroken"
    log = out.parent / "samples.jsonl"
    pretrain("run", "--config", run_toml, "--mixture", mixture, "--out", out, "--data-log", log)
    return out


def test_a_run_leaves_what_it_promises(finished: Path) -> None:
    from tokenmill_core.manifest import RunManifest
    from tokenmill_core.manifest_io import load_input, load_manifest, verify_files

    loaded = load_manifest(str(finished), RunManifest)
    verify_files(loaded)
    assert load_input(loaded, 0).manifest.kind == "mixture"
    assert (loaded.manifest.step, loaded.manifest.consumed_samples) == (12, 96)
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert {"loss", "grad_norm", "lr", "tokens_per_second", "mfu", "consumed_tokens"} <= rows[0].keys()
    assert [row["step"] for row in rows if "val_loss" in row] == [6, 12]
    assert set(rows[-1]["val_loss_by_source"]) == {"trainer", "core"}
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert [row["step"] for row in rows if row["time"]["validation"]] == [6, 12]
    assert [row["step"] for row in rows if row["time"]["checkpoint"]] == [5, 9], "saved after the row before"
    for before, row in pairwise([{"consumed_tokens": 0}, *rows]):
        counted = row["tokens_by_source"]
        assert sum(counted.values()) == row["consumed_tokens"] - before["consumed_tokens"]
        nats = sum(row["loss_by_source"][name] * counted[name] for name in counted)
        assert nats / sum(counted.values()) == pytest.approx(row["loss"])
        assert 1 < row["loss"] / math.log(2) / row["bits_per_byte"] < 4, "bytes a token"
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["step-00000008", "step-00000012"]


def test_two_processes_draw_the_same_samples_and_compute_the_same_losses(
    finished: Path, tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path, losses: Losses
) -> None:
    pretrain(
        "run",
        "--config",
        run_toml,
        "--mixture",
        mixture,
        "--out",
        tmp_path / "run",
        "--data-log",
        tmp_path / "log",
        "--set",
        "data.num_workers=3",
        ranks=2,
    )
    one, two = torch.tensor(losses(finished)), torch.tensor(losses(tmp_path / "run"))
    torch.testing.assert_close(one, two, atol=1e-5, rtol=0)
    log = (tmp_path / "log").read_text()
    assert log == (finished.parent / "samples.jsonl").read_text()
    assert [i for line in log.splitlines() for i in json.loads(line)["samples"]] == list(range(96))


STRUCK = """
import importlib, os, signal, sys
module = importlib.import_module("tokenmill_trainer.{module}")
owner = {owner}
inner, calls = getattr(owner, "{name}"), []
def strike(*arguments, **options):
    calls.append(1)
    if len(calls) == {nth}:
        os.kill(os.getpid(), signal.{signal})
    return inner(*arguments, **options)
setattr(owner, "{name}", strike)
from tokenmill_trainer.cli import main
main()
"""
"""`pretrain` that sends itself a signal just before the nth call of one of its functions."""


def strike(
    module: str, owner: str, name: str, nth: int, signal: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    code = STRUCK.format(module=module, owner=owner, name=name, nth=nth, signal=signal)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120
    )


AT_ONCE = ("--set", "checkpoint.asynchronous=false")
"""So that a save is complete before the next step; kills of one that is under way are a test of their own."""


@pytest.mark.parametrize(
    ("module", "owner", "name", "nth", "resumed_from"),
    [
        pytest.param("watching.step_log", "module.StepLog", "write", 12, 4, id="between two checkpoints"),
        pytest.param("checkpoints.writing", "module", "save_sharded", 1, None, id="before the first save"),
    ],
)
def test_a_killed_run_resumed_is_the_unbroken_run(
    finished: Path,
    tmp_path: Path,
    pretrain: Pretrain,
    mixture: Path,
    run_toml: Path,
    losses: Losses,
    module: str,
    owner: str,
    name: str,
    nth: int,
    resumed_from: int | None,
) -> None:
    out, log = tmp_path / "killed", tmp_path / "samples"
    arguments = ["run", "--config", run_toml, "--mixture", mixture, "--out", out, "--data-log", log, *AT_ONCE]
    killed = strike(module, owner, name, nth, "SIGKILL", *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "manifest.json").exists()
    done = pretrain("run", "--out", out, "--resume", "--data-log", log)
    expected = f"resumed from step-{resumed_from:08d}" if resumed_from else "no checkpoint yet"
    assert expected in done.stderr
    assert losses(out) == losses(finished)
    assert log.read_text() == (finished.parent / "samples.jsonl").read_text()
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["step-00000008", "step-00000012"]


def test_a_signal_saves_and_ends_with_its_own_code(
    finished: Path, tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path, losses: Losses
) -> None:
    out = tmp_path / "stopped"
    arguments = ["run", "--config", run_toml, "--mixture", mixture, "--out", out]
    stopped = strike("watching.step_log", "module.StepLog", "write", 5, "SIGTERM", *arguments)
    assert stopped.returncode == 75, stopped.stderr
    assert "stopped by SIGTERM after step 3: go on with --resume" in stopped.stderr
    assert len(losses(out)) == 3
    pretrain("run", "--out", out, "--resume")
    assert losses(out) == losses(finished)


def test_a_run_is_never_written_over(finished: Path, pretrain: Pretrain, mixture: Path, run_toml: Path) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    done = pretrain("run", "--config", run_toml, "--mixture", mixture, "--out", finished, check=False)
    assert done.returncode == 1
    assert "holds a run already; go on with it by --resume, or name another --out" in done.stderr
    assert "Traceback" not in done.stderr
    again = pretrain("run", "--out", finished, "--resume")
    more = "to go on, ask for more: --set training.steps=… --allow-change schedule"
    assert f"all 12 steps are done already; {more}" in again.stderr
    assert "no steps left of 8 × " in again.stderr
    assert (finished / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("override", "code", "message"),
    [
        ("training.stepz=3", 2, "unknown setting 'training.stepz'; did you mean 'steps'?"),
        ("training.micro_batch_size=3", 2, "set it to 9"),
        ("data.sequence_length=100000000", 1, "needs at least"),
        ("model.vocab_size=17", 2, "model.vocab_size: 17 rows cannot hold"),
    ],
)
def test_wrong_settings_end_with_a_message(
    tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path, override: str, code: int, message: str
) -> None:
    arguments = ["--config", run_toml, "--mixture", mixture, "--out", tmp_path / "run", "--set", override]
    done = pretrain("run", *arguments, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_resume_of_no_run_says_that_there_is_none(tmp_path: Path, pretrain: Pretrain) -> None:
    done = pretrain("run", "--out", tmp_path / "mistyped", "--resume", check=False)
    assert (done.returncode, "mistyped: no run to go on with; name the --out of" in done.stderr) == (1, True)
    assert not (tmp_path / "mistyped").exists()


def test_a_shard_that_lost_a_byte_is_refused(tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path) -> None:
    shutil.copytree(mixture.parent, tmp_path / "data")
    shard = next((tmp_path / "data" / "core").glob("*.bin"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = pretrain(
        "run",
        "--config",
        run_toml,
        "--mixture",
        tmp_path / "data" / mixture.name,
        "--out",
        tmp_path / "run",
        check=False,
    )
    assert done.returncode == 3
    assert shard.name in done.stderr


def test_a_longer_schedule_needs_to_be_meant(finished: Path, tmp_path: Path, pretrain: Pretrain) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    longer = ["run", "--out", out, "--resume", "--set", "training.steps=14"]
    done = pretrain(*longer, check=False)
    assert done.returncode == 2
    assert "--allow-change schedule" in done.stderr
    pretrain(*longer, "--allow-change", "schedule")
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 14


def test_a_broken_newest_checkpoint_is_named_and_an_older_one_taken(
    finished: Path, tmp_path: Path, pretrain: Pretrain, losses: Losses
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    shard = next((out / "checkpoints" / "step-00000012").glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[1000] ^= 0x10
    shard.write_bytes(content)
    listed = pretrain("checkpoints", out, "--verify", "--json", check=False)
    assert listed.returncode == 3
    assert [row["state"].split(":")[0] for row in json.loads(listed.stdout)] == ["broken", "verified"]
    done = pretrain("run", "--out", out, "--resume")
    assert "step-00000012 is broken and is passed over" in done.stderr
    assert "restore it, or go on from an earlier checkpoint" in done.stderr
    assert "resumed from step-00000008" in done.stderr
    assert losses(out) == losses(finished)


def test_a_trace_names_the_documents_of_a_step(finished: Path, pretrain: Pretrain) -> None:
    rows = json.loads(pretrain("trace", finished, "--step", "3", "--json").stdout)
    assert {row["sample"] for row in rows} == set(range(16, 24))
    assert {row["source"] for row in rows} <= {"trainer", "core"}
    assert all(row["row"] >= 1 for row in rows)
    done = pretrain("trace", finished, "--step", "99", check=False)
    assert done.returncode == 1
    assert "the run has steps 1 to 12" in done.stderr


def test_a_sample_needs_nothing_but_the_run(finished: Path, tmp_path: Path, pretrain: Pretrain) -> None:
    shutil.copytree(finished, tmp_path / "alone")
    texts = [
        pretrain("sample", tmp_path / "alone", "--prompt", "def ", "--tokens", "12", "--seed", seed).stdout
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("def ")


def test_the_export_continues_a_text_in_transformers(finished: Path, tmp_path: Path, pretrain: Pretrain) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tokenmill_core.manifest import ModelManifest
    from tokenmill_core.manifest_io import load_manifest, verify_files

    out = tmp_path / "model"
    pretrain("export", finished, "--out", out)
    loaded = load_manifest(str(out), ModelManifest)
    verify_files(loaded)
    assert loaded.manifest.max_logit_difference <= 1e-4
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    ids = tokenizer("from typing import", return_tensors="pt")
    text = tokenizer.decode(model.generate(**ids, max_new_tokens=8, do_sample=False)[0])
    for path in (finished, out):
        ours = pretrain("sample", path, "--prompt", "from typing import", "--tokens", 8, "--temperature", 0).stdout
        assert text == ours.removesuffix("\n")
    assert pretrain("export", finished, "--out", out).stdout  # once more changes nothing


def test_a_folder_that_holds_something_else_is_never_written_to(
    tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    for extra in ((), ("--resume",)):
        done = pretrain("run", "--config", run_toml, "--mixture", mixture, "--out", folder, *extra, check=False)
        assert done.returncode == 1
        assert "holds something that is no run" in done.stderr
        assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_data_log_never_takes_the_place_of_another_file(
    tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path
) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    arguments = ("run", "--config", run_toml, "--mixture", mixture, "--out", tmp_path / "run")
    done = pretrain(*arguments, "--data-log", tmp_path / "notes.txt", check=False)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "keep"
    assert not (tmp_path / "run").exists()


def test_fewer_steps_than_were_done_are_refused(finished: Path, tmp_path: Path, pretrain: Pretrain) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    fewer = ("--set", "training.steps=3", "--set", "schedule.warmup_steps=0", "--allow-change", "schedule")
    done = pretrain("run", "--out", run, "--resume", *fewer, check=False)
    assert done.returncode == 2
    assert "training.steps: 3 is less than" in done.stderr


def test_a_trace_does_not_guess_where_the_metrics_have_a_gap(
    finished: Path, tmp_path: Path, pretrain: Pretrain
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][3:]
    del rows[0]["first_sample"]  # as logs were before rollbacks
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = pretrain("trace", run, "--step", 4, "--mixture", json.loads(read_mixture_path(finished)), check=False)
    assert done.returncode == 1
    assert "step 4 or the one before is missing" in done.stderr


def read_mixture_path(run: Path) -> str:
    """The run's mixture as its config.toml has it, in quotes."""
    return (run / "config.toml").read_text().partition("mixture = ")[2].splitlines()[0]


def test_weights_that_are_no_numbers_are_never_saved(
    tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path
) -> None:
    wild = ("--set", "optimizer.lr=1e39", "--set", "checkpoint.interval=1", "--set", "schedule.warmup_steps=0")
    out = tmp_path / "run"
    done = pretrain("run", "--config", run_toml, "--mixture", mixture, "--out", out, *wild, check=False)
    assert done.returncode == 1
    assert "NaN or infinity" in done.stderr
    assert list((out / "checkpoints").glob("step-*")) == []


def test_one_process_trains_into_a_folder(finished: Path, pretrain: Pretrain) -> None:
    run = RunFolder(finished)
    run.hold()
    try:
        refused = pretrain("run", "--out", finished, "--resume", check=False)
    finally:
        run.release()
    assert (refused.returncode, "another process trains into this folder" in refused.stderr) == (1, True)
    assert "all 12 steps are done already" in pretrain("run", "--out", finished, "--resume").stderr
