"""A proof passes engines that agree and finds the place where others do not."""

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenmill_tokenizer.engines import Reference
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.engines.proof import first_texts, prove
from tokenmill_tokenizer.splits import Split, SplitRule

JSON = dict[str, Any]


def texts_of(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def reference(parsed: JSON) -> Reference:
    return Reference(Tokenizer.from_str(orjson.dumps(parsed).decode()), allow_special=False)


def test_the_texts_are_the_same_each_time_and_hold_every_byte_of_utf8() -> None:
    texts = nasty_texts(["<|x|>"], ["word"])
    assert texts == nasty_texts(["<|x|>"], ["word"])
    assert {"<|x|>", "a<|x|>b", "word", ""} <= set(texts)
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert set("".join(texts).encode()) == set(range(256)) - never


def with_split(parsed: JSON, regex: str) -> JSON:
    cut = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return parsed | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, BYTES]}}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CL100K = SplitRule(split=Split.CL100K).regex

OTHERS: dict[str, Callable[[JSON], JSON]] = {
    **{
        split.value: lambda parsed, split=split: with_split(parsed, SplitRule(split=split).regex)
        for split in (Split.GPT2, Split.O200K, Split.QWEN2)
    },
    "two digits": lambda parsed: with_split(parsed, SplitRule(split=Split.CL100K, digit_group=2).regex),
    "contractions in lower case": lambda parsed: with_split(parsed, CL100K.replace("(?i:", "(?:")),
    "no contractions": lambda parsed: with_split(parsed, CL100K.split("|", 7)[-1]),
    "no line ends after signs": lambda parsed: with_split(parsed, CL100K.replace(r"[\r\n]*|", "|")),
    "spaces of ASCII alone": lambda parsed: with_split(parsed, CL100K.replace(r"\s", r"[ \t\r\n]")),
    "the last space of a run with the rest": lambda parsed: with_split(parsed, CL100K.replace(r"\s+(?!\S)|", "")),
    "digits of ASCII alone": lambda parsed: with_split(parsed, CL100K.replace(r"\p{N}{1,3}", "[0-9]{1,3}")),
    "no split": lambda parsed: parsed | {"pre_tokenizer": BYTES},
    "a space in front": lambda parsed: with_prefix_space(parsed),
    "composed": lambda parsed: parsed | {"normalizer": {"type": "NFC"}},
    "decomposed": lambda parsed: parsed | {"normalizer": {"type": "NFD"}},
    "compatible forms": lambda parsed: parsed | {"normalizer": {"type": "NFKC"}},
    "lower case": lambda parsed: parsed | {"normalizer": {"type": "Lowercase"}},
    "stripped": lambda parsed: parsed | {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
    "NUL dropped": lambda parsed: parsed | {"normalizer": replaced("\0", "")},
    "line ends made one": lambda parsed: parsed | {"normalizer": replaced("\r\n", "\n")},
    "special tokens found": lambda parsed: (
        parsed | {"added_tokens": [token | {"special": False} for token in parsed["added_tokens"]]}
    ),
    "two merges in another order": lambda parsed: parsed | {"model": parsed["model"] | {"merges": swapped(parsed)}},
}


def with_prefix_space(parsed: JSON) -> JSON:
    (cut, _) = parsed["pre_tokenizer"]["pretokenizers"]
    return parsed | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, BYTES | {"add_prefix_space": True}]}}


def replaced(text: str, by: str) -> JSON:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def swapped(parsed: JSON) -> list[list[str]]:
    """The merges in reverse, but for the words that are merges of merges: still a tokenizer, and another one."""
    merges: list[list[str]] = parsed["model"]["merges"]
    simple = [merge for merge in merges if all(len(part) == 1 for part in merge)]
    return [*reversed(simple), *(merge for merge in merges if merge not in simple)]


@pytest.fixture(scope="module")
def greedy() -> JSON:
    """A tokenizer whose merges cross every cut, so that each cut, and each one left out, shows in the ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=20000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        min_frequency=1,
        show_progress=False,
    )
    texts = nasty_texts([])
    tokenizer.train_from_iterator([*texts, *(word for text in texts for word in text.split())], trainer)
    parsed: JSON = orjson.loads(tokenizer.to_str())
    return with_split(parsed, CL100K)


@pytest.mark.parametrize("change", OTHERS)
def test_every_slip_of_a_tokenizer_shows(greedy: JSON, change: str) -> None:
    right, other = reference(greedy), reference(OTHERS[change](greedy))
    texts = texts_of(nasty_texts(["<|endoftext|>"], ["the", " quick"]))
    assert prove(right, reference(greedy), texts) is None
    assert prove(other, right, texts) is not None


def words(vocabulary: dict[str, int], dropped: str = "-") -> Reference:
    """An engine that knows whole words."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.normalizer = normalizers.Replace(dropped, "")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Reference(tokenizer, allow_special=False)


A, B, C = "a", "b b c", "\n" * 50 + "c"


@pytest.mark.parametrize(
    ("own", "texts", "message"),
    [
        (words({"a": 1, "b": 2, "c": 3}), [A, B], f"'{B}': {{}} gives id 3 at place 2, which is id 4 with {{}}"),
        (words({"a": 1, "b": 2, "c": 4}, "c"), [A, B], f"'{B}': {{}} gives no id at place 2, which is id 4 with {{}}"),
        (words({"a": 0, "b": 2, "c": 4}), [A, B], f"'{A}': {{}} gives id 0 at place 0, which is id 1 with {{}}"),
        (words({"c": 3}), [C], f"'{chr(92)}n{chr(92)}n"),
        (words({"c": 3}), [C], "'... (51 characters): {} gives id 3"),
        (words({"a": 1, "b": 2}), [A, B], "{} fails: WordLevel error: Missing [UNK] token"),
    ],
)
def test_the_message_names_the_first_place(own: Reference, texts: list[str], message: str) -> None:
    right = words({"a": 1, "b": 2, "c": 4})
    found = prove(own, right, texts_of(texts))
    assert found is not None
    assert message.format(own.label, right.label) in found


@given(texts=st.lists(st.text(max_size=6), max_size=6), skipped=st.integers(0, 3), num_bytes=st.integers(0, 30))
def test_the_first_texts_are_the_first_bytes(texts: list[str], skipped: int, num_bytes: int) -> None:
    first = first_texts(texts_of(texts).slice(skipped), num_bytes).to_pylist()
    rest = texts[skipped:]
    whole = "".join(rest).encode()
    assert "".join(first).encode() == whole[:num_bytes].decode(errors="ignore").encode()
    assert first[:-1] == rest[: len(first) - 1] if first else True
