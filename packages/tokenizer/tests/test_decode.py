"""Ids come back as the text they stand for, whole or as they come."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.decode import Decoder, StreamDecoder, byte_lengths, token_bytes
from tokenmill_tokenizer.splits import Split

JSON = dict[str, Any]
SaveTokenizer = Callable[[JSON], str]

TEXTS = [
    "👨‍👩‍👧‍👦 👍🏽 🏴\U000e0067\U000e007f",
    "བོད་ཡིག 𠀀 한국어 日本語 é e\u0301",
    "".join(map(chr, range(256))),
    "  two spaces, then\n\n\n\tlines \ufffd ",
    "",
    " ",
]


@pytest.fixture(scope="module", params=[*Split, "sentencepiece"])
def path(
    request: pytest.FixtureRequest, byte_level: Any, sentencepiece_like: JSON, save_tokenizer: SaveTokenizer
) -> str:
    is_sentencepiece = request.param == "sentencepiece"
    return save_tokenizer(sentencepiece_like if is_sentencepiece else byte_level(request.param))


@pytest.fixture(scope="module")
def decoder(path: str) -> Decoder:
    return Decoder(path)


@pytest.fixture(scope="module")
def tokenizer(path: str) -> Tokenizer:
    return Tokenizer.from_file(path)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back(decoder: Decoder, tokenizer: Tokenizer, text: str) -> None:
    ids = encode(tokenizer, text)
    assert decoder.decode(ids) == text
    assert decoder.decode(np.array(ids, np.uint16)) == text
    assert decoder.decode_bytes(ids) == text.encode()


def cut(ids: list[int], places: list[int]) -> list[list[int]]:
    ends = sorted({place % (len(ids) + 1) for place in places})
    return [ids[start:end] for start, end in zip([0, *ends], [*ends, len(ids)], strict=True)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ids=st.lists(st.integers(0, 1 << 30), max_size=40), places=st.lists(st.integers(0, 40), max_size=40))
def test_any_ids_stream_to_what_they_are_together(
    decoder: Decoder, tokenizer: Tokenizer, ids: list[int], places: list[int]
) -> None:
    ids = [id % tokenizer.get_vocab_size() for id in ids]
    stream = StreamDecoder(decoder)
    fed = "".join(map(stream.feed, cut(ids, places)))
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    assert fed + stream.finish() == decoder.decode(ids) == whole
    assert stream.finish() == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.one_of(st.text(), st.text("é漢👍 ▁a\u0301")))
def test_a_text_streams_in_whole_characters(decoder: Decoder, tokenizer: Tokenizer, text: str) -> None:
    ids = encode(tokenizer, text)
    stream = StreamDecoder(decoder)
    fed = ""
    for id in ids:
        fed += stream.feed([id])
        assert decoder.decode(ids).startswith(fed)
    assert fed + stream.finish() == decoder.decode(ids)


def test_a_character_is_given_when_it_is_whole(byte_level: Any, save_tokenizer: SaveTokenizer) -> None:
    path = save_tokenizer(byte_level())
    ids = encode(Tokenizer.from_file(path), "\U0010fffd")
    assert len(ids) == 4
    stream = StreamDecoder(Decoder(path))
    assert [stream.feed([id]) for id in ids] == ["", "", "", "\U0010fffd"]
    assert (stream.feed(ids[:3]), stream.finish()) == ("", "\ufffd")


def test_bytes_of_each_token(byte_level: Any, sentencepiece_like: JSON) -> None:
    for parsed in (byte_level(), sentencepiece_like):
        tokenizer = Tokenizer.from_str(orjson.dumps(parsed).decode())
        table = token_bytes(tokenizer)
        assert len(table) == tokenizer.get_vocab_size()
        assert {bytes([byte]) for byte in range(256)} <= set(table)
        assert table[parsed["added_tokens"][1]["id"]] == parsed["added_tokens"][1]["content"].encode()
        ids = encode(tokenizer, "The quick brown ǅ fox\n")
        assert b"".join(table[id] for id in ids).lstrip(b" ").decode() == "The quick brown ǅ fox\n"


def test_gaps_have_no_bytes_and_unknown_ids_are_named(byte_level: Any, save_tokenizer: SaveTokenizer) -> None:
    parsed = byte_level()
    vocab = {token: 2 * id for token, id in parsed["model"]["vocab"].items()}
    path = save_tokenizer(parsed | {"added_tokens": [], "model": parsed["model"] | {"vocab": vocab}})
    table = token_bytes(Tokenizer.from_file(path))
    assert set(table[1::2]) == {b""}
    assert b"" not in table[::2]
    decoder = Decoder(path)
    for unknown in (1, len(table), -1):
        for decode in (decoder.decode, decoder.decode_bytes, StreamDecoder(decoder).feed):
            with pytest.raises(InputError, match=f"{path}: no token has the id {unknown};"):
                decode([0, unknown])


def test_special_tokens_come_back_as_their_text(byte_level: Any, save_tokenizer: SaveTokenizer) -> None:
    decoder = Decoder(save_tokenizer(byte_level()))
    assert decoder.decode([0, 1, 0]) == "<|endoftext|><|pad|><|endoftext|>"
    assert StreamDecoder(decoder).feed([1]) == "<|pad|>"


def test_ids_of_a_text_spell_as_many_bytes_as_it_has(path: str, decoder: Decoder) -> None:
    tokenizer = Tokenizer.from_file(path)
    lengths = byte_lengths(tokenizer, 10_000)
    if not decoder.is_byte_level:
        assert lengths is None
        return
    assert lengths is not None
    assert lengths.shape == (10_000,)
    for text in TEXTS:
        assert lengths[tokenizer.encode(text).ids].sum() == len(text.encode())
    tokenizer.add_special_tokens(["<|mark|>"])
    tokenizer.add_tokens(["word"])
    mark, word = map(tokenizer.token_to_id, ("<|mark|>", "word"))
    assert byte_lengths(tokenizer, 0)[[mark, word]].tolist() == [0, 4]
