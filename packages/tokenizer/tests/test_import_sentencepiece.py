"""A SentencePiece BPE model becomes a tokenizer that gives sentencepiece's own ids, or is refused."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.importing.sentencepiece import read_sentencepiece
from tokenmill_tokenizer.importing.stage import STAGE, ImportTokenizerConfig

AS_IT_IS = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}


def learn(texts: list[str], **settings: Any) -> bytes:
    model = io.BytesIO()
    defaults = {"model_type": "bpe", "vocab_size": 420, "minloglevel": 2, "hard_vocab_limit": False}
    lines = [line for text in texts for line in text.split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **(defaults | settings))
    return model.getvalue()


def both(model: bytes) -> tuple[Tokenizer, Any]:
    ours = Tokenizer.from_buffer(read_sentencepiece(model, "x.model").tokenizer_json)
    ours.encode_special_tokens = True
    return ours, sentencepiece.SentencePieceProcessor(model_proto=model)


KINDS = {
    "as llama": AS_IT_IS,
    "unknown characters": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "extra spaces": {"normalization_rule_name": "identity"},
    "no prefix": AS_IT_IS | {"add_dummy_prefix": False},
    "runs of spaces": AS_IT_IS | {"allow_whitespace_only_pieces": True, "split_by_whitespace": False},
    "user-defined": AS_IT_IS | {"user_defined_symbols": ["<x>", "<x", "▁▁", "▁▁▁▁", "\n"]},
    "user-defined without prefix": AS_IT_IS | {"user_defined_symbols": ["ab", "\t"], "add_dummy_prefix": False},
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, prose: list[str]) -> tuple[Tokenizer, Any]:
    return both(learn(prose, **KINDS[request.param]))


def test_ids_and_texts_are_those_of_sentencepiece(kind: tuple[Tokenizer, Any], prose: list[str]) -> None:
    ours, theirs = kind
    texts = [*prose, *nasty_texts(["</s>", "<unk>"]), "a <x><x", " <x>", "a    b  c   ", "<x>▁▁▁▁▁ ab\tab"]
    for text in texts:
        ids = ours.encode(text, add_special_tokens=False).ids
        if text not in ("\n", "  "):  # alone, a user-defined piece has no space in front
            assert ids == theirs.encode(text)
        if theirs.unk_id() not in ids:
            assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=2, max_size=40))
def test_ids_are_those_of_sentencepiece_for_any_text(text: str, llama: tuple[Tokenizer, Any]) -> None:
    ours, theirs = llama
    assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)


@pytest.fixture(scope="module")
def llama(prose: list[str]) -> tuple[Tokenizer, Any]:
    return both(learn(prose, **AS_IT_IS))


def test_runs_of_pieces_with_one_score_are_cut_as_sentencepiece_cuts_them(prose: list[str]) -> None:
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(learn(prose, **AS_IT_IS))
    for length in range(2, 17):
        model.pieces.add(piece="▁" * length, score=-1e9, type=1)
    ours, theirs = both(model.SerializeToString())
    for length in range(1, 100):
        text = f"x{' ' * length}fox\n{' ' * length}"
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)


def test_a_model_is_imported_as_a_dataset(prose: list[str], tmp_path: Path) -> None:
    path = tmp_path / "small.model.v3"
    path.write_bytes(learn(prose, **AS_IT_IS, pad_id=3))
    stage = STAGE.build(ImportTokenizerConfig(), [str(path)], None)
    manifest = build_stage(stage, str(tmp_path / "out"), LocalExecutor(1)).loaded.manifest
    assert isinstance(manifest, TokenizerManifest)
    assert manifest.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3}
    roles = (manifest.end_of_document, manifest.beginning_of_document, manifest.padding)
    assert roles == ("</s>", "<s>", "<pad>")
    assert manifest.vocab_size == len(json.loads((tmp_path / "out" / "tokenizer.json").read_bytes())["model"]["vocab"])
    assert list(manifest.notes) == [
        "no tokenizer.tiktoken: tiktoken cannot express this tokenizer: it normalises texts (Replace, Prepend)"
    ]
    assert not (tmp_path / "out" / "tokenizer.tiktoken").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "unigram"}, "a SentencePiece unigram model, and only BPE models can be imported; convert it"),
        ({"model_type": "char"}, "a SentencePiece character model"),
        ({"treat_whitespace_as_suffix": True}, "writes spaces in an unusual way"),
        (
            {"normalization_rule_name": "nfkc", "byte_fallback": True},
            r"tokenizers would give other ids than sentencepiece for '.*' \(from the .* convert it with transformers",
        ),
    ],
)
def test_what_tokenizers_cannot_do_is_refused(prose: list[str], settings: dict[str, Any], message: str) -> None:
    model = learn(prose, **settings)
    with pytest.raises(InputError, match=message):
        read_sentencepiece(model, "x.model")


def test_pieces_that_cannot_be_made_are_refused(prose: list[str]) -> None:
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(learn(prose, **AS_IT_IS))
    model.pieces.add(piece="漢字", score=-5000.0, type=1)
    with pytest.raises(InputError, match="piece '漢字' has characters without a piece of their own"):
        read_sentencepiece(model.SerializeToString(), "x.model")
    model.pieces[-1].type = 5
    with pytest.raises(InputError, match="1 pieces are marked as unused"):
        read_sentencepiece(model.SerializeToString(), "x.model")


def test_half_a_model_is_refused(prose: list[str]) -> None:
    with pytest.raises(InputError, match=r"x\.model: not a SentencePiece model .*; is the file whole\?"):
        read_sentencepiece(learn(prose, **AS_IT_IS)[:1001], "x.model")


def test_without_the_library_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ConfigError, match=r"pip install 'tokenmill-tokenizer\[sentencepiece\]'"):
        read_sentencepiece(b"\n\x0e", "x.model")
