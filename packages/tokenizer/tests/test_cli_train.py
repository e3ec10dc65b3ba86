"""`prep train-tokenizer` as a command: its options reach the stage, and what it refuses it refuses by name."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenmill_core.errors import ConfigError, TokenmillError
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_core.manifest_io import load_manifest
from tokenmill_tokenizer.cli import train_tokenizer


@pytest.fixture
def raw(tmp_path: Path, prose: list[str]) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text("\n".join(prose))
    return path


def test_options_become_settings(raw: Path, tmp_path: Path) -> None:
    arguments = [str(raw), "--vocab-size", "290", "--split", "gpt2", "--special", "<|pad|>", "--special", "<|user|>"]
    out = tmp_path / "tokenizer"
    result = CliRunner().invoke(train_tokenizer, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.startswith("tokenizer prose (")
    assert (
        "vocabulary 290, padded to 384 for a model; 3 special tokens: end <|endoftext|>, beginning none"
        in result.output
    )
    assert re.search(r"  prose: 1 documents, [0-9,]+ bytes, [0-9,]+ tokens, [0-9.]+ bytes a token", result.output)
    manifest = load_manifest(str(out), TokenizerManifest).manifest
    assert (manifest.vocab_size, manifest.config["split"]) == (290, "gpt2")
    assert manifest.special_tokens == {"<|endoftext|>": 0, "<|pad|>": 1, "<|user|>": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vocab-size", "257", "--special", "<|pad|>"], r"vocab_size: 257 is less .*; ask for at least 258"),
        ([], r"vocab_size: this setting is required"),
        (["--vocab-size", "300", "--special", "PAD"], r"special token 'PAD' is one piece"),
        (["--vocab-size", "300", "--set", "min_frequncy=3"], r"did you mean 'min_frequency'"),
    ],
)
def test_settings_that_cannot_be_are_refused(raw: Path, tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(
            train_tokenizer, [str(raw), "--out", str(tmp_path / "out"), *options], catch_exceptions=False
        )
    assert not (tmp_path / "out").exists()


def test_a_split_that_is_none_is_wrong_usage(raw: Path, tmp_path: Path) -> None:
    arguments = [str(raw), "--vocab-size", "300", "--split", "gpt5", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(train_tokenizer, arguments)
    assert result.exit_code == 2
    assert "'gpt2', 'cl100k'" in result.output


def test_a_tokens_dataset_is_no_input(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokenizer"
    assert CliRunner().invoke(train_tokenizer, [str(raw), "--vocab-size", "260", "--out", str(out)]).exit_code == 0
    arguments = [str(out), "--vocab-size", "260", "--out", str(tmp_path / "again")]
    with pytest.raises(TokenmillError, match="this is a tokenizer manifest, but a documents manifest is needed"):
        CliRunner().invoke(train_tokenizer, arguments, catch_exceptions=False)
