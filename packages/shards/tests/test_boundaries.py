"""Tokens between documents: what is put where, for any lengths and any of the two boundaries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_shards.writing.boundaries import Boundaries, surround

DOCUMENTS = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6)
IDS = st.one_of(st.none(), st.integers(10, 12))


@given(documents=DOCUMENTS, begin=IDS, end=IDS)
def test_each_document_stands_between_its_boundaries(
    documents: list[list[int]], begin: int | None, end: int | None
) -> None:
    ids = np.array([id for document in documents for id in document], np.uint32)
    lengths = np.array([len(document) for document in documents], np.int64)
    surrounded, new_lengths = Boundaries(begin, end).surround(ids, lengths)
    before, after = ([] if id is None else [id] for id in (begin, end))
    expected = [[*before, *document, *after] for document in documents]
    assert surrounded.tolist() == [id for document in expected for id in document]
    assert new_lengths.tolist() == [len(document) for document in expected]
    assert surrounded.dtype == np.uint32


def test_values_can_differ_between_documents() -> None:
    surrounded = surround(np.array([1, 2, 3]), np.array([2, 0, 1]), np.array([7, 8, 9]), np.array([4, 5, 6]))
    assert surrounded.tolist() == [7, 1, 2, 4, 8, 5, 9, 3, 6]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (None, None, [1, 0, 0, 1]),
        (5, None, [0, 1, 0, 0, 0, 1]),
        (None, 6, [1, 0, 0, 0, 1, 1]),
        (5, 6, [0, 1, 0, 0, 0, 0, 1, 1]),
    ],
)
def test_an_end_counts_where_the_text_before_it_does_and_a_beginning_never(
    begin: int | None, end: int | None, expected: list[int]
) -> None:
    mask = np.array([1, 0, 0, 1], np.uint8)
    assert Boundaries(begin, end).surround_mask(mask, np.array([2, 2])).tolist() == expected
