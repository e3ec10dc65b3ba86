"""Where text is cut before merging, against the published behaviour of the splits."""

import re
from collections.abc import Callable
from pathlib import Path

import gigatoken
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from tokenmill_tokenizer.splits import Split, SplitRule, is_mergeable, pre_tokenizer

CUSTOM = SplitRule(pattern=r"[0-9]|[a-z]+")
RULES = [
    *(SplitRule(split=split, digit_group=group) for split in Split for group in (None, 1, 2, 5)),
    CUSTOM,
    SplitRule(pattern="a*"),
]


def pieces(text: str, rule: SplitRule) -> list[str]:
    cut = pre_tokenizer(rule).pre_tokenize_str(text)
    return [decoders.ByteLevel().decode([piece]) for piece, _ in cut]


@pytest.mark.parametrize(
    ("text", "gpt2", "cl100k", "o200k"),
    [
        ("Hello world", ["Hello", " world"], ["Hello", " world"], ["Hello", " world"]),
        ("it's IT'S", ["it", "'s", " IT", "'", "S"], ["it", "'s", " IT", "'S"], ["it's", " IT'S"]),
        ("'store", ["'s", "tore"], ["'s", "tore"], ["'store"]),
        ("12345 6", ["12345", " 6"], ["123", "45", " ", "6"], ["123", "45", " ", "6"]),
        ("a  b", ["a", " ", " b"], ["a", " ", " b"], ["a", " ", " b"]),
        ("(word)", ["(", "word", ")"], ["(word", ")"], ["(word", ")"]),
        ("x;\n\ny", ["x", ";", "\n", "\n", "y"], ["x", ";\n\n", "y"], ["x", ";\n\n", "y"]),
        ("x;\n/\ny", ["x", ";", "\n", "/", "\n", "y"], ["x", ";\n", "/\n", "y"], ["x", ";\n/\n", "y"]),
        ("a\n\n\n    b", ["a", "\n\n\n   ", " b"], ["a", "\n\n\n", "   ", " b"], ["a", "\n\n\n", "   ", " b"]),
        ("\t\tif", ["\t", "\t", "if"], ["\t", "\tif"], ["\t", "\tif"]),
        (" lead", [" lead"], [" lead"], [" lead"]),
        ("don't'll", ["don", "'t", "'ll"], ["don", "'t", "'ll"], ["don't", "'ll"]),
        ("camelCaseHTTPx", ["camelCaseHTTPx"], ["camelCaseHTTPx"], ["camel", "Case", "HTTPx"]),
        ("日本ABC", ["日本ABC"], ["日本ABC"], ["日本", "ABC"]),
        ("e\u0301a", ["e", "\u0301", "a"], ["e", "\u0301a"], ["e\u0301a"]),
    ],
)
def test_cuts(text: str, gpt2: list[str], cl100k: list[str], o200k: list[str]) -> None:
    assert pieces(text, SplitRule(split=Split.GPT2)) == gpt2
    assert pieces(text, SplitRule(split=Split.CL100K)) == pieces(text, SplitRule(split=Split.LLAMA3)) == cl100k
    assert pieces(text, SplitRule(split=Split.O200K)) == o200k
    digits_apart = [part for piece in cl100k for part in (list(piece) if piece.isdecimal() else [piece])]
    assert pieces(text, SplitRule(split=Split.QWEN2)) == digits_apart


@pytest.mark.parametrize(
    ("split", "group", "expected"),
    [
        (Split.GPT2, None, ["x", " 1234567", "y", "89"]),
        (Split.GPT2, 1, ["x", " 1", *"234567", "y", "8", "9"]),
        (Split.GPT2, 3, ["x", " 123", "456", "7", "y", "89"]),
        (Split.CL100K, None, ["x", " ", "123", "456", "7", "y", "89"]),
        (Split.CL100K, 1, ["x", " ", *"1234567", "y", "8", "9"]),
        (Split.O200K, 2, ["x", " ", "12", "34", "56", "7", "y", "89"]),
        (Split.LLAMA3, 4, ["x", " ", "1234", "567", "y", "89"]),
        (Split.QWEN2, None, ["x", " ", *"1234567", "y", "8", "9"]),
        (Split.QWEN2, 100_000, ["x", " ", "1234567", "y", "89"]),
    ],
)
def test_numbers_are_cut_from_the_left(split: Split, group: int | None, expected: list[str]) -> None:
    assert pieces("x 1234567y89", SplitRule(split=split, digit_group=group)) == expected


