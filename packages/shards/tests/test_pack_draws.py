"""Which documents each chunk takes: every one once an epoch, in an order of that epoch, as far as tokens are owed."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards import MixtureReader, TokenStream
from tokenmill_shards.packing.draws import drawn_documents, plan_draws


@pytest.fixture
def reader(make_tokens: Callable[..., Any], make_mixture: Callable[..., Any]) -> MixtureReader:
    """One source of 28 documents with tokens in three shards, one of them empty, and two documents without tokens."""
    tokens = make_tokens("one", [[4, 0, 9, 1, 17] * 2, [], [30, 2, 5, 8] * 5])
    return MixtureReader.open(make_mixture({"one": (tokens, 1)}).url, 8)


def drawn(manifest: MixtureManifest, stream: TokenStream, targets: list[int]) -> list[list[tuple[int, ...]]]:
    """(epoch, shard, document, tokens) of the documents of each chunk between `targets`."""
    draws = plan_draws(manifest, stream, np.array(targets))
    chunks = [drawn_documents(manifest, 0, stream, draws, chunk) for chunk in range(len(targets) - 1)]
    return [list(zip(*(c.tolist() for c in (p.epoch, p.shard, p.document, p.num_tokens)), strict=True)) for p in chunks]


def test_each_epoch_has_all_documents_in_an_order_of_its_own(reader: MixtureReader) -> None:
    stream = reader.training[0]
    (first,), (second,) = (
        drawn(reader.manifest, stream, [n * stream.num_tokens, (n + 1) * stream.num_tokens]) for n in (0, 1)
    )
    assert {epoch for epoch, *_ in first} == {0}
    assert {epoch for epoch, *_ in second} == {1}
    assert len(set(first)) == len(first) == 28
    assert [document[1:] for document in first] != [document[1:] for document in second]
    assert sorted(document[1:] for document in first) == sorted(document[1:] for document in second)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_chunks_join_up_and_give_what_is_owed(reader: MixtureReader, targets: list[int]) -> None:
    stream, targets = reader.training[0], [0, *sorted(targets)]
    chunks = drawn(reader.manifest, stream, targets)
    assert [document for chunk in chunks for document in chunk] == drawn(reader.manifest, stream, [0, targets[-1]])[0]
    given_before = 0
    for chunk, (_, owed) in zip(chunks, pairwise(targets), strict=True):
        starts = given_before + np.cumsum([0, *(tokens for *_, tokens in chunk)])
        assert (starts[:-1] < owed).all()
        assert starts[-1] >= owed
        given_before = int(starts[-1])
