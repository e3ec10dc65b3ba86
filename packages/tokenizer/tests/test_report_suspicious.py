"""Every check finds what was planted for it, and nothing in a clean vocabulary but what is there."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from tokenmill_core.readers import ReadOptions
from tokenmill_tokenizer.files.byte_characters import to_characters
from tokenmill_tokenizer.report import Token, build_report
from tokenmill_tokenizer.report.result import Measure
from tokenmill_tokenizer.report.spelling import brief, round_trip


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Path]:
    """planted(tokens, orphans, specials): merges spell `tokens` from the left and lead to no orphan."""

    def make(tokens: Iterable[bytes], orphans: Iterable[bytes] = (), specials: Iterable[str] = ()) -> Path:
        vocabulary = {to_characters(bytes([byte])): byte for byte in range(256)}
        merges = []
        for token in tokens:
            for end in range(2, len(token) + 1):
                left, right = to_characters(token[: end - 1]), to_characters(token[end - 1 : end])
                if left + right not in vocabulary:
                    vocabulary[left + right] = len(vocabulary)
                    merges.append((left, right))
        for orphan in orphans:
            vocabulary[to_characters(orphan)] = len(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in specials])
        path = tmp_path / "planted.json"
        tokenizer.save(str(path))
        return path

    return make


def found_in(path: Path, *inputs: str) -> dict[str, dict[str, Token]]:
    report = build_report([str(path)], inputs, ReadOptions())
    suspicious = report.tokenizers[0].suspicious
    assert all(one.count == len(one.tokens) for one in suspicious)
    return {one.reason: {token.token: token for token in one.tokens} for one in suspicious}


def test_a_clean_vocabulary(trained: Any) -> None:
    assert {reason: len(tokens) for reason, tokens in found_in(trained.path).items()} == {
        "special_from_text": 0,
        "unreachable": 0,
        "unreachable_part": 0,
        "odd_characters": 0,
        "long_run": 0,
        "looks_made": 0,
        "other_spelling": 0,
    }


def test_ids_that_no_text_reaches(planted: Callable[..., Path]) -> None:
    euro = "€".encode()
    found = found_in(planted([b"the", euro[:2]], orphans=[b"lost", "Ü".encode(), euro[1:]]))
    assert found["unreachable"].keys() == {"'lost'", "'Ü'"}
    assert found["unreachable"]["'lost'"].detail == "its text is 'l' + 'o' + 's' + 't'"
    assert found["unreachable_part"].keys() == {repr(euro[1:])}


def test_a_token_that_needs_something_before_it_is_reached(planted: Callable[..., Path]) -> None:
    """Line ends after a sign belong to its piece; by themselves the split cuts them off before a slash."""
    path = planted([b"\n//", b"\n\t"])
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(r"!+[\n/]*|[\n]|[^\n!]+"), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.save(str(path))
    assert tokenizer.encode("\n//").tokens == ["Ċ", "/", "/"]
    assert tokenizer.encode("!\n//").tokens == ["!", "Ċ//"]
    assert found_in(path)["unreachable"].keys() == {r"'\n\t'"}


def test_parts_of_characters_are_normal(planted: Callable[..., Path]) -> None:
    path = planted(["€".encode()])
    assert found_in(path)["unreachable_part"] == {}
    assert build_report([str(path)], [], ReadOptions()).tokenizers[0].partial_tokens == 128 + 1


def test_broken_and_binary_data(planted: Callable[..., Path]) -> None:
    found = found_in(planted(["a\ufffd".encode(), b"x\x00y", "\x85\n\t\r".encode()]))
    assert {token: one.detail for token, one in found["odd_characters"].items()} == {
        "'a�'": "U+FFFD",
        "'x\\x00'": "U+0000",
        "'x\\x00y'": "U+0000",
    }


def test_runs_of_one_character(planted: Callable[..., Path]) -> None:
    found = found_in(planted([b"-" * 17, b"ab" * 9]))
    assert found["long_run"].keys() == {repr("-" * 17), repr("-" * 16)}
    assert brief(found["long_run"][repr("-" * 17)]) == "'-⟨×17⟩'"


@pytest.mark.parametrize(
    ("token", "shape"),
    [
        ("https://", "URL"),
        ("bob@mail.org", "e-mail"),
        ("ghp_16C7e42F", "secret"),
        ("deadbeef42", "hex"),
        ("QmFzZTY0IGRhdGE1", "base64"),
        ("magikarp1999", "user name"),
        (" @some_body", "user name"),
    ],
)
def test_shapes(planted: Callable[..., Path], token: str, shape: str) -> None:
    assert found_in(planted([token.encode()]))["looks_made"][repr(token)].detail == shape


@pytest.mark.parametrize("token", ["@Override", " international", "12345678", "facade", "ABCDEFGHIJKL", "IPv6"])
def test_words_have_no_such_shape(planted: Callable[..., Path], token: str) -> None:
    assert found_in(planted([token.encode()]))["looks_made"] == {}


def test_the_same_text_composed(planted: Callable[..., Path]) -> None:
    path = planted(["e\u0301".encode(), "é".encode(), "o\u0308".encode()])
    found = found_in(path)
    [token] = found["other_spelling"].values()
    composed = Tokenizer.from_file(str(path)).token_to_id(to_characters("é".encode()))
    assert (token.token, token.detail) == (repr("e\u0301"), f"in NFC it is id {composed}")


def test_specials_that_text_can_forge(planted: Callable[..., Path]) -> None:
    found = found_in(planted([b"PAD"], specials=["PAD", "<|end|>"]))
    assert found["special_from_text"].keys() == {"'PAD'"}


def test_tokens_by_their_use(planted: Callable[..., Path], tmp_path: Path) -> None:
    path = planted([b"glitched", b"everywhere", b"nowhere at all"])
    texts = ["glitched " * 30, *(["everywhere " * 30] * 2), "glitche"]
    raw = tmp_path / "texts.jsonl"
    raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
    found = found_in(path, str(raw))
    assert found["in_one_document"].keys() == {"'glitched'"}
    assert found["in_one_document"]["'glitched'"].count == 30
    assert "'nowhere at all'" in found["never_used"]
    assert {"'everywhere'", "'glitched'"}.isdisjoint(found["never_used"])
    # The two documents in sources of their own are two documents still.
    again = tmp_path / "again.jsonl"
    again.write_bytes(orjson.dumps({"text": "glitched"}) + b"\n")
    assert found_in(path, str(raw), str(again))["in_one_document"] == {}


def test_a_long_token_is_shown_in_brief() -> None:
    token = Token(id=1, token=repr("abcdefghij" * 20), bytes=200, characters=200, count=None)
    assert len(brief(token)) < 70
    assert brief(token).startswith("'abc")
    assert brief(token.model_copy(update={"token": repr("\0" * 80 + "\\" * 9)})) == r"'\x00⟨×80⟩\\⟨×9⟩'"


def test_failures_are_put_in_words() -> None:
    whole = dict.fromkeys(Measure.model_fields, 1) | {"tokenizer": "t", "source": None, "group": None}
    measure = Measure.model_validate(whole | {"round_trip_failures": 3000, "first_failure": "f:1"})
    assert round_trip(measure) == "3,000 differ"