def test_a_pattern_cuts_at_its_matches_and_between_them() -> None:
    assert pieces("ab, C12d", CUSTOM) == ["ab", ", C", "1", "2", "d"]
    assert pieces("AT ALL", CUSTOM) == ["AT ALL"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pattern": "("}, r"pattern: '\(' is no regular expression .*unmatched parenthesis.*correct it"),
        ({"pattern": r"\p{Nothing}"}, "pattern: .*invalid character property name"),
        ({"pattern": "x", "digit_group": 3}, r"digit_group: 3 has no effect .* write \\p\{N\}\{1,3\}"),
        ({"pattern": ""}, "pattern"),
        ({"digit_group": 0}, "digit_group"),
        ({"digit_group": 100_001}, "digit_group"),
        ({"split": "gpt5"}, "'gpt2', 'cl100k', 'o200k', 'llama3' or 'qwen2'"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitRule.model_validate(settings)


@given(st.text(), st.sampled_from(RULES))
def test_no_byte_is_lost_and_no_space_is_put_in_front(text: str, rule: SplitRule) -> None:
    mapped = [piece for piece, _ in pre_tokenizer(rule).pre_tokenize_str(text)]
    assert decoders.ByteLevel().decode(mapped) == text


def test_nothing_is_normalised() -> None:
    text = "e\u0301 é ＡＢＣ \ufe30 Å \u212b"
    for rule in RULES:
        assert "".join(pieces(text, rule)) == text


@pytest.mark.parametrize("split", list(Split))
def test_what_ordinary_text_can_come_to_is_told_from_what_it_cannot(split: Split) -> None:
    rule = SplitRule(split=split)
    apart = ["<|endoftext|>", "<s>", "</s>", "[PAD]", "<|im_start|>", "<0x0A>", "two words", "語"]
    within = ["PAD", "###", "<|>", "a", "§", "é", "Ġthe", "Ċ"]
    assert [token for token in apart if is_mergeable(token, rule)] == []
    assert [token for token in within if not is_mergeable(token, rule)] == []


def test_whether_a_number_can_come_of_merges_depends_on_the_group() -> None:
    assert is_mergeable("1234", SplitRule(split=Split.GPT2))
    assert not is_mergeable("1234", SplitRule(split=Split.GPT2, digit_group=3))
    assert is_mergeable("1234", SplitRule(split=Split.QWEN2, digit_group=4))
    assert not is_mergeable("Ġ1", SplitRule(split=Split.QWEN2))


def test_cl100k_takes_at_most_three_digits_and_never_splits_letters() -> None:
    for piece in pieces("word1234567890 ЖЖЖ٣٤٥٦ end", SplitRule(split=Split.CL100K)):
        assert len(re.findall(r"\d", piece)) <= 3
        assert not re.search(r"\d[^\W\d]|[^\W\d]\d", piece)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[SplitRule], Path]:
    """saved(rule): a `tokenizer.json` that cuts by `rule` and knows the 256 bytes, 12, 123 and 1234."""

    def save(rule: SplitRule) -> Path:
        entries = [*sorted(ByteLevel.alphabet()), "12", "123", "1234"]
        merges = [("1", "2"), ("12", "3"), ("123", "4")]
        tokenizer = Tokenizer(models.BPE(vocab={entry: i for i, entry in enumerate(entries)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizer(rule)
        tokenizer.decoder = decoders.ByteLevel()
        path = tmp_path / "tokenizer.json"
        tokenizer.save(str(path))
        return path

    return save


@pytest.mark.parametrize(
    "rule",
    [
        *(SplitRule(split=split) for split in Split),
        SplitRule(split=Split.CL100K, digit_group=1),
        SplitRule(split=Split.LLAMA3, digit_group=1),
        SplitRule(split=Split.QWEN2, digit_group=3),
    ],
    ids=lambda rule: f"{rule.split}-{rule.digit_group}",
)
def test_the_fast_encoder_reads_the_named_splits(rule: SplitRule, saved: Callable[[SplitRule], Path]) -> None:
    """It knows regular expressions by their spelling."""
    text = "It's 12345 things,\r\n\tTabs & IT'S"
    fast, reference = gigatoken.Tokenizer(str(saved(rule))), Tokenizer.from_file(str(saved(rule)))
    assert list(fast.encode(text)) == reference.encode(text).ids
