"""Where text is cut before merging, against the published behaviour of the two splits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from tokenmill_tokenizer.splits import Split, is_mergeable, pre_tokenizer


def pieces(text: str, split: Split) -> list[str]:
    cut = pre_tokenizer(split).pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in cut]


@pytest.mark.parametrize(
    ("text", "gpt2", "cl100k"),
    [
        ("Hello world", ["Hello", " world"], ["Hello", " world"]),
        ("it's IT'S", ["it", "'s", " IT", "'", "S"], ["it", "'s", " IT", "'S"]),
        ("12345 6", ["12345", " 6"], ["123", "45", " ", "6"]),
        ("a  b", ["a", " ", " b"], ["a", " ", " b"]),
        ("(word)", ["(", "word", ")"], ["(word", ")"]),
        ("x;\n\ny", ["x", ";", "\n", "\n", "y"], ["x", ";\n\n", "y"]),
        ("a\n\n\n    b", ["a", "\n\n\n   ", " b"], ["a", "\n\n\n", "   ", " b"]),
        ("\t\tif", ["\t", "\t", "if"], ["\t", "\tif"]),
        (" lead", [" lead"], [" lead"]),
        ("don't'll", ["don", "'t", "'ll"], ["don", "'t", "'ll"]),
    ],
)
def test_cuts(text: str, gpt2: list[str], cl100k: list[str]) -> None:
    assert pieces(text, Split.GPT2) == gpt2
    assert pieces(text, Split.CL100K) == cl100k


@given(st.text(), st.sampled_from(list(Split)))
def test_no_byte_is_lost_and_no_space_is_put_in_front(text: str, split: Split) -> None:
    mapped = [piece for piece, _ in pre_tokenizer(split).pre_tokenize_str(text)]
    assert decoders.ByteLevel().decode(mapped) == text


@pytest.mark.parametrize("split", list(Split))
def test_what_ordinary_text_can_come_to_is_told_from_what_it_cannot(split: Split) -> None:
    apart = ["<|endoftext|>", "<s>", "</s>", "[PAD]", "<|im_start|>", "<0x0A>", "two words", "語"]
    within = ["PAD", "###", "<|>", "a", "§", "é", "Ġthe", "Ċ"]
    assert [token for token in apart if is_mergeable(token, split)] == []
    assert [token for token in within if not is_mergeable(token, split)] == []


def test_cl100k_takes_at_most_three_digits_and_never_splits_letters() -> None:
    for piece in pieces("word1234567890 ЖЖЖ٣٤٥٦ end", Split.CL100K):
        assert len(re.findall(r"\d", piece)) <= 3
        assert not re.search(r"\d[^\W\d]|[^\W\d]\d", piece)
