"""`pretrain import` and `--init-from`: a model that transformers saved is where a run begins."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import ModelManifest, RunManifest
from tokenmill_core.manifest_io import load_input, load_manifest
from tokenmill_core.verify import find_problems
from tokenmill_shards.open_samples import open_samples
from tokenmill_trainer.hf.adopting import import_model

Pretrain = Callable[..., subprocess.CompletedProcess[str]]
SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, transformers: Any, mixture: Path) -> Path:
    """A Llama of random weights, saved by transformers with the tokenizer of `mixture`, in shards and in bf16."""
    folder = tmp_path_factory.mktemp("theirs") / "llama"
    size = Tokenizer.from_file(str(mixture.parent / "tokenizer" / "tokenizer.json")).get_vocab_size()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SHAPE, vocab_size=size + 5, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="60KB")
    shutil.copy(mixture.parent / "tokenizer" / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, pretrain: Pretrain, theirs: Path) -> Path:
    out = tmp_path_factory.mktemp("imported") / "llama"
    done = pretrain("import", theirs, "--out", out)
    assert "of transformers" in done.stdout
    return out


def first_loss(run: Path) -> float:
    return float(json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["loss"])


@pytest.fixture
def settings(run_toml: Path, tmp_path: Path) -> Path:
    """`run_toml` without a model of its own, two steps long."""
    text = run_toml.read_text()
    path = tmp_path / "run.toml"
    path.write_text(text[text.index("        [data]") :].replace("steps = 12", "steps = 2").replace("= 3\n", "= 0\n"))
    return path


def test_an_import_is_the_files_of_its_source_vouched_for(theirs: Path, model: Path) -> None:
    loaded = load_manifest(str(model), ModelManifest)
    assert loaded.manifest.architecture == "LlamaForCausalLM"
    assert loaded.manifest.config["dtype"] == "bfloat16"
    names = {path.name for path in theirs.iterdir()}
    assert {entry.path for entry in loaded.manifest.files} == names
    assert all((model / name).read_bytes() == (theirs / name).read_bytes() for name in names)
    assert find_problems(loaded) == []


def test_a_run_starts_from_the_weights_and_says_so_in_its_lineage(
    theirs: Path, model: Path, settings: Path, mixture: Path, pretrain: Pretrain, tmp_path: Path, transformers: Any
) -> None:
    out = tmp_path / "run"
    options = ("run", "--config", settings, "--mixture", mixture, "--init-from", model, "--out", out)
    pretrain(*options, "--data-log", tmp_path / "log", ranks=2)

    samples = json.loads((tmp_path / "log").read_text().splitlines()[0])["samples"]
    reader = open_samples(str(mixture), sequence_length=32)
    tokens = torch.from_numpy(reader.samples(torch.tensor(samples).numpy()).tokens)
    reference = transformers.AutoModelForCausalLM.from_pretrained(theirs, dtype=torch.float32)
    expected = torch.nn.functional.cross_entropy(
        reference(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten()
    )
    assert first_loss(out) == pytest.approx(expected.item(), abs=1e-4)

    run = load_manifest(str(out), RunManifest)
    digest = load_manifest(str(model)).manifest.digest
    assert [ref.digest for ref in run.manifest.inputs if ref.kind == "model"] == [digest]
    checkpoint = load_manifest(str(out / "checkpoints" / "step-00000002"))
    assert load_input(checkpoint, 1).manifest.digest == digest
    assert find_problems(checkpoint, inputs=True) == []

    shutil.move(model, model.with_name("moved"))  # a resumed run needs it no more, but knows it
    try:
        more = ("--set", "training.steps=4", "--allow-change", "schedule")
        pretrain("run", "--out", out, "--resume", *more)
    finally:
        shutil.move(model.with_name("moved"), model)
    assert load_input(load_manifest(str(out / "checkpoints" / "step-00000004")), 1).manifest.digest == digest


def test_an_export_is_where_another_run_begins(
    model: Path,
    settings: Path,
    mixture: Path,
    pretrain: Pretrain,
    tmp_path: Path,
    losses: Callable[[Path], list[float]],
) -> None:
    first, exported, second = (tmp_path / name for name in ("first", "exported", "second"))
    common = ("run", "--config", settings, "--mixture", mixture)
    pretrain(*common, "--init-from", model, "--out", first, "--set", "training.steps=1", "--set", "optimizer.lr=1e-9")
    pretrain("export", first, "--out", exported)
    pretrain(*common, "--init-from", exported, "--out", second)
    assert losses(second)[0] == pytest.approx(losses(first)[0], abs=1e-4)


def test_what_is_no_model_is_refused(settings: Path, mixture: Path, pretrain: Pretrain, tmp_path: Path) -> None:
    arguments = ("run", "--config", settings, "--mixture", mixture, "--init-from", mixture, "--out", tmp_path / "run")
    done = pretrain(*arguments, check=False)
    problem = f"{mixture}: a mixture, not a model; `pretrain export RUN --out DIR` makes one"
    assert (done.returncode, problem in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--set", "model.hidden_size=96"), "model.hidden_size is 96, not 48"),
        (("--set", "model.preset=gpt2"), "another model than the settings ask for"),
    ],
)
def test_another_model_is_refused(
    model: Path,
    settings: Path,
    mixture: Path,
    pretrain: Pretrain,
    tmp_path: Path,
    options: tuple[str, ...],
    problem: str,
) -> None:
    arguments = ("run", "--config", settings, "--mixture", mixture, "--init-from", model, "--out", tmp_path / "run")
    done = pretrain(*arguments, *options, check=False)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_is_refused(
    model: Path, settings: Path, mixture: Path, pretrain: Pretrain, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    (other / "manifest.json").unlink()
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    import_model(other, tmp_path / "again")
    arguments = ("run", "--config", settings, "--mixture", mixture, "--out", tmp_path / "run")
    done = pretrain(*arguments, "--init-from", tmp_path / "again", check=False)
    assert (done.returncode, "not the tokenizer that the data was made with" in done.stderr) == (3, True), done.stderr
    done = pretrain(*arguments, "--init-from", other, check=False)
    assert (done.returncode, "pretrain import" in done.stderr) == (1, True), done.stderr


def test_a_changed_weight_is_refused(
    model: Path, settings: Path, mixture: Path, pretrain: Pretrain, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "model")
    weights = next((tmp_path / "model").glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    arguments = ("run", "--config", settings, "--mixture", mixture, "--out", tmp_path / "run")
    done = pretrain(*arguments, "--init-from", tmp_path / "model", check=False)
    assert (done.returncode, weights.name in done.stderr) == (3, True), done.stderr


def test_pickles_are_not_imported(theirs: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(theirs / "config.json", source)
    torch.save({}, source / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        import_model(source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
