"""The table of characters against the installed `tokenizers`, and what happens where these differ."""

import logging

import numpy as np
import pytest

from tokenmill_tokenizer.cutting import open_cutter
from tokenmill_tokenizer.cutting.characters import HEAD, LETTER, NUMBER, SPACE, TAIL, character_kinds
from tokenmill_tokenizer.cutting.check import changed_characters, find_difference
from tokenmill_tokenizer.cutting.cutter import proven
from tokenmill_tokenizer.cutting.native import NativeCutter
from tokenmill_tokenizer.cutting.reference import ReferenceCutter
from tokenmill_tokenizer.splits import Split, SplitRule

ALL = np.arange(0x110000)


def test_every_character_is_of_the_kinds_that_tokenizers_says() -> None:
    kinds = character_kinds()
    assert len(kinds) == len(ALL)
    assert changed_characters(ALL, kinds) == set()


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        ("aßéжﬀ", LETTER | TAIL),
        ("AÉЖǅ", LETTER | HEAD),
        ("日ªʰا", LETTER | HEAD | TAIL),
        ("\u0301\u093e\u20dd", HEAD | TAIL),
        ("0٣²Ⅳ½①", NUMBER),
        (" \t\n\x0b\x0c\r\u0085\u00a0\u2028\u3000", SPACE),
        ("!_$+\x00\x1c\u200b\u200d\ufeff👍\ue000\U0010ffff", 0),
    ],
)
def test_kinds_by_hand(characters: str, kind: int) -> None:
    assert [c for c in characters if character_kinds()[ord(c)] != kind] == []


@pytest.mark.parametrize("code", [ord("a"), 0x378, 0x4E00, 0x1F600, 0x10FFFF])
def test_a_changed_character_is_found(code: int) -> None:
    table = character_kinds().copy()
    table[code] ^= LETTER | HEAD | TAIL
    assert changed_characters(ALL[:0x2000] if code < 0x2000 else ALL[code - 99 : code + 99], table) == {code}


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("group", [None, 1, 2, 4])
def test_named_splits_are_cut_by_compiled_code(split: Split, group: int | None) -> None:
    assert isinstance(open_cutter(SplitRule(split=split, digit_group=group)), NativeCutter)


def test_a_pattern_is_cut_by_tokenizers() -> None:
    assert isinstance(open_cutter(SplitRule(pattern=r"\w+")), ReferenceCutter)


CUT_OTHERWISE = [
    (SplitRule(split=Split.GPT2), SplitRule(split=Split.CL100K)),
    (SplitRule(split=Split.O200K), SplitRule(split=Split.CL100K)),
    (SplitRule(split=Split.QWEN2), SplitRule(split=Split.QWEN2, digit_group=2)),
    (SplitRule(split=Split.CL100K), SplitRule(pattern=SplitRule(split=Split.CL100K).regex.replace("(?i:", "(?:"))),
    (SplitRule(split=Split.O200K), SplitRule(pattern=SplitRule(split=Split.O200K).regex.replace("/]*", "]*"))),
    (SplitRule(split=Split.GPT2), SplitRule(pattern=SplitRule(split=Split.GPT2).regex.replace(r"\s+(?!\S)|", ""))),
]


@pytest.mark.parametrize(("compiled", "installed"), CUT_OTHERWISE)
def test_code_that_cuts_otherwise_is_not_used(
    compiled: SplitRule, installed: SplitRule, caplog: pytest.LogCaptureFixture
) -> None:
    """The sample tells apart even what differs in one part of the pattern."""
    native, reference = NativeCutter(compiled), ReferenceCutter(installed)
    with caplog.at_level(logging.WARNING, "tokenmill"):
        assert proven(native, reference) is reference
    assert f"split {compiled.split}: {find_difference(native, reference)}; cutting with tokenizers" in caplog.text


def test_code_that_cuts_alike_is_used_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    native = NativeCutter(SplitRule(split=Split.LLAMA3))
    assert proven(native, ReferenceCutter(SplitRule(split=Split.CL100K))) is native
    assert caplog.text == ""
