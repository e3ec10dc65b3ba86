"""Encoding: exact round trips of any text, special tokens only where a stage puts them, and the same ids anywhere."""

import base64
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.decode import Decoder
from tokenmill_tokenizer.encoder import Encoder, Engine
from tokenmill_tokenizer.engines import Reference
from tokenmill_tokenizer.splits import Split

JSON = dict[str, Any]
ByteLevel = Callable[..., JSON]
SaveTokenizer = Callable[[JSON], str]

FAST, SLOW = Engine.GIGATOKEN, Engine.TOKENIZERS

HARD_TEXTS = [
    "".join(map(chr, range(256))),
    "👨‍👩‍👧‍👦 👍🏽 🏴\U000e0067\U000e0062\U000e007f",
    "مَرْحَبًا שלום \u200fmixed\u202e",
    "line\r\nline\rline\n\n\n\ttab   runs   of spaces  ",
    "repaired \ufffd character",
    "hello !   indented ':'search é e\u0301 ＡＢＣ \ufe30 \u0085 end\n",
    "hello !",
    "   indented",
    "':'search",
    "བོད་ཡིག 𠀀 한국어 日本語",
    '#version 330\n\n\n"quoted"\t\t',
    "new \u088f \U00011de0",
    " ",
    "\n",
    "\0",
    "",
]


def texts_of(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def encode(encoder: Encoder, text: str) -> list[int]:
    ids: list[int] = encoder.encode(texts_of([text]))[0].tolist()
    return ids


@pytest.fixture(scope="module", params=list(Split))
def path(request: pytest.FixtureRequest, byte_level: ByteLevel, save_tokenizer: SaveTokenizer) -> str:
    return save_tokenizer(byte_level(request.param))


@pytest.fixture(scope="module", params=[FAST, SLOW])
def encoder(request: pytest.FixtureRequest, path: str) -> Encoder:
    return Encoder(path, request.param)


def test_hard_texts_come_back_exactly(encoder: Encoder, path: str) -> None:
    ids, lengths = encoder.encode(texts_of(HARD_TEXTS))
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    assert [Decoder(path).decode(part) for part in parts] == HARD_TEXTS


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(), max_size=5))
def test_any_text_comes_back_exactly(encoder: Encoder, path: str, texts: list[str]) -> None:
    ids, lengths = encoder.encode(texts_of(texts))
    assert len(lengths) == len(texts)
    assert lengths.sum() == ids.size
    assert Decoder(path).decode_bytes(ids) == "".join(texts).encode()


def test_a_byte_is_an_id_whatever_surrounds_it(encoder: Encoder, path: str) -> None:
    """Text outside what was trained on falls back to bytes, never to an unknown token."""
    assert len(encode(encoder, "\U0010fffd")) == 4
    assert Tokenizer.from_file(path).model.unk_token is None


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
def test_special_tokens_in_a_text_are_ordinary_text(encoder: Encoder, path: str, text: str) -> None:
    ids = encode(encoder, text)
    assert not set(ids) & {0, 1}
    assert Decoder(path).decode(ids) == text


@pytest.mark.parametrize("engine", [FAST, SLOW])
def test_special_tokens_in_a_text_are_found_where_allowed(path: str, engine: Engine) -> None:
    allowing = Encoder(path, engine, allow_special=True)
    plain = Encoder(path, engine)
    expected = [*encode(plain, "a"), 0, 1, *encode(plain, " b")]
    assert encode(allowing, "a<|endoftext|><|pad|> b") == expected


