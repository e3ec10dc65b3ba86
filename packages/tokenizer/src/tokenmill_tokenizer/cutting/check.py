"""Whether compiled code cuts as the installed `tokenizers` does."""

from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Regex, pre_tokenizers

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_tokenizer.cutting.characters import PATTERNS, character_kinds
from tokenmill_tokenizer.cutting.native import NativeCutter
from tokenmill_tokenizer.cutting.reference import ReferenceCutter

SAMPLE = (
    "It's IT'S it'ſ we'RE I'Ll X'STORE x'Llx x'ſt x'store ''s x's'd o'clock 'é",
    "CamelCaseWORDx HTTPServer日本ABCd ǅungla ʰx Ⅳ½٣٤٥٦",
    "e\u0301E\u0301\u0301A \u0301a\u0301 \u0301\u0301B !\u0301c नमस्ते สวัสดี 한국어 ﬁ İstanbul ǆ ªº _a_ __init__ a_b",
    "1 12 123 1234 12345  123456\t7 ²³ x1y22z333 v1.2.3,444 १२३४ -5",
    "  two  three   \t\ttabs \r\n\r\n crlf\n\n  indented\n \n\r \n.\n/\n//\r\n;/ /x\n/",
    "a\u0085b\u00a0c\u00a0\u00a0d\u2028\u2029e\u3000\u3000f \u3000g\u200bh\u200d\ufefff\x1c\x1fz\x00\x0b\x0c",
    "👨\u200d👩\u200d👧\u200d👦 👍🏽!!! …(a)[b]{c}<|end|> #tag @x $5 \"'quote'\" ((( )))",
    "-- — ¿? \U0001d49c\U00020000\U0010ffff",
    "ends in white space \n \u00a0",
    "  ",
    "",
)
"""What the splits treat differently from each other, and what reimplementations get wrong."""


def find_difference(native: NativeCutter, reference: ReferenceCutter) -> str | None:
    """What the installed `tokenizers` does otherwise than `native`, in words; None if it agrees on what is tried."""
    changed = _changed_character()
    if changed is not None:
        return f"the installed tokenizers' Unicode differs from this package's, first at U+{changed:04X}"
    sample = column_buffers(pa.array(SAMPLE, pa.large_string()))
    if not np.array_equal(native.cut(sample), reference.cut(sample)):
        return "the installed tokenizers cuts the sample otherwise than compiled code"
    return None


@cache
def _changed_character() -> int | None:
    """The first character found that is of other kinds than the table says."""
    kinds = character_kinds()
    last_of_run = np.flatnonzero(np.diff(kinds))
    # New characters extend a run, or come in blocks that begin at a multiple of 16.
    tried = np.unique(np.concatenate([last_of_run, last_of_run + 1, np.arange(0, 0x40000, 16)]))
    return min(changed_characters(tried, kinds), default=None)


def changed_characters(codes: NDArray[np.int64], kinds: NDArray[np.uint8]) -> set[int]:
    """The code points among `codes` that the installed `tokenizers` takes for other than the table `kinds` says."""
    codes = codes[(codes < 0xD800) | (codes > 0xDFFF)]  # no text holds surrogates
    # Like beside like, so that few pieces come back.
    codes = codes[np.argsort(kinds[codes], kind="stable")]
    text = "".join(map(chr, codes.tolist()))
    changed: set[int] = set()
    for kind, pattern in PATTERNS.items():
        matching = np.ones(len(codes), np.bool_)
        for _, (first, last) in pre_tokenizers.Split(Regex(f"{pattern}+"), "removed").pre_tokenize_str(text):
            matching[first:last] = False
        changed.update(codes[matching != (kinds[codes] & kind > 0)].tolist())
    return changed
