"""Hashes of documents: the same for ever, spread evenly, and beside every document that is tokenized."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenmill_core.errors import VerificationError
from tokenmill_shards.formats.mmididx import sequence_offsets
from tokenmill_shards.formats.places import is_held_out, read_hashes
from tokenmill_shards.writing.document_hashes import hash_ids, hash_texts
from tokenmill_shards.writing.tokenize import TokenizeConfig

MASK = (1 << 64) - 1
FACTOR = 0x9E3779B97F4A7C15


def reference(content: bytes) -> int:
    """The hash, in long integers."""
    h = len(content) * FACTOR & MASK
    whole = len(content) // 8 * 8
    for start in range(0, whole, 8):
        h = (h ^ int.from_bytes(content[start : start + 8], "little")) * FACTOR & MASK
        h ^= h >> 32
    x = h ^ int.from_bytes(content[whole:], "little")
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor & MASK
    return (x ^ (x >> 31)) | 1


def hashes_of(texts: list[str]) -> list[int]:
    return hash_texts(pa.array(texts, pa.large_string())).tolist()


def test_a_hash_never_changes() -> None:
    """Documents would change sides. Whoever changes one of these numbers breaks every held-out set there is."""
    assert hashes_of(["", "a", "The quick brown fox.", "日本語"]) == [
        1,
        18119689086777206669,
        8857777771341864743,
        16675879391202539781,
    ]
    assert hash_ids([1, 2, 3], [0, 3, 3]).tolist() == [7795482969809145273, 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=8), st.integers(0, 8))
def test_hashes_of_texts(texts: list[str], start: int) -> None:
    column = pa.array(texts, pa.large_string())[start:]
    assert hash_texts(column).tolist() == [reference(text.encode()) for text in texts[start:]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 65_535), max_size=12), max_size=8),
    st.sampled_from([np.uint16, np.int32, np.int64, np.uint32]),
)
def test_hashes_of_ids_do_not_depend_on_their_type(documents: list[list[int]], dtype: type[np.integer[Any]]) -> None:
    ids = np.array([id for document in documents for id in document], dtype)
    offsets = sequence_offsets([len(document) for document in documents])
    expected = [reference(np.array(document, "<i4").tobytes()) for document in documents]
    assert hash_ids(ids, offsets).tolist() == expected


def test_texts_that_differ_little_are_spread_evenly() -> None:
    """χ² of 256 ranges of the hash over 51,200 documents: its mean is 255, and 350 is four deviations above."""
    for texts in (
        [str(n) for n in range(51_200)],
        [f"The quick brown fox jumps over the lazy dog, {n} times a day." for n in range(51_200)],
        ["x" * (n % 200) + "y" * (n // 200) for n in range(51_200)],
    ):
        hashes = hash_texts(pa.array(texts, pa.large_string()))
        assert np.unique(hashes).size == len(texts)
        counts = np.bincount((hashes >> np.uint64(56)).astype(np.int64), minlength=256)
        assert float(((counts - 200.0) ** 2 / 200).sum()) < 350
        for share in (0.0005, 0.01, 0.3):
            spread = (share * (1 - share) * len(texts)) ** 0.5
            assert abs(int(is_held_out(hashes, share).sum()) - share * len(texts)) < 5 * spread


def test_tokenize_writes_the_hash_of_each_text_whatever_stands_around_it(tokenize: Callable[..., Any]) -> None:
    texts = ["one two", "日本語", "x", "one two"]
    plain = tokenize("plain", texts)
    other = tokenize("other", texts, append_end_of_document=False, shard_bytes=8, reader={"carry": ("url",)})
    assert len(other.manifest.shards) > 1
    for tokens in (plain, other):
        paths = [Path(tokens.folder) / f"{name}.documents.parquet" for name in tokens.manifest.shards]
        assert np.concatenate([read_hashes(path) for path in paths]).tolist() == hashes_of(texts)
        assert all(pq.read_schema(path).field("hash").type == pa.uint64() for path in paths)


def test_rejected_documents_leave_the_hashes_of_the_others_in_order(tokenize: Callable[..., Any]) -> None:
    rows = [{"text": "one", "m": True}, {"text": "two", "m": 7}, {"text": "three", "m": False}]
    tokens = tokenize("a", rows, loss_mask="m")
    assert read_hashes(Path(tokens.folder) / "shard-00000.documents.parquet").tolist() == hashes_of(["one", "three"])


def test_a_shard_without_hashes_is_named_with_the_remedy(tokenize: Callable[..., Any]) -> None:
    path = Path(tokenize("a", ["one"]).folder) / "shard-00000.documents.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["hash"]), path)
    with pytest.raises(VerificationError, match=rf"{path} has no column 'hash'.*tokenize again"):
        read_hashes(path)


def test_no_other_column_takes_the_name() -> None:
    with pytest.raises(ValidationError, match="'hash' stands beside each document anyway"):
        TokenizeConfig(tokenizer="t", reader={"carry": ("hash",)})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="'hash' cannot hold loss masks"):
        TokenizeConfig(tokenizer="t", loss_mask="hash")
