"""Normalising texts."""

import unicodedata
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit
from tokenmill_corpus.filters.normalise import Normalise

ALL = {"newlines": "lf", "remove_controls": True, "unicode_form": "nfc"}


def apply(*texts: str, **options: object) -> Edit | None:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return Normalise(**options).apply(Documents(batch)).edit


def normalised(*texts: str, **options: object) -> list[str]:
    edit = apply(*texts, **options)
    if edit is None:
        return list(texts)
    data, bounds = edit.text.data.tobytes(), edit.text.offsets.tolist()
    return [data[a:b].decode() for a, b in pairwise(bounds)]


def test_nothing_happens_unless_asked_for() -> None:
    assert apply("a\r\nb\x00e\u0301 cafÃ©") is None


def test_text_that_needs_nothing_is_not_touched() -> None:
    assert apply("plain\ttext\n", "größer – “ja” 日本語 한국어 русский ไทย हिन्दी", "", **ALL, mojibake=True) is None


@pytest.mark.parametrize("line_break", ["\r\n", "\r", "\v", "\f", "\u0085", "\u2028", "\u2029"])
def test_line_breaks_become_line_feeds(line_break: str) -> None:
    texts = [f"a{line_break}{line_break}é\n{line_break}", "x", line_break]
    assert normalised(*texts, newlines="lf") == ["a\n\né\n\n", "x", "\n"]
    assert normalised(*texts, remove_controls=True) == texts, "white space is no control character to remove"


def test_control_characters_go() -> None:
    assert normalised("a\x00b\x1bc\x7fd\u0080e\u009f\t\nf", remove_controls=True) == ["abcde\t\nf"]


def test_composed_characters() -> None:
    edit = apply("cafe\u0301", "é", "\u1112\u1161\u11ab", "क\u093c", "\u212b", unicode_form="nfc")
    assert edit is not None
    assert normalised("cafe\u0301", "\u1112\u1161\u11ab", "\u212b", unicode_form="nfc") == ["café", "한", "Å"]
    assert edit.count["unicode_form"].tolist() == [1, 0, 1, 0, 1]


def test_mojibake_is_repaired_line_by_line() -> None:
    assert normalised("cafÃ© â€” dÃ©jÃ  vu\ncafé\n", "naïve", mojibake=True) == ["café — déjà vu\ncafé\n", "naïve"]
    russian = "привет".encode().decode("latin-1")
    texts = ["Gardner\x92s", "voilÃ  le pain", russian]
    assert normalised(*texts, mojibake=True) == ["Gardner’s", "voilà le pain", "привет"]


def test_bytes_and_repairs_are_accounted_for_by_step() -> None:
    texts = ["a\r\nb\r", "\x00", "e\u0301\r\n", "ok"]
    edit = apply(*texts, **ALL)
    assert edit is not None
    assert {what: count.tolist() for what, count in edit.count.items()} == {
        "newlines": [2, 0, 1, 0],
        "controls": [0, 1, 0, 0],
        "unicode_form": [0, 0, 1, 0],
    }
    assert (edit.text.num_bytes + sum(edit.removed.values())).tolist() == [len(text.encode()) for text in texts]


CHARACTERS = st.characters(exclude_categories=("Cs",)) | st.sampled_from(
    "\r\n\u0085\u2028\x00e\u0301\u0323\u1161\u11a8가"
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(CHARACTERS, max_size=12), max_size=4))
def test_against_python(texts: list[str]) -> None:
    def reference(text: str) -> str:
        for line_break in ("\r\n", "\r", "\v", "\f", "\u0085", "\u2028", "\u2029"):
            text = text.replace(line_break, "\n")
        text = "".join(c for c in text if c in "\t\n" or unicodedata.category(c) != "Cc")
        return unicodedata.normalize("NFC", text)

    assert normalised(*texts, **ALL) == [reference(text) for text in texts]


def test_slices_of_batches() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["\r", "a\r", "b"], pa.large_string())], names=["text"])
    edit = Normalise(newlines="lf", unicode_form="nfc").apply(Documents(batch.slice(1, 2))).edit
    assert edit is not None
    assert (edit.text.data.tobytes(), edit.text.offsets.tolist()) == (b"a\nb", [0, 2, 3])


def test_later_steps_see_what_the_repair_made() -> None:
    def broken(text: str) -> str:
        return text.encode().decode("cp1252")

    texts = [f"schön {broken('scho')}{broken('o' + chr(0x308))}n gut", f"a {broken('“x')}{broken(chr(0x2028))}end"]
    found = normalised(*texts, **ALL, mojibake=True)
    assert found == [unicodedata.normalize("NFC", text) for text in found]
    assert "\u2028" not in "".join(found)
    assert found == normalised(*found, **ALL, mojibake=True)
