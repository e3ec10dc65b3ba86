"""Streams of documents: training and held-out ones together are the shards, each read as if it lay in one piece."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import MixtureSource
from tokenmill_shards import ShardStore, TokenStream
from tokenmill_shards.formats.places import is_held_out
from tokenmill_shards.mixing.held_out import count_shards
from tokenmill_shards.reading.store import shard_tokens

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
LENGTHS = [[5, 0, 3, 7, 1], [], [1], [0, 0, 9, 2, 0, 4, 4, 8]]


def source_of(loaded: LoadedManifest[TokensManifest], share: float) -> MixtureSource:
    sizes = shard_tokens(loaded.manifest)
    counts = count_shards(loaded, share, range(len(sizes)))
    held_out = counts.shard_tokens if share else ()
    return MixtureSource(
        name="a", input=0, documents=0, tokens=sum(sizes), shard_tokens=sizes, held_out_tokens=held_out
    )


def documents_of(loaded: LoadedManifest[TokensManifest], share: float, held_out: bool) -> list[tuple[int, int, list]]:
    """(shard, document, tokens) of each document with tokens on one side: what a stream must be, the plain way."""
    store, found = ShardStore("a", lambda: loaded, loaded.manifest.dtype), []
    for shard in range(len(loaded.manifest.shards)):
        offsets = store.index(shard).document_offsets
        sides = is_held_out(store.hashes(shard), share)
        for number, (first, stop) in enumerate(pairwise(offsets)):
            if first < stop and sides[number] == held_out:
                found.append((shard, number, store.tokens(shard)[first:stop].tolist()))
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    st.booleans(),
)
def test_a_stream_is_its_documents_one_after_another(make_tokens: MakeTokens, lengths, share, held_out) -> None:
    loaded = make_tokens("a", lengths)
    store = ShardStore("a", lambda: loaded, loaded.manifest.dtype, max_open_shards=2)
    make = TokenStream.held_out if held_out else TokenStream.training
    stream, documents = make(store, source_of(loaded, share), share), documents_of(loaded, share, held_out)
    tokens = [token for _, _, own in documents for token in own]
    assert stream.num_tokens == len(tokens)
    firsts = np.cumsum([0, *(len(own) for _, _, own in documents)]).tolist()
    for start in range(len(tokens)):
        for stop in {start + 1, min(start + 7, len(tokens)), len(tokens)}:
            row = np.empty(stop - start, np.int64)
            stream.read_into(row, start)
            assert row.tolist() == tokens[start:stop]
            assert stream.starts(start, stop).tolist() == [first for first in firsts[:-1] if start <= first < stop]
            wanted = [
                (shard, number, first, last)
                for (shard, number, _), first, last in zip(documents, firsts, firsts[1:], strict=False)
                if first < stop and last > start
            ]
            assert [tuple(piece) for piece in stream.overlapping(start, stop)] == wanted


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (42, 3), (44, 1), (500, 2)])
def test_a_window_outside_the_stream_is_refused(make_tokens: MakeTokens, start: int, length: int) -> None:
    loaded = make_tokens("a", LENGTHS)
    stream = TokenStream.whole(ShardStore("a", lambda: loaded, "uint16"))
    with pytest.raises(IndexError, match=f"tokens {start} to {start + length} of 44"):
        stream.read_into(np.empty(length, np.int32), start)


def test_masks_move_with_their_tokens(make_tokens: MakeTokens) -> None:
    loaded = make_tokens("a", LENGTHS)
    folder = Path(loaded.folder)
    stream = TokenStream.training(ShardStore("a", lambda: loaded, "uint16"), source_of(loaded, 0.5), 0.5)
    row = np.empty(stream.num_tokens, np.uint8)
    stream.mask_into(row, 0)
    assert row.all(), "every token counts where the dataset has no masks"
    assert not list(folder.glob("*.loss_mask.bin"))


def test_a_count_that_is_not_the_documents_is_refused(make_tokens: MakeTokens) -> None:
    loaded = make_tokens("a", LENGTHS)
    source = source_of(loaded, 0.5)
    shifted = tuple(max(0, n - 1) for n in source.held_out_tokens)
    wrong = source.model_copy(update={"held_out_tokens": shifted})
    stream = TokenStream.training(ShardStore("a", lambda: loaded, "uint16"), wrong, 0.5)
    with pytest.raises(VerificationError, match=r"shard-0000\d\.idx: its documents, .*parquet, give a .* tokens, but"):
        [stream.documents(shard) for shard in range(4)]


def test_a_dataset_without_shards_or_tokens_is_an_empty_stream(make_tokens: MakeTokens) -> None:
    for name, lengths in (("a", []), ("b", [[], [0, 0]])):
        loaded = make_tokens(name, lengths)
        assert TokenStream.whole(ShardStore(name, lambda loaded=loaded: loaded, "uint16")).num_tokens == 0
