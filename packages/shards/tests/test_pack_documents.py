"""Whole documents into sequences: what must hold whatever their lengths."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill_core.manifest import StageRef
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage
from tokenmill_shards.packing.documents import pack_documents
from tokenmill_shards.packing.pieces import PADDING, Pieces

LENGTH = 8


def mixture(seed: int = 0) -> MixtureManifest:
    return MixtureManifest(
        name="mixture",
        stage=StageRef(name="mix", version=1),
        config={},
        inputs=({"kind": "tokens", "name": "a", "version": "1", "digest": "0" * 64, "path": "a"},),
        sources=(MixtureSource(name="a", input=0, documents=1, tokens=1, shard_tokens=(1,)),),
        stages=(MixtureStage(name="all", first_token=0, weights=(1,)),),
        denominator=1,
        seed=seed,
        dtype="uint16",
        vocab_size=9,
        padded_vocab_size=9,
        tokenizer_sha256="0" * 64,
        end_of_document_id=None,
    )


def documents(lengths: Sequence[int]) -> Pieces:
    """Documents of one source, one after another in one shard."""
    sizes = np.array(lengths, np.int64)
    columns = {name: np.zeros(sizes.size, np.int64) for name in Pieces._fields}
    own = {"document": np.arange(sizes.size), "num_tokens": sizes, "document_tokens": sizes}
    return Pieces(**columns | own | {"physical": np.cumsum(sizes) - sizes})


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(1, 4 * LENGTH), max_size=60))
@example([1, LENGTH, LENGTH + 1, LENGTH + 2, 2 * LENGTH + 1, 2 * LENGTH + 2])
def test_every_token_is_stored_once_and_no_document_cut_that_fits(lengths: list[int]) -> None:
    pieces = pack_documents(mixture(), documents(lengths), LENGTH, chunk=0)
    held = pieces.take(pieces.source != PADDING)
    starts = np.cumsum(lengths) - lengths
    for number, size in enumerate(lengths):
        own = held.take(held.document == number)
        spans = sorted(zip(own.first_token.tolist(), own.num_tokens.tolist(), strict=True))
        assert own.physical.tolist() == (starts[number] + own.first_token).tolist()
        assert len(spans) == (1 if size <= LENGTH + 1 else -(-(size - 1) // LENGTH))
        labels = [first + place for first, tokens in spans for place in range(1, tokens)]
        assert labels == list(range(1, size))
    filled = np.bincount(pieces.sequence, pieces.num_tokens)
    assert (filled == LENGTH + 1).all()
    assert (np.diff(pieces.sequence) >= 0).all()
    padding = np.flatnonzero(pieces.source == PADDING)
    assert (pieces.sequence[padding] != np.append(pieces.sequence, -1)[padding + 1]).all()  # the last of its sequence


def test_neither_lengths_nor_the_order_of_drawing_say_where_a_document_is() -> None:
    lengths = [1, 8] * 2000
    pieces = pack_documents(mixture(), documents(lengths), LENGTH, chunk=0)
    places = np.arange(4000)
    assert abs(np.corrcoef(pieces.sequence, pieces.document)[0, 1]) < 0.05
    first = np.diff(pieces.sequence, prepend=-1) == 1
    assert 0.4 < (pieces.num_tokens[first] == 8).mean() < 0.6
    assert sorted(pieces.document.tolist()) == places.tolist()


@pytest.mark.parametrize("other", [{"seed": 1}, {"chunk": 1}])
def test_seed_and_chunk_decide_the_order(other: dict[str, int]) -> None:
    def order(seed: int = 0, chunk: int = 0) -> list[int]:
        return pack_documents(mixture(seed), documents([3, 5, 2, 8] * 20), LENGTH, chunk).document.tolist()

    assert order() == order()
    assert order() != order(**other)
