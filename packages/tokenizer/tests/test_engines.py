"""The fast engine gives the ids of the reference, or is not let near a tokenizer."""

import itertools
import os
import random
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_tokenizer.engines import Reference, gigatoken
from tokenmill_tokenizer.engines.gigatoken import Gigatoken
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.engines.new_characters import CHANGED, IS_NEW, have_new_characters
from tokenmill_tokenizer.engines.proof import prove
from tokenmill_tokenizer.engines.support import UnsupportedError, plain_tokenizer
from tokenmill_tokenizer.files.byte_characters import to_characters
from tokenmill_tokenizer.splits import Split

FUZZ = int(os.environ.get("TOKENMILL_FUZZ", "10000"))
"""Random strings for each tokenizer: a million in the nightly run."""

JSON = dict[str, Any]
ByteLevel = Callable[..., JSON]

PARTS = [
    *"aZz09 \t\n\r_-!?'\"<>|#/\\.,;:()[]{}=+*&^%$@~`\0\x7f",
    *"éÉßſKﬁǅǲσςÅ\u0301\u0308\u0085\u00a0\u200b\u200d\u2028\u3000\ufe30\ufe0f\ufeff\ufffdＡ１²½Ⅷ٣३๓漢字かカ한한བོ👍🏽🇩🇪𠀀",
    *[
        "'s",
        "'S",
        "'ll",
        "'LL",
        "'ſ",
        "  ",
        "   ",
        "\n\n",
        "\r\n",
        " \n",
        "the",
        " the",
        "Word",
        "camelCase",
        "123",
        "1234567",
    ],
    *["<|endoftext|>", "<|pad|>", "<s>", "</s>", "<unk>", "<0x41>", "▁", "endoftext", "<|", "|>"],
]