def test_a_special_token_that_is_a_word_is_refused(byte_level: ByteLevel, save_tokenizer: SaveTokenizer) -> None:
    parsed = byte_level()
    text, id = next((token, id) for token, id in parsed["model"]["vocab"].items() if token.isalpha() and len(token) > 2)
    word = {"id": id, "content": text, "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    path = save_tokenizer(parsed | {"added_tokens": [word | flags]})
    with pytest.raises(InputError, match=f"{path}: added_tokens: the special token '{text}' .* rename it"):
        Encoder(path)
    assert encode(Encoder(path, allow_special=True), text) == [id]


LONG: dict[str, Callable[[int], str]] = {
    "a": lambda size: "a" * size,
    "space": lambda size: " " * size,
    "_": lambda size: "_" * size,
    "line end": lambda size: "\n" * size,
    "base64": lambda size: base64.b64encode(random.Random(size).randbytes(size)).decode()[:size],
    "unspaced Chinese": lambda size: "".join(map(chr, random.Random(size).choices(range(0x4E00, 0x9FFF), k=size))),
    "random letters": lambda size: "".join(random.Random(size).choices("etaoin", k=size)),
}


@pytest.mark.parametrize("engine", [FAST, SLOW])
@pytest.mark.parametrize("kind", LONG)
def test_long_words_take_time_in_proportion(
    byte_level: ByteLevel, save_tokenizer: SaveTokenizer, kind: str, engine: Engine
) -> None:
    """Eight times the characters take about eight times as long; were it their square, it would be 64 times."""
    path = save_tokenizer(byte_level())
    encoder = Encoder(path, engine)
    seconds = []
    for size in (62_500, 500_000):
        text = LONG[kind](size)
        start = time.process_time()
        ids, _ = encoder.encode(texts_of([text]))
        seconds.append(time.process_time() - start)
        assert Decoder(path).decode_bytes(ids) == text.encode()
    assert seconds[1] < 25 * max(seconds[0], 0.002)


def test_the_libraries_that_read_the_format_give_the_same_ids(encoder: Encoder, path: str, prose: list[str]) -> None:
    plain = Tokenizer.from_file(path)
    plain.encode_special_tokens = True
    hub: Any = PreTrainedTokenizerFast(tokenizer_file=path)  # type: ignore[no-untyped-call]
    for text in [*prose, *HARD_TEXTS]:
        ids = encode(encoder, text)
        assert plain.encode(text, add_special_tokens=False).ids == ids
        assert hub.encode(text, add_special_tokens=False) == ids
        assert hub.decode(ids, clean_up_tokenization_spaces=False) == text
    assert hub.convert_tokens_to_ids("<|endoftext|>") == 0


@pytest.fixture(scope="module")
def one_path(byte_level: ByteLevel, save_tokenizer: SaveTokenizer) -> str:
    return save_tokenizer(byte_level())


def run(code: str, *arguments: str, **environment: str) -> bytes:
    found = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=orjson.dumps(HARD_TEXTS),
        capture_output=True,
        check=True,
        env=os.environ | environment,
    )
    assert found.stderr == b""
    return found.stdout


def test_a_new_process_gives_the_same_ids(one_path: str) -> None:
    code = (
        "import sys, json, pyarrow as pa; from tokenmill_tokenizer.encoder import Encoder\n"
        "print(json.dumps(Encoder(sys.argv[1]).encode(pa.array(json.load(sys.stdin), pa.large_string()))[0].tolist()))"
    )
    expected = Encoder(one_path).encode(texts_of(HARD_TEXTS))[0].tolist()
    assert orjson.loads(run(code, one_path, PYTHONHASHSEED="3")) == expected


def test_the_reference_never_loads_the_fast_engine(one_path: str) -> None:
    code = (
        "import sys; from tokenmill_tokenizer.encoder import Encoder, Engine\n"
        "Encoder(sys.argv[1], Engine.TOKENIZERS)\n"
        "print({'gigatoken', 'awkward'} & set(sys.modules))"
    )
    assert run(code, one_path) == b"set()\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to count threads")
def test_encoding_starts_no_thread_and_forks_quietly(one_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, sys, pyarrow as pa; from tokenmill_tokenizer.encoder import Encoder\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "texts = pa.array(['some words'] * 2000, pa.large_string())\n"
        "for engine in ('gigatoken', 'tokenizers'):\n"
        "    encoder = Encoder(sys.argv[1], engine)\n"
        "    ids = encoder.encode(texts)[0]\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(encoder.encode(texts)[0].tolist() != ids.tolist())\n"
        "    print(os.waitpid(child, 0)[1], len(os.listdir('/proc/self/task')) > before)\n"
        "print('TOKENIZERS_PARALLELISM' in os.environ)"
    )
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    assert run(code, one_path) == b"0 False\n0 False\nFalse\n"


