"""One run in four trackers, stopped and gone on with: what each of them has of it, read back by its own library."""

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

KINDS = ("tensorboard", "wandb", "mlflow", "trackio")
for kind in KINDS:
    pytest.importorskip(kind)

MIXTURE = Path(__file__).parents[2] / "manifests/sample/data/mixture.json"
WATCHED = (
    "--set",
    f"trackers.kinds={json.dumps(KINDS)}",
    "--set",
    "samples.interval=3",
    "--set",
    "samples.num_tokens=8",
)
PROMPTS = ("--set", 'samples.prompts=["The mill"]')
ALL_STEPS = list(range(1, 9))
Pretrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pretrain: Pretrain, run_toml: Path) -> Path:
    """Six steps, of which the last two are lost and done again, and two more."""
    out = tmp_path_factory.mktemp("runs") / "watched"
    pretrain("run", "--config", run_toml, "--mixture", MIXTURE, "--out", out, *WATCHED, *PROMPTS)
    shutil.rmtree(out / "checkpoints/step-00000006")
    done = pretrain("run", "--out", out, "--resume", "--set", "training.steps=8", "--allow-change", "schedule")
    assert "resumed from step-00000004" in done.stderr
    return out


@pytest.fixture(scope="module")
def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def digest(run: Path) -> str:
    return str(json.loads((run / "manifest.json").read_text())["digest"])


def read_with(code: str, places: dict[str, str]) -> Any:
    """What a program that knows only the tracker's library finds; in a process of its own, for its settings."""
    environment = {**os.environ, **places}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


BLOCK, HEAD = 32768, 7


def wandb_records(path: Path) -> Iterator[Any]:
    """Every record of a file that Weights & Biases wrote offline: LevelDB's log format, with a head of its own."""
    from wandb.proto import wandb_internal_pb2 as pb

    content, place, parts = path.read_bytes(), HEAD, b""
    while place + HEAD <= len(content):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if kind in (1, 4):  # whole, or the last part
            record = pb.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def wandb_history(path: Path) -> list[dict[str, Any]]:
    """The rows that were logged."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def wandb_summary(path: Path) -> dict[str, Any]:
    """What stands in the run's summary at its end."""
    found: dict[str, Any] = {}
    for record in wandb_records(path):
        for item in record.summary.update if record.WhichOneof("record_type") == "summary" else []:
            found[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return found


def test_tensorboard_has_each_step_once(run: Path, losses: list[float], digest: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == ALL_STEPS
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses)
    assert {"lr", "grad_norm", "consumed_tokens"} <= set(events.Tags()["scalars"])
    texts = {
        name: [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }
    assert [step for step, _ in texts["samples/text_summary"]] == [3, 6, 8]
    assert "    The mill" in texts["samples/text_summary"][0][1]
    assert texts["digest/text_summary"][-1] == (8, digest)
    assert '"hidden_size": 48' in texts["settings/text_summary"][0][1]


def test_weights_and_biases_has_each_step_once(run: Path, losses: list[float], digest: str) -> None:
    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    rows = [row for file in files for row in wandb_history(file)]
    assert {row["_step"]: row["loss"] for row in rows if "loss" in row} == pytest.approx(
        dict(zip(ALL_STEPS, losses, strict=True))
    )
    assert [row["_step"] for row in rows if "loss" in row] == ALL_STEPS
    assert [row["_step"] for row in rows if "samples/path" in row] == [3, 6, 8]
    assert wandb_summary(files[-1])["digest"] == digest
    starts = [
        record.run for file in files for record in wandb_records(file) if record.WhichOneof("record_type") == "run"
    ]
    assert len({start.run_id for start in starts}) == 1
    assert {(start.project, start.display_name) for start in starts} == {("tokenmill", "watched")}
    assert "hidden_size" in str(starts[0].config)


def test_mlflow_has_each_step_once(run: Path, losses: list[float], digest: str, places: dict[str, str]) -> None:
    code = f"""
import json
from mlflow import MlflowClient
client, number = MlflowClient(), json.load(open({str(run / "trackers/mlflow.json")!r}))["id"]
run = client.get_run(number)
print(json.dumps({{
    "loss": [(metric.step, metric.value) for metric in client.get_metric_history(number, "loss")],
    "metrics": list(run.data.metrics), "params": run.data.params, "tags": run.data.tags, "status": run.info.status,
    "samples": [file.path for file in client.list_artifacts(number, "samples")],
}}))
"""
    found = read_with(code, places)
    assert found["loss"] == [[step, pytest.approx(loss)] for step, loss in zip(ALL_STEPS, losses, strict=True)]
    assert {"lr", "grad_norm", "consumed_tokens"} <= set(found["metrics"])
    assert found["params"]["model.hidden_size"] == "48"
    assert (found["tags"]["digest"], found["status"]) == (digest, "FINISHED")
    assert found["samples"] == [f"samples/step-{step:08d}.md" for step in (3, 6, 8)]


def test_trackio_has_each_step_once(run: Path, losses: list[float], digest: str, places: dict[str, str]) -> None:
    code = """
import json
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps(SQLiteStorage.get_logs("tokenmill", "watched"), default=str))
"""
    rows = read_with(code, places)
    assert [(row["step"], row["loss"]) for row in rows if row.get("loss") is not None] == [
        (step, pytest.approx(loss)) for step, loss in zip(ALL_STEPS, losses, strict=True)
    ]
    assert [row["step"] for row in rows if row.get("samples")] == [3, 6, 8]
    assert [row["digest"] for row in rows if row.get("digest")][-1] == digest


ON = ("--resume", "--set", "training.steps=11", "--allow-change", "schedule", "--set", 'trackers.kinds=["mlflow"]')

NO_SERVER = "nowhere://at.all"


def go_on(run: Path, out: Path, pretrain: Pretrain, uri: str) -> str:
    """What a copy of the run says that goes on for three steps, with MLflow at `uri` alone."""
    shutil.copytree(run, out)
    done = pretrain("run", "--out", out, "--mixture", MIXTURE, *ON, MLFLOW_TRACKING_URI=uri)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 11
    return done.stderr


def test_a_tracker_that_is_gone_while_a_run_goes_on_stops_nothing(
    run: Path, pretrain: Pretrain, tmp_path: Path, places: dict[str, str]
) -> None:
    """Its database takes no metrics any more: every row of them fails, as with a server that is gone."""
    database = tmp_path / "mlflow.db"
    shutil.copyfile(places["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), database)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TRIGGER gone BEFORE INSERT ON metrics BEGIN SELECT RAISE(ABORT, 'server gone'); END")
    said = go_on(run, tmp_path / "run", pretrain, f"sqlite:///{database}")
    assert said.count("training goes on, and so do attempts") == 1
    assert "server gone" in said
    assert "mlflow: has not got all of this run; 3 rows are missing there" in said


def test_a_tracker_that_worked_before_is_done_without_when_a_run_goes_on(
    run: Path, pretrain: Pretrain, tmp_path: Path
) -> None:
    said = go_on(run, tmp_path / "run", pretrain, NO_SERVER)
    assert "mlflow: could not be started again" in said


def test_a_tracker_that_never_worked_refuses_the_start(pretrain: Pretrain, run_toml: Path, tmp_path: Path) -> None:
    arguments = ("--config", run_toml, "--mixture", MIXTURE, "--out", tmp_path / "run")
    refused = pretrain("run", *arguments, *ON[-2:], check=False, MLFLOW_TRACKING_URI=NO_SERVER)
    assert refused.returncode == 2
    assert "mlflow could not be started" in refused.stderr
    assert "Traceback" not in refused.stderr
