"""`pretrain eval` beside lm-evaluation-harness's own adapter, which reads the exported model through transformers."""

import dataclasses
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.errors import ConfigError, InputError

lm_eval = pytest.importorskip("lm_eval")

MIXTURE = Path(__file__).parents[2] / "manifests/sample/data/mixture.json"
WORDS = (
    "the",
    "mill",
    "grinds",
    "corn",
    "wheat",
    "stone",
    "water",
    "wheel",
    "def",
    "return",
    "class",
    "value",
    "token",
)
TASKS: dict[str, str] = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{context}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
""",
    "generate": """
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{choices[0]}}"
generation_kwargs: {until: [" the"], max_gen_toks: 12}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}
Pretrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pretrain: Pretrain, run_toml: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "evaluated"
    pretrain("run", "--config", run_toml, "--mixture", MIXTURE, "--out", out, "--set", "optimizer.lr=0.01")
    return out


@pytest.fixture(scope="module")
def model(run: Path, pretrain: Pretrain) -> Path:
    pretrain("export", run, "--out", run.parent / "model")
    return run.parent / "model"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks of 20 documents, from one word to more than the model reads at once."""
    folder, draw = tmp_path_factory.mktemp("tasks"), random.Random(0)
    documents = [
        {
            "context": " ".join(draw.choices(WORDS, k=draw.randint(1, 30))),
            "choices": [" ".join(draw.choices(WORDS, k=draw.randint(1, 3))) for _ in range(3)],
            "answer": draw.randint(0, 2),
        }
        for _ in range(20)
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents), "utf-8")
    data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder / 'docs.jsonl'}}}}}\ntest_split: test\n"
    for name, body in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: mill_{name}\n{data}{body}", "utf-8")
    return folder


def requests(tasks: Path) -> dict[str, list[Any]]:
    """What the three tasks ask of a model."""
    from lm_eval.api.instance import Instance

    documents = [json.loads(line) for line in (tasks / "docs.jsonl").read_text().splitlines()]
    pairs = [(one["context"], f" {choice}") for one in documents for choice in one["choices"]]
    asked = {
        "loglikelihood": [*pairs, ("", "the mill"), ("the stone ", "grinds")],
        "loglikelihood_rolling": [(one["context"],) for one in documents],
        "generate_until": [(one["context"], {"until": [" t", "\n"], "max_gen_toks": 12}) for one in documents],
    }
    return {kind: [Instance(kind, {}, arguments, 0) for arguments in each] for kind, each in asked.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exported", [False, True])
def test_every_answer_is_that_of_the_harness_own_adapter(run: Path, model: Path, tasks: Path, exported: bool) -> None:
    from lm_eval.models.huggingface import HFLM

    from tokenmill_trainer.evaluation.evaluated_model import load_evaluated
    from tokenmill_trainer.evaluation.harness import HarnessModel

    theirs = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=4)
    ours = HarnessModel(load_evaluated(model if exported else run, pytest.fail), batch_size=4)
    asked = requests(tasks)
    for mine, other in zip(*(one.loglikelihood(asked["loglikelihood"]) for one in (ours, theirs)), strict=True):
        assert mine[0] == pytest.approx(other[0], abs=1e-4)
        assert mine[1] == other[1]
    rolling = [one.loglikelihood_rolling(asked["loglikelihood_rolling"]) for one in (ours, theirs)]
    assert rolling[0] == pytest.approx(rolling[1], abs=1e-4)
    texts = ours.generate_until(asked["generate_until"])
    assert texts == theirs.generate_until(asked["generate_until"])
    assert len({text for text in texts if text}) > 1, "the model says too little for this to show anything"


def test_the_command_keeps_the_figures_and_what_they_are_of(
    run: Path, tasks: Path, pretrain: Pretrain, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "run.json"
    names = "mill_choice,mill_rolling,mill_generate"
    done = pretrain("eval", run, "--tasks", names, "--tasks-path", tasks, "--limit", "10", "--out", out, "--json")
    found = json.loads(out.read_text())
    assert json.loads(done.stdout) == found
    checkpoint = json.loads((run / "checkpoints/step-00000006/manifest.json").read_text())
    assert found["inputs"][0]["digest"] == checkpoint["digest"]
    assert (out.parent / found["inputs"][0]["path"]).resolve() == run / "checkpoints/step-00000006/manifest.json"
    assert set(found["results"]) == set(names.split(","))
    assert found["n-samples"]["mill_choice"] == {"original": 20, "effective": 10}
    assert 0 < found["results"]["mill_rolling"]["bits_per_byte,none"] < 8


def test_what_cannot_be_evaluated_is_refused_by_name(run: Path, tasks: Path, tmp_path: Path) -> None:
    from tokenmill_trainer.evaluation.evaluated_model import load_evaluated
    from tokenmill_trainer.evaluation.harness import HarnessModel
    from tokenmill_trainer.evaluation.tasks import run_tasks

    with pytest.raises(InputError, match="neither a run nor a model"):
        load_evaluated(tmp_path, pytest.fail)
    evaluated = load_evaluated(run, pytest.fail)
    with pytest.raises(ConfigError, match="no_such_task: no such task"):
        run_tasks(evaluated, ["mill_choice", "no_such_task"], tasks_path=tasks)
    with pytest.raises(ConfigError, match="generates 12 tokens, but the model reads 8"):
        HarnessModel(dataclasses.replace(evaluated, window=8), 1).generate_until(requests(tasks)["generate_until"])


@pytest.fixture(scope="module")
def settings_with_tasks(run_toml: Path, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("with_tasks") / "run.toml"
    names = '["mill_choice", "mill_rolling", "mill_generate"]'
    harness = f'[harness]\ninterval = 4\ntasks = {names}\ntasks_path = "{tasks}"\nlimit = 5\n'
    path.write_text(f"{run_toml.read_text()}\n{harness}", "utf-8")
    return path


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("ranks", "stage"), [(1, 0), (2, 3)])
def test_in_the_loop_it_finds_what_the_command_finds_and_training_does_not_notice(
    run: Path, tasks: Path, settings_with_tasks: Path, pretrain: Pretrain, tmp_path: Path, ranks: int, stage: int
) -> None:
    out, config = tmp_path / "with", ("--config", settings_with_tasks, "--mixture", MIXTURE)
    settings = "optimizer.lr=0.01", f"training.zero_stage={stage}", f"training.micro_batch_size={4 // ranks}"
    sets = [part for setting in settings for part in ("--set", setting)]
    done = pretrain("run", *config, "--out", out, *sets, ranks=ranks)
    found = {row["step"]: row["harness"] for row in rows(out) if "harness" in row}
    assert sorted(found) == [4, 6], "every fourth step, and the last"
    assert "mill_choice/acc" in done.stdout + done.stderr

    names = "mill_choice,mill_rolling,mill_generate"
    asked = pretrain("eval", out, "--tasks", names, "--tasks-path", tasks, "--limit", "5", "--json")
    after = json.loads(asked.stdout)["results"]
    assert found[6]["mill_choice/acc"] == after["mill_choice"]["acc,none"]
    assert found[6]["mill_generate/exact_match"] == after["mill_generate"]["exact_match,none"]
    assert found[6]["mill_rolling/bits_per_byte"] == pytest.approx(
        after["mill_rolling"]["bits_per_byte,none"], rel=1e-5
    )
    assert found[4]["mill_rolling/bits_per_byte"] != found[6]["mill_rolling/bits_per_byte"]
    if ranks == 1:
        assert [row["loss"] for row in rows(out)] == [row["loss"] for row in rows(run)]


def test_tasks_that_cannot_be_had_are_refused_before_the_first_step(
    run_toml: Path, tasks: Path, pretrain: Pretrain, tmp_path: Path
) -> None:
    data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/none.jsonl}}}}\ntest_split: test\n"
    (tmp_path / "broken.yaml").write_text(f"task: mill_broken\n{data}{TASKS['choice']}", "utf-8")
    for settings, named in (
        ('tasks = ["no_such_task"]', "harness.tasks: no_such_task: no such task"),
        (f'tasks = ["mill_broken"]\ntasks_path = "{tmp_path}"', "harness.tasks: mill_broken cannot be loaded"),
        ("", "but there is no task"),
    ):
        path, out = tmp_path / "run.toml", tmp_path / "run"
        path.write_text(f"{run_toml.read_text()}\n[harness]\ninterval = 2\n{settings}\n", "utf-8")
        done = pretrain("run", "--config", path, "--mixture", MIXTURE, "--out", out, check=False)
        assert done.returncode == 2, done.stderr
        assert named in done.stderr.replace("\n", " ")
        assert "Traceback" not in done.stderr
        assert not (out / "metrics.jsonl").exists() or not rows(out)
