"""Arguments, files and names that nobody should give: each is refused by name, and nothing is left behind."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.manifest import RunManifest
from tokenmill_core.manifest_io import load_manifest
from tokenmill_trainer.cli.root import pretrain as command
from tokenmill_trainer.config import RunConfig, TrainingConfig
from tokenmill_trainer.evaluation.prompts import SamplesConfig, read_prompts
from tokenmill_trainer.hf.adopting import import_model
from tokenmill_trainer.loop import train
from tokenmill_trainer.report_page.page import make_page
from tokenmill_trainer.report_page.run_record import read_run
from tokenmill_trainer.watching.step_log import StepLog, read_steps

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def tiny(mixture: Path, **sections: dict[str, Any]) -> RunConfig:
    values = {
        "model": {"hidden_size": 16, "intermediate_size": 32, "num_layers": 1, "num_heads": 2},
        "data": {"sequence_length": 32, "mixture": str(mixture)},
        "schedule": {"warmup_steps": 0},
        "training": {"steps": 2, "global_batch_size": 2, "micro_batch_size": 2},
        **sections,
    }
    return RunConfig.model_validate(values)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, mixture: Path) -> Path:
    """A run whose name is neither a formula nor UTF-8."""
    out = tmp_path_factory.mktemp("runs") / os.fsdecode(b"a$\\foo$\xff")
    train(tiny(mixture), out)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_run_ends_whatever_its_folder_is_called(finished: Path) -> None:
    assert load_manifest(str(finished), RunManifest).manifest.name == "a$\\foo$\\udcff"
    assert (finished / "loss.png").stat().st_size > 1000


def test_a_picture_that_cannot_be_drawn_stops_nothing(run: Path, mixture: Path) -> None:
    (run / "loss.png").unlink()
    (run / "metrics.jsonl").write_text(
        '{"step": 1, "consumed_tokens": "many", "loss": "low"}\n{"step": 2, "loss": 1}\n'
    )
    (run / "manifest.json").unlink()
    train(tiny(mixture), run, resume=True)
    assert "loss.png" not in {entry.path for entry in load_manifest(str(run), RunManifest).manifest.files}


def test_a_run_goes_on_from_no_other_model_than_its_own(run: Path, mixture: Path, tmp_path: Path) -> None:
    before = (run / "config.toml").read_bytes()
    other = tiny(mixture).model_copy(update={"init_from": str(tmp_path / "other")})
    with pytest.raises(ConfigError, match="started from random ones; leave --init-from out"):
        train(other, run, resume=True)
    assert (run / "config.toml").read_bytes() == before


def test_a_line_that_cannot_be_read_costs_no_other(run: Path) -> None:
    path = run / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n\0\0\n{second}\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: not JSON"):
        StepLog(path, last_step=2)
    assert path.read_text() == f"{first}\n\0\0\n{second}\n"
    record = read_run(run, "run")
    assert record.course.step == 2
    assert [problem.partition(", ")[2][:6] for problem in record.problems] == ["line 2"]
    path.write_text(f"{first}\n" + "x\n" * 9 + f"{second}\n")
    problems = read_run(run, "run").problems
    assert (len(problems), problems[-1].endswith("4 more lines cannot be read")) == (6, True)
    path.write_text(f"{first}\n{second}\n{{\n")
    assert len(read_steps(path)) == 2


@pytest.mark.parametrize("what", ["prompts", "empty prompts", "data log", "data log in a file"])
def test_a_start_that_is_refused_leaves_the_folder_free(mixture: Path, tmp_path: Path, what: str) -> None:
    (tmp_path / "file").touch()
    files = {"prompts": tmp_path / "missing.txt", "empty prompts": tmp_path / "file"}
    logs = {"data log": tmp_path, "data log in a file": tmp_path / "file" / "log"}
    samples = {"interval": 1, "prompts": ["x"] if what in logs else [], "prompts_file": None}
    config = tiny(mixture, samples=samples | ({"prompts_file": str(files[what])} if what in files else {}))
    with pytest.raises(TokenmillError, match=str(files.get(what) or logs[what])):
        train(config, tmp_path / "run", data_log=logs.get(what), resume=what == "data log")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--config", "--mixture", "--init-from", "--deepspeed", "--data-log", "--out"])
def test_empty_paths_are_wrong_usage(option: str) -> None:
    done = CliRunner().invoke(command, ["run", "--out", "x", option, ""])
    assert (done.exit_code, option in done.output, "it is empty" in done.output) == (2, True, True)
    done = CliRunner().invoke(command, ["report", "x", "--out", ""])
    assert (done.exit_code, "it is empty" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("sample", "RUN", "--prompt", os.fsdecode(b"\xff")), "--prompt .*not UTF-8"),
        (("trace", "RUN", "--document", os.fsdecode(b"trainer:\xff:1")), "--document .*not UTF-8"),
        (("report", "RUN", "RUN"), "named twice"),
        (("report", "RUN", "--out", "RUN"), "this is a folder"),
    ],
)
def test_arguments_that_mean_nothing(run: Path, arguments: tuple[str, ...], problem: str) -> None:
    done = CliRunner().invoke(command, [str(run) if each == "RUN" else each for each in arguments])
    assert isinstance(done.exception, ConfigError)
    with pytest.raises(ConfigError, match=problem):
        raise done.exception


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("model = 3", "model is 3, not a section"),
        (f"[model]\nvocab_size = {10**20}", "vocab_size: Input should be less than"),
        ("[model]\nvocab_size = 64\nnum_layers = 1000000", "num_layers: Input should be less than"),
        ("[training]\nsteps = 1979-05-27\nprecision = 07:32:00", ""),
    ],
)
def test_settings_of_another_version_are_reported(run: Path, settings: str, problem: str) -> None:
    (run / "config.toml").write_text(settings)
    assert "1979-05-27" in make_page([read_run(run, "run")]) or problem in " ".join(read_run(run, "run").problems)
    assert CliRunner().invoke(command, ["report", str(run), "--json"]).exit_code == 0


@pytest.mark.parametrize("values", [{"steps": 10**19}, {"zero_stage": True}, {"global_batch_size": 10**30}])
def test_settings_of_absurd_size_or_kind(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        validate_config(TrainingConfig, values, "settings")


def test_only_a_line_feed_ends_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_bytes("a\u2028b\fc\x85d\re\r\nf\n".encode())
    config = SamplesConfig(interval=1, prompts_file=str(tmp_path / "prompts.txt"))
    assert read_prompts(config) == ["a\u2028b\fc\x85d\re", "f"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, transformers: Any, mixture: Path) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "llama"
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, vocab_size=64)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"vocab_size": None}, "vocab_size is None"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"rope_parameters": "x"}, "rope_parameters is 'x'"),
        ({"rope_parameters": [1]}, "rope_parameters is"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": "x", "original_max_position_embeddings": 4}}, "factor"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, but the weights are those of 2 layers"),
        ({"model_type": ["llama"]}, "model_type"),
        ([], "no JSON object"),
        ("nested", "cannot be read"),
    ],
)
def test_a_broken_config_json_is_named(saved: Path, tmp_path: Path, change: Any, problem: str) -> None:
    source = Path(shutil.copytree(saved, tmp_path / "source"))
    file = source / "config.json"
    text = json.dumps({**json.loads(file.read_text()), **change} if isinstance(change, dict) else change)
    file.write_text("[" * 100_000 if change == "nested" else text)
    refused(source, tmp_path / "out", problem)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", b"{", "is no tokenizer"),
        ("tokenizer.json", None, "but config.json says vocab_size 64"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "no token"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 5}}', "5 is no safetensors file"),
        ("model.safetensors.index.json", b'{"a": 5}', "lists no files of weights"),
    ],
)
def test_a_broken_file_beside_the_weights_is_named(
    saved: Path, tmp_path: Path, mixture: Path, name: str, content: bytes | None, problem: str
) -> None:
    source = Path(shutil.copytree(saved, tmp_path / "source"))
    whole: Callable[[], bytes] = (mixture.parent / "tokenizer" / "tokenizer.json").read_bytes
    (source / name).write_bytes(whole() if content is None else content)
    refused(source, tmp_path / "out", problem)


def refused(source: Path, out: Path, problem: str) -> None:
    with pytest.raises((InputError, ConfigError)) as caught:
        import_model(source, out)
    assert str(source) in str(caught.value)
    assert problem in str(caught.value)
    assert ".out.tmp" not in str(caught.value)
    assert list(out.parent.iterdir()) == [source]
