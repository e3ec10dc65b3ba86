"""Opening tokenizers: our own datasets, and `tokenizer.json` files of other people."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from tokenmill_core.errors import InputError, TokenmillError, VerificationError
from tokenmill_tokenizer import open_tokenizer


def foreign(path: Path, tokens: list[str], special: list[str | AddedToken] = []) -> Path:  # noqa: B006 never changed
    """A `tokenizer.json` as other people's: a vocabulary of single tokens, without a manifest."""
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def test_a_dataset_is_opened_by_its_folder_manifest_or_file(trained: Any) -> None:
    for path in (trained.folder, trained.folder / "manifest.json", trained.path):
        opened = open_tokenizer(str(path))
        assert opened.digest == trained.manifest.digest
        assert opened.sha256 == trained.manifest.files[0].sha256
        assert (opened.vocab_size, opened.end_of_document, opened.end_of_document_id) == (320, "<|endoftext|>", 0)
        assert opened.inputs.manifests
        assert not opened.inputs.raw


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"])
def test_a_usual_end_token_of_a_foreign_file_is_found(tmp_path: Path, end: str) -> None:
    opened = open_tokenizer(str(foreign(tmp_path / "x.json", ["a", "b"], ["<pad>", end])))
    assert (opened.end_of_document, opened.end_of_document_id) == (end, 3)
    assert opened.vocab_size == 4
    assert opened.inputs.raw[0].files[0].sha256 == opened.sha256


def test_a_folder_without_a_manifest_may_hold_a_tokenizer_json(tmp_path: Path) -> None:
    path = foreign(tmp_path / "gpt" / "tokenizer.json", ["a"], ["<eos>"])
    assert open_tokenizer(str(path.parent)).digest == open_tokenizer(str(path)).digest


def test_without_a_usual_end_token_there_is_none(tmp_path: Path) -> None:
    opened = open_tokenizer(str(foreign(tmp_path / "x.json", ["a", "b"])))
    assert (opened.end_of_document, opened.end_of_document_id) == (None, None)


def test_a_named_end_token_is_taken_or_refused_by_name(trained: Any, tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", ["a", "b"], ["<|done|>", "<eos>"])
    assert open_tokenizer(str(path), "<|done|>").end_of_document_id == 2
    for opened in (path, trained.folder):
        with pytest.raises(InputError, match=r"no token '<\|stop\|>' to end a document with"):
            open_tokenizer(str(opened), "<|stop|>")


def test_the_vocabulary_ends_after_the_highest_id_gaps_or_not(tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", ["a", "b"], ["<eos>"])
    content = path.read_text().replace('"b": 1', '"b": 70000')
    assert '"b": 70000' in content
    path.write_text(content)
    assert open_tokenizer(str(path)).vocab_size == 70_001


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"model": 3}')
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"x\.json: not a tokenizer\.json in the Hugging Face format"):
        open_tokenizer(str(tmp_path / "x.json"))
    for missing in ("none.json", "empty"):
        with pytest.raises(InputError, match="no such file or folder"):
            open_tokenizer(str(tmp_path / missing))


def test_a_dataset_of_another_kind_or_a_changed_file_is_refused(train: Callable[..., Any], tmp_path: Path) -> None:
    result = train(["some text"], vocab_size=257)
    copy = tmp_path / "copy"
    shutil.copytree(result.folder, copy)
    content = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(content.replace(b'"dropout"', b'"Dropout"'))
    with pytest.raises(VerificationError, match=r"tokenizer\.json: sha256"):
        open_tokenizer(str(copy))
    (copy / "tokenizer.json").unlink()
    with pytest.raises(TokenmillError, match=r"tokenizer\.json: missing"):
        open_tokenizer(str(copy))


def test_an_ordinary_word_cannot_end_documents(tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", ["a", "b"], ["<pad>", "<stop>"])
    with pytest.raises(InputError, match=r"'a' is an ordinary word .* special tokens: '<pad>', '<stop>'"):
        open_tokenizer(str(path), "a")
    with pytest.raises(InputError, match=r"no token '<end>' .* special tokens: '<pad>', '<stop>'"):
        open_tokenizer(str(path), "<end>")
