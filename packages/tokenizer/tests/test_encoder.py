"""Encoding: exact round trips of any text, and special tokens only where a stage puts them."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tokenmill_tokenizer import Encoder

HARD_TEXTS = [
    "".join(map(chr, range(256))),
    "👨‍👩‍👧‍👦 👍🏽 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "مَرْحَبًا שלום \u200fmixed\u202e",
    "line\r\nline\rline\n\n\n\ttab   runs   of spaces  ",
    "repaired \ufffd character",
    "hello !   indented ':'search é e\u0301 ＡＢＣ \ufe30 \u0085 end\n",
    "བོད་ཡིག 𠀀 한국어 日本語",
    "#version 330\n\n\n",
    " ",
    "\n",
    "",
]


def test_hard_texts_come_back_exactly(trained: Any) -> None:
    encoder = Encoder(str(trained.path))
    ids, lengths = encoder.encode(HARD_TEXTS)
    ends = np.cumsum(lengths).tolist()
    parts = [ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]
    assert [encoder.decode(part) for part in parts] == HARD_TEXTS
    assert ids.max() < trained.manifest.vocab_size


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(), max_size=5))
def test_any_text_comes_back_exactly(trained: Any, texts: list[str]) -> None:
    encoder = Encoder(str(trained.path))
    ids, lengths = encoder.encode(texts)
    assert lengths.sum() == ids.size
    assert encoder.decode(ids.tolist()) == "".join(texts)


def test_a_byte_is_an_id_whatever_surrounds_it(trained: Any) -> None:
    """Text outside what was trained on falls back to bytes, never to an unknown token."""
    encoder = Encoder(str(trained.path))
    ids, _ = encoder.encode(["\U0010fffd"])
    assert len(ids) == 4
    assert Tokenizer.from_file(str(trained.path)).model.unk_token is None


@pytest.mark.parametrize(
    "text",
    [
        "use <|endoftext|> here <s>old</s>",
        "<|endoftext|>",
        "<|endoftext|><|endoftext|>",
        "a<|pad|>b",
        "<|endoftext|> \n",
    ],
)
def test_special_tokens_in_a_text_are_ordinary_text(train: Callable[..., Any], prose: list[str], text: str) -> None:
    corpus = [*prose, *(["spam <|endoftext|> spam <|pad|>"] * 50)]
    for split in ("gpt2", "cl100k"):
        encoder = Encoder(str(train(corpus, special_tokens=("<|pad|>",), split=split).path))
        ids, lengths = encoder.encode([text], 0)
        assert ids[-1] == 0
        assert lengths.tolist() == [len(ids)]
        assert not set(ids[:-1].tolist()) & {0, 1}
        assert encoder.decode(ids[:-1].tolist()) == text


def test_each_text_is_closed_once(trained: Any) -> None:
    texts = ["one", "", "<|endoftext|>", "two words", "use <|endoftext|> here"]
    encoder = Encoder(str(trained.path))
    open_ids, open_lengths = encoder.encode(texts)
    ids, lengths = encoder.encode(texts, 0)
    assert (ids == 0).sum() == len(texts)
    assert not (open_ids == 0).any()
    assert (lengths == open_lengths + 1).all()
    assert (ids[np.cumsum(lengths) - 1] == 0).all()
    assert ids[ids != 0].tolist() == open_ids.tolist()


def test_no_texts(trained: Any) -> None:
    ids, lengths = Encoder(str(trained.path)).encode([], 0)
    assert (ids.tolist(), lengths.tolist()) == ([], [])


def test_the_libraries_that_read_the_format_give_the_same_ids(trained: Any, prose: list[str]) -> None:
    texts = [*prose, *HARD_TEXTS]
    encoder = Encoder(str(trained.path))
    plain = Tokenizer.from_file(str(trained.path))
    hub: Any = PreTrainedTokenizerFast(tokenizer_file=str(trained.path))  # type: ignore[no-untyped-call]
    for text in texts:
        ids = encoder.encode([text])[0].tolist()
        assert plain.encode(text, add_special_tokens=False).ids == ids
        assert hub.encode(text, add_special_tokens=False) == ids
        assert hub.decode(ids, clean_up_tokenization_spaces=False) == text
    assert hub.convert_tokens_to_ids("<|endoftext|>") == 0
    assert len(hub) == trained.manifest.vocab_size


def test_a_new_process_gives_the_same_ids(trained: Any) -> None:
    code = (
        "import sys, json; from tokenmill_tokenizer import Encoder\n"
        "print(json.dumps(Encoder(sys.argv[1]).encode(json.loads(sys.stdin.read()))[0].tolist()))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(trained.path)],
        input=orjson.dumps(HARD_TEXTS),
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "3"},
    )
    assert orjson.loads(found.stdout) == Encoder(str(trained.path)).encode(HARD_TEXTS)[0].tolist()


def test_truncation_padding_and_added_ids_of_a_foreign_file_are_left_out(trained: Any, tmp_path: Any) -> None:
    """A tokenizer.json may carry settings for inference; data must hold the text and nothing else."""
    foreign = Tokenizer.from_file(str(trained.path))
    foreign.enable_truncation(4)
    foreign.enable_padding(length=64, pad_id=0)
    path = tmp_path / "foreign.json"
    foreign.save(str(path))
    text = "The quick brown fox sees 2 dogs"
    assert Encoder(str(path)).encode([text])[0].tolist() == Encoder(str(trained.path)).encode([text])[0].tolist()