def texts_of(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def engines(parsed: JSON, allow_special: bool = False) -> tuple[Gigatoken, Reference]:
    content, tokenizer = opened(parsed)
    return Gigatoken(content, tokenizer, allow_special), Reference(tokenizer, allow_special)


def opened(parsed: JSON) -> tuple[bytes, Tokenizer]:
    content = orjson.dumps(parsed)
    return content, Tokenizer.from_str(content.decode())


def added(content: str, id: int, **flags: bool) -> JSON:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": id, "content": content, **plain, **flags}


def appended(parsed: JSON, *contents: str, **flags: bool) -> list[JSON]:
    """Added tokens whose ids follow those of the vocabulary."""
    return [added(content, len(parsed["model"]["vocab"]) + k, **flags) for k, content in enumerate(contents)]


def random_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    planes = ((0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0xE0000, 0x110000))
    texts = []
    for _ in range(count):
        parts = rng.choices(PARTS, k=rng.randrange(10))
        if rng.random() < 0.5:
            parts += [chr(rng.randrange(*rng.choice(planes))) for _ in range(rng.randrange(5))]
            rng.shuffle(parts)
        texts.append("".join(parts))
    return texts


def assert_same(parsed: JSON, texts: list[str], allow_special: bool = False) -> None:
    fast, reference = engines(parsed, allow_special)
    for start in range(0, len(texts), 10_000):
        assert prove(fast, reference, texts_of(texts[start : start + 10_000])) is None


@pytest.mark.parametrize("split", list(Split))
def test_fuzzed_texts_of_every_split(byte_level: ByteLevel, split: Split) -> None:
    assert_same(byte_level(split), random_texts(FUZZ, seed=len(split)))


def revealing(parsed: JSON) -> JSON:
    """A tokenizer whose ids show its cuts: what stands beside a character is merged with the nearest byte of it."""
    symbol = {byte: to_characters(bytes([byte])) for byte in range(256)}
    vocab = {symbol[byte]: byte for byte in range(256)}
    merges = [
        pair
        for beside in map(symbol.__getitem__, b"aA1! \n\x81")
        for lead, last in itertools.product(range(0xC2, 0xF5), range(0x80, 0xC0))
        for pair in ((beside, symbol[lead]), (symbol[last], beside))
    ]
    merges = list(dict.fromkeys(merges))
    vocab |= {a + b: 256 + k for k, (a, b) in enumerate(merges)}
    return parsed | {"added_tokens": [], "model": parsed["model"] | {"vocab": vocab, "merges": merges}}


@pytest.mark.parametrize("split", list(Split))
def test_every_character_is_of_one_kind_to_both(byte_level: ByteLevel, split: Split) -> None:
    """Beside letters, digits, signs, spaces and marks: all characters in the nightly run, else a sample."""
    fast, reference = engines(revealing(byte_level(split)))
    step = 1 if FUZZ >= 1_000_000 else 97
    codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
    for some in itertools.chain(
        [np.flatnonzero(IS_NEW)[:: min(step, 7)]], np.array_split(codes, len(codes) // 10_000 + 1)
    ):
        texts = [f"a{c}1{c}!{c} {c}\n{c}A{c}a{c}\u0301{c}\u0301a" for c in map(chr, some)]
        assert prove(fast, reference, texts_of(texts)) is None


def test_texts_with_new_characters_are_left_to_the_reference(byte_level: ByteLevel) -> None:
    parsed = revealing(byte_level())
    fast, reference = engines(parsed)
    batches = [
        ["a\u088fb"],
        ["x", "1\U00011de01", "", "é漢👍"],
        ["\U00033479"] * 2,
        ["\u088e\u0890\U0003347a", "\u088f"],
    ]
    for batch in batches:
        assert prove(fast, reference, texts_of(batch)) is None
    found = have_new_characters(column_buffers(texts_of([*itertools.chain.from_iterable(batches)]).slice(1)))
    assert found.tolist() == [False, True, False, False, True, True, False, True]


def test_new_characters_are_those_of_unicode_17() -> None:
    added_in_17 = np.flatnonzero(IS_NEW)[1:].tolist()
    assert len(added_in_17) == 4803
    assert unicodedata.unidata_version >= "17" or {unicodedata.category(chr(code)) for code in added_in_17} == {"Cn"}
    assert IS_NEW[CHANGED]


@pytest.fixture(scope="module", params=list(Split))
def pair(request: pytest.FixtureRequest, byte_level: ByteLevel) -> tuple[Gigatoken, Reference]:
    """Both engines, opened once for all examples."""
    return engines(byte_level(request.param))


@settings(max_examples=max(50, FUZZ // 500), deadline=None)
@given(texts=st.lists(st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join)), max_size=20))
def test_any_texts(pair: tuple[Gigatoken, Reference], texts: list[str]) -> None:
    assert prove(*pair, texts_of(texts)) is None


def steps(kind: str) -> JSON:
    """How tokenizers made from SentencePiece models mark spaces: as of old, without one in front, or each by itself."""
    prepend = {"type": "Prepend", "prepend": "▁"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    normalizer: JSON | None = {"type": "Sequence", "normalizers": [prepend, replace]}
    cut = None
    if kind == "replace":
        normalizer = replace
    elif kind != "legacy":
        normalizer, cut = None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": kind, "split": False}
    return {"normalizer": normalizer, "pre_tokenizer": cut}


@pytest.mark.parametrize("kind", ["legacy", "replace", "always", "first", "never"])
def test_fuzzed_texts_where_bytes_are_the_last_resort(sentencepiece_like: JSON, kind: str) -> None:
    parsed = sentencepiece_like | steps(kind)
    assert_same(parsed, [*nasty_texts(["<s>", "</s>", "<unk>"]), *random_texts(FUZZ // 5, seed=1)])


def test_batches_of_any_form(byte_level: ByteLevel) -> None:
    """None, empty texts, slices, NUL, and a bitmap of nulls without a null."""
    fast, reference = engines(byte_level())
    with_bitmap = pa.array(["a", None, "béc", "", "d\0"], pa.large_string()).slice(2)
    assert with_bitmap.buffers()[0] is not None
    arrays = [
        texts_of([]),
        texts_of([""]),
        texts_of(["", "a\0b", ""]),
        texts_of(["ab", "", "cd"] * 9).slice(4, 20),
        with_bitmap,
    ]
    for texts, backend in itertools.product(arrays, (fast, reference)):
        ids, lengths = backend.encode(texts)
        assert (ids.dtype, lengths.dtype) == (np.dtype(np.uint32), np.dtype(np.int64))
        alone = [backend.encode(texts_of([text]))[0].tolist() for text in texts.to_pylist()]
        assert lengths.tolist() == [len(part) for part in alone]
        assert ids.tolist() == list(itertools.chain.from_iterable(alone))


def test_nothing_of_the_texts_or_ids_is_copied(byte_level: ByteLevel) -> None:
    fast, _ = engines(byte_level())
    ids, _ = fast.encode(texts_of(["some words"] * 100))
    assert not ids.flags.owndata
    shared = gigatoken._without_nulls(texts := texts_of(["abc", "de"]))
    assert np.asarray(shared.layout.content.data).ctypes.data == texts.buffers()[2].address


def test_words_are_forgotten_now_and_then(byte_level: ByteLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, reference = engines(byte_level())
    texts = texts_of(["new words each time"] * 10)
    before = fast._tokenizer
    fast.encode(texts)
    assert fast._tokenizer is before
    monkeypatch.setattr(gigatoken, "RENEW_BYTES", 100)
    assert prove(fast, reference, texts) is None
    assert fast._tokenizer is not before


SAME: dict[str, Callable[[JSON], JSON]] = {
    "special tokens in texts": lambda parsed: parsed,
    "special tokens with flags": lambda parsed: {
        "added_tokens": [added("<|pad|>", 1, special=True, lstrip=True, rstrip=True, single_word=True, normalized=True)]
    },
    "runs of spaces": lambda parsed: {
        "added_tokens": [
            *parsed["added_tokens"],
            *appended(parsed, *(" " * n for n in range(2, 25)), normalized=True),
        ]
    },
    "longest added token first": lambda parsed: {"added_tokens": appended(parsed, "ab~", "ab~~", "b~~cd", "~~b")},
    "no normalizer in a sequence": lambda parsed: {
        "normalizer": {"type": "Sequence", "normalizers": []},
        "added_tokens": appended(parsed, "ab~", normalized=True),
    },
    "added tokens that begin before special ones": lambda parsed: {
        "added_tokens": [*parsed["added_tokens"], *appended(parsed, "x<|", "~<|pad|>~")]
    },
    "added tokens that are looked for late and begin late": lambda parsed: {
        "added_tokens": [*appended(parsed, "ab~", "q~"), *appended(parsed, "-", "-", "~cd", normalized=True)[2:]]
    },
    "ids in another order than merges": lambda parsed: {"model": shuffled(parsed["model"])},
    "gaps between ids": lambda parsed: {
        "added_tokens": [],
        "model": parsed["model"] | {"vocab": {token: 3 * id + 7 for token, id in parsed["model"]["vocab"].items()}},
    },
    "words that no merge comes to": lambda parsed: {"model": with_unreachable(parsed["model"], ignore_merges=False)},
    "words taken whole": lambda parsed: {"model": with_unreachable(parsed["model"], ignore_merges=True)},
    "for inference": lambda parsed: {
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 1,
            "pad_type_id": 0,
            "pad_token": "<|pad|>",
        },
    },
}


def shuffled(model: JSON) -> JSON:
    ids = list(model["vocab"].values())
    moved = ids[2:]  # the special tokens stay
    random.Random(0).shuffle(moved)
    return model | {"vocab": dict(zip(model["vocab"], ids[:2] + moved, strict=True))}


def with_unreachable(model: JSON, ignore_merges: bool) -> JSON:
    words = {"Ġqzx": len(model["vocab"]), "Ġqzxlongerthanfifteenbytes": len(model["vocab"]) + 1}
    return model | {"vocab": model["vocab"] | words, "ignore_merges": ignore_merges}


@pytest.mark.parametrize(
    ("change", "allow_special"),
    [
        *((change, False) for change in SAME),
        *((change, True) for change in SAME if change != "special tokens with flags"),
    ],
)
def test_what_is_let_through_comes_out_the_same(byte_level: ByteLevel, change: str, allow_special: bool) -> None:
    parsed = byte_level()
    changed = parsed | SAME[change](parsed)
    own = [
        "ab~~cd ab~ab~~ b~~cd~ ab~cd q~cd~cdab~cd",
        "x<|pad|> ~<|pad|>~ x<|endoftext|>x<||>~",
        " qzx qzxlongerthanfifteenbytes",
        "def f():\n        x  =   1",
        "e\u0301<|pad|>\u0301",
    ]
    assert_same(changed, [*own, *nasty_texts(["<|endoftext|>", "<|pad|>"]), *random_texts(2000, seed=2)], allow_special)


BYTES_ONLY = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
DIGITS = {"type": "Split", "pattern": {"Regex": r"\p{N}"}, "behavior": "Isolated", "invert": False}

REFUSED: dict[str, tuple[str, Callable[[JSON], JSON]]] = {
    "lowercase": ("normalizer", lambda parsed: {"normalizer": {"type": "Lowercase"}}),
    "NFC": ("normalizer", lambda parsed: {"normalizer": {"type": "NFC"}}),
    "NFKC": ("normalizer", lambda parsed: {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}}),
    "no split": ("pre_tokenizer", lambda parsed: {"pre_tokenizer": None}),
    "bytes without a split": ("pre_tokenizer", lambda parsed: {"pre_tokenizer": BYTES_ONLY}),
    "a space in front": (
        "pre_tokenizer",
        lambda parsed: {"pre_tokenizer": BYTES_ONLY | {"add_prefix_space": True, "use_regex": True}},
    ),
    "a step it does not know": (
        "pre_tokenizer",
        lambda parsed: {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Digits", "individual_digits": True},
                    *parsed["pre_tokenizer"]["pretokenizers"],
                ],
            }
        },
    ),
    "matches taken out": (
        "pre_tokenizer",
        lambda parsed: {
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS | {"behavior": "Removed"}, BYTES_ONLY]}
        },
    ),
    "a regular expression it does not know": (
        "regex",
        lambda parsed: {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, BYTES_ONLY]}},
    ),
    "chance": ("dropout", lambda parsed: {"model": parsed["model"] | {"dropout": 0.1}}),
    "not BPE": ("BPE", lambda parsed: {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}),
    "a byte without a token": (
        "model.vocab",
        lambda parsed: {
            "model": parsed["model"] | {"vocab": {k: v for k, v in parsed["model"]["vocab"].items() if k != "Ā"}}
        },
    ),
    "an added token that takes spaces": (
        "lstrip",
        lambda parsed: {"added_tokens": appended(parsed, "ab~", lstrip=True)},
    ),
    "an added token that is a word": (
        "lstrip",
        lambda parsed: {"added_tokens": appended(parsed, "ab~", single_word=True)},
    ),
    "an added token in the vocabulary": ("has the id", lambda parsed: {"added_tokens": appended(parsed, "a")}),
    "an added token after a gap": ("has the id", lambda parsed: {"added_tokens": appended(parsed, "x~", "y~")[1:]}),
    "an added token within a special one": (
        "cover",
        lambda parsed: {"added_tokens": [*parsed["added_tokens"], *appended(parsed, "pad|")]},
    ),
    "an added token that begins with a special one's tail": (
        "cover",
        lambda parsed: {"added_tokens": [*parsed["added_tokens"], *appended(parsed, ">~")]},
    ),
    "added tokens looked for in turn": (
        "cover",
        lambda parsed: {"added_tokens": [*appended(parsed, "ab~", normalized=True), *appended(parsed, "-", "~cd")[1:]]},
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_could_differ_is_refused(byte_level: ByteLevel, change: str) -> None:
    parsed = byte_level()
    word, edit = REFUSED[change]
    with pytest.raises(UnsupportedError, match=word):
        Gigatoken(*opened(parsed | edit(parsed)), allow_special=False)


def test_special_tokens_with_flags_are_refused_where_texts_may_hold_them(byte_level: ByteLevel) -> None:
    parsed = byte_level() | {"added_tokens": [added("<|pad|>", 1, special=True, rstrip=True)]}
    plain_tokenizer(*opened(parsed), allow_special=False)
    with pytest.raises(UnsupportedError, match="rstrip"):
        plain_tokenizer(*opened(parsed), allow_special=True)


def test_other_marks_of_space_are_refused(sentencepiece_like: JSON) -> None:
    whole = steps("first")["pre_tokenizer"]
    for cut in (whole | {"split": True}, whole | {"replacement": "_"}, {"type": "Whitespace"}):
        with pytest.raises(UnsupportedError, match="pre_tokenizer"):
            plain_tokenizer(*opened(sentencepiece_like | {"normalizer": None, "pre_tokenizer": cut}), False)
    with pytest.raises(UnsupportedError, match="normalizer"):
        plain_tokenizer(*opened(sentencepiece_like | {"normalizer": {"type": "NFKC"}}), False)
    with pytest.raises(UnsupportedError, match="added_tokens"):
        plain_tokenizer(*opened(sentencepiece_like), allow_special=True)
