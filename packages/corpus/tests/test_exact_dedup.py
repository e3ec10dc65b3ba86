"""Exact duplicates: the first of equal documents stays, wherever the others lie."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.dedup import DIGEST_DTYPE, first_occurrences, text_digests
from tokenmill_corpus.text_buffers import text_buffers


def digests_of(texts: list[str]) -> np.ndarray:
    return text_digests(text_buffers(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["", "a", "b", "ab", "ü", "u\u0308", "a\n", "a\r\n"]), max_size=6), max_size=5)
)
def test_a_document_stays_unless_an_earlier_one_of_any_part_equals_it(parts: list[list[str]]) -> None:
    seen: set[str] = set()
    expected = []
    for part in parts:
        expected.append([text not in [*seen, *part[:place]] for place, text in enumerate(part)])
        seen.update(part)
    found = first_occurrences([digests_of(part) for part in parts])
    assert [keep.tolist() for keep in found] == expected


def test_digests_tell_apart_texts_that_no_normal_form_may_join() -> None:
    texts = ["é", "e\u0301", "E", "e", "e ", "", "\ufeffe", "ＡＢＣ", "ABC"]
    assert len({bytes(digest) for digest in digests_of(texts)}) == len(texts)


def test_a_digest_is_that_of_the_utf8_bytes_wherever_the_slice_starts() -> None:
    texts = ["zero", "ein Wörtchen", "", "三"]
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    found = text_digests(text_buffers(batch.slice(1)))
    assert found.dtype == DIGEST_DTYPE
    expected = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts[1:]]
    assert [bytes(digest) for digest in found] == expected


@pytest.mark.parametrize("parts", [[], [[]], [[], ["a"], []]])
def test_parts_without_documents(parts: list[list[str]]) -> None:
    found = first_occurrences([digests_of(part) for part in parts])
    assert [keep.tolist() for keep in found] == [[True] * len(part) for part in parts]


def test_digests_that_differ_in_one_half_only_are_different() -> None:
    """The sort takes the 128 bits as two numbers: both must count."""
    values = [bytes(16), bytes(15) + b"\x01", b"\x01" + bytes(15), bytes(7) + b"\x01" + bytes(8), bytes(16)]
    found = first_occurrences([np.frombuffer(b"".join(values), DIGEST_DTYPE)])
    assert found[0].tolist() == [True, True, True, True, False]