@pytest.mark.parametrize("engine", [FAST, SLOW])
def test_what_a_file_holds_for_inference_is_left_out(path: str, save_tokenizer: SaveTokenizer, engine: Engine) -> None:
    """A tokenizer.json may truncate, pad and add ids; data must hold the text and nothing else."""
    foreign = Tokenizer.from_file(path)
    foreign.enable_truncation(4)
    foreign.enable_padding(length=64, pad_id=0)
    parsed = orjson.loads(foreign.to_str())
    pieces = [{"SpecialToken": {"id": "<|pad|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<|pad|>": {"id": "<|pad|>", "ids": [1], "tokens": ["<|pad|>"]}}
    parsed["post_processor"] = {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": pieces,
        "special_tokens": special,
    }
    text = "The quick brown fox sees 2 dogs"
    assert encode(Encoder(save_tokenizer(parsed), engine), text) == encode(Encoder(path), text)


def test_the_fast_engine_is_taken_where_it_is_right(path: str) -> None:
    assert Encoder(path).engine.startswith("gigatoken ")
    assert Encoder(path, FAST).engine == Encoder(path, "auto").engine  # type: ignore[arg-type]
    assert Encoder(path, SLOW).engine.startswith("tokenizers ")


def test_where_it_cannot_be_the_reference_is(
    byte_level: ByteLevel, save_tokenizer: SaveTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    path = save_tokenizer(byte_level() | {"normalizer": {"type": "Lowercase"}})
    with caplog.at_level(logging.WARNING, "tokenmill"):
        encoder = Encoder(path)
    assert encoder.engine.startswith("tokenizers ")
    assert f"{path}: encoding with tokenizers" in caplog.text
    assert "it changes texts first (normalizer Lowercase)" in caplog.text
    assert Decoder(path).decode(encode(encoder, "ABC")) == "abc"
    with pytest.raises(InputError, match=r"Lowercase.*; use --engine auto or tokenizers"):
        Encoder(path, FAST)


def test_a_difference_in_real_texts_changes_over_for_good(
    byte_level: ByteLevel, save_tokenizer: SaveTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    path = save_tokenizer(byte_level())
    cut_elsewhere = byte_level() | {"pre_tokenizer": byte_level(Split.QWEN2)["pre_tokenizer"]}
    other = Reference(Tokenizer.from_file(save_tokenizer(cut_elsewhere)), allow_special=False)
    encoder, strict = Encoder(path), Encoder(path, FAST)
    texts = texts_of(["The quick brown fox", "12345678"])
    encoder.prove_on(texts)
    assert encoder.engine.startswith("gigatoken ")

    encoder._fast = strict._fast = other  # an engine that cuts numbers elsewhere
    encoder.prove_on(texts.slice(0, 1))
    assert encoder._fast is other
    with caplog.at_level(logging.WARNING, "tokenmill"):
        encoder.prove_on(texts)
    assert "'12345678': " in caplog.text
    assert encoder.engine == Encoder(path, SLOW).engine
    assert encode(encoder, "12345678") == encode(Encoder(path, SLOW), "12345678")
    encoder.prove_on(texts)
    with pytest.raises(InputError, match="'12345678': "):
        strict.prove_on(texts)
    assert Encoder(path).engine.startswith("gigatoken "), "another task starts with a proof of its own"


def test_a_file_is_opened_once_a_process_until_it_changes(byte_level: ByteLevel, save_tokenizer: SaveTokenizer) -> None:
    path = save_tokenizer(byte_level())
    assert Encoder(path)._fast is Encoder(path)._fast
    before = encode(Encoder(path), "1234567")
    Path(path).write_bytes(orjson.dumps(byte_level(Split.QWEN2)))
    assert encode(Encoder(path), "1234567") != before


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=f"{path}: not a tokenizer.json"):
        Encoder(str(path))
