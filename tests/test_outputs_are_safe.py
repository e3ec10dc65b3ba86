"""No command writes over what another one made, or over what it reads."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_corpus.clean import STAGE as CLEAN
from tokenmill_corpus.clean import CleanConfig


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def made(prep: Any, write_lines: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(
        "raw.jsonl", [{"id": i, "text": f"document number {i} of a very small corpus of words"} for i in range(8)]
    )
    for arguments in (
        ("clean", "raw.jsonl", "--out", "clean"),
        ("tokenize", "clean", "--tokenizer", str(tokenizer), "--out", "tokens"),
        ("mix", "a=tokens", "--out", "mixture.json"),
    ):
        assert prep(*arguments).code == 0
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "victim", "message"),
    [
        (("clean", "raw.jsonl", "--out", "tokens"), "tokens", "holds what 'tokenize' wrote"),
        (
            ("train-tokenizer", "raw.jsonl", "--vocab-size", "300", "--out", "clean"),
            "clean",
            "holds what 'clean' wrote",
        ),
        (("mix", "a=tokens", "--out", "tokens/manifest.json"), "tokens", "input of the build"),
        (("mix", "a=tokens", "--out", "clean/manifest.json"), "clean", "holds what 'clean' wrote"),
        (("mix", "a=tokens", "--out", "tokens"), "tokens", "input of the build"),
        (("tokenize", "clean", "--tokenizer", "{tokenizer}", "--out", "clean"), "clean", "input of the build"),
    ],
)
def test_what_another_command_made_is_refused_and_left_alone(
    made: Path, prep: Any, tokenizer: Any, arguments: tuple[str, ...], victim: str, message: str
) -> None:
    before = contents(made / victim)
    outcome = prep(*(argument.format(tokenizer=tokenizer) for argument in arguments))
    assert outcome.code == 1
    assert message in outcome.err
    assert contents(made / victim) == before


def test_the_same_command_may_write_anew(made: Path, prep: Any) -> None:
    assert prep("clean", "raw.jsonl", "--out", "clean", "--min-words", "3").code == 0
    assert prep("mix", "a=tokens", "--seed", "3", "--out", "mixture.json").code == 0


def test_a_folder_that_mixes_data_with_loose_text_is_pointed_out(
    made: Path, prep: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (made / "folder").mkdir()
    (made / "raw.jsonl").rename(made / "folder" / "raw.jsonl")
    (made / "folder" / "README.md").write_text("What this folder holds, in more than ten words of text for a reader.\n")
    assert prep("clean", "folder", "--out", "both").code == 0
    assert "1 jsonl, 1 text" in caplog.text
    caplog.clear()
    alone = prep("clean", "folder", "--format", "jsonl", "--out", "alone")
    assert alone.code == 0
    assert "several formats" not in caplog.text


def test_a_file_that_was_changed_and_put_back_is_read_again(
    made: Path, prep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read in between is of no use, though the content is again what the build is of."""
    raw, text = made / "other.jsonl", '{"text": "the first content of this file, in more than ten words of text"}\n'
    raw.write_text(text)
    with monkeypatch.context() as during:

        def write_and_check(stage: Any) -> None:
            raw.write_text(text.replace("first", "second"))

        during.setattr("tokenmill_core.build.check_input_files", write_and_check)
        assert "changed while it was being read" in prep("clean", raw, "--out", "out").err
    raw.write_text(text)
    assert prep("clean", raw, "--out", "out").code == 0
    assert "the first content" in pq.read_table(made / "out" / "part-00000.parquet")["text"][0].as_py()


def test_a_dataset_that_changes_while_it_is_read_is_not_published(
    made: Path, prep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = made / "clean" / "part-00000.parquet"

    def rewrite(stage: Any) -> None:
        part.write_bytes(part.read_bytes())

    monkeypatch.setattr("tokenmill_core.build.check_input_files", rewrite)
    found = prep("clean", "clean", "--out", "again")
    assert found.code == 1
    assert "part-00000.parquet changed while it was being read" in found.err
    assert not (made / "again" / "manifest.json").exists()


def test_a_raw_file_that_changes_while_it_is_read_is_not_published(
    made: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = CLEAN.build(CleanConfig(), ["raw.jsonl"], None)
    with (made / "raw.jsonl").open("a") as file:
        file.write('{"id": 9, "text": "one more line that nobody has hashed before it was read"}\n')
    with pytest.raises(InputError, match=r"raw\.jsonl changed while it was being read"):
        build_stage(stage, "late", LocalExecutor(1))
    assert not (made / "late" / "manifest.json").exists()


def test_a_raw_file_in_the_output_folder_is_refused(made: Path, prep: Any) -> None:
    before = contents(made / "clean")
    outcome = prep("clean", "clean/part-00000.parquet", "--out", "clean", "--force")
    assert outcome.code == 1
    assert "a file that is read lies in it" in outcome.err
    assert contents(made / "clean") == before
