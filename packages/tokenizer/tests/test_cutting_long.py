"""Pieces and documents of a million characters: whole, as the reference cuts them, in linear time."""

import base64
import random
import time

import numpy as np
import pyarrow as pa
import pytest

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_tokenizer.cutting.native import NativeCutter
from tokenmill_tokenizer.cutting.reference import ReferenceCutter
from tokenmill_tokenizer.splits import Split, SplitRule

MILLION = 1_000_000
LONG = {
    "small letters": "a" * MILLION,
    "capitals": "A" * MILLION,
    "spaces": " " * MILLION,
    "spaces before a word": " " * MILLION + "x",
    "newlines": "\n" * MILLION,
    "underscores": "_" * MILLION,
    "digits": "9" * MILLION,
    "Chinese": "磨坊在河边那里有三百四十五袋面粉" * 42_000,
    "base64": base64.b64encode(random.Random(0).randbytes(750_000)).decode(),
    "marks": "\u0301" * 500_000,
    "marks and capitals": "\u0301A" * 300_000,
    "capitals after a letter without case": ("日" + "A" * 999) * 1000,
    "a capital after each": "日A" * 300_000,
    "a newline and many spaces": "\n" + " " * MILLION + "x",
    "newlines among spaces": ("\n" + " " * 999) * 1000,
    "signs with line ends": "!\n/" * 300_000,
}
SPLITS = [Split.GPT2, Split.CL100K, Split.O200K]
"""The others share cl100k's code."""


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LONG)
def test_a_million_characters(split: Split, name: str) -> None:
    native = NativeCutter(SplitRule(split=split))
    part, whole = (column_buffers(pa.array([text], pa.large_string())) for text in (LONG[name][:100_000], LONG[name]))
    assert np.array_equal(native.cut(part), ReferenceCutter(native.rule).cut(part))
    start = time.process_time()
    native.cut(whole)
    # A few milliseconds; steps quadratic in the length would take hours.
    assert time.process_time() - start < 1


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["small letters", "capitals", "spaces", "underscores", "Chinese"])
def test_a_long_piece_stays_whole(split: Split, name: str) -> None:
    text = column_buffers(pa.array([LONG[name]], pa.large_string()))
    assert NativeCutter(SplitRule(split=split)).cut(text).tolist() == [len(text.data)]
