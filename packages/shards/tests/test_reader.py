"""The mixture reader: the samples that the mixture names, the same whoever asks and in which pieces."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards import MixtureReader
from tokenmill_shards.audit.parts import parts_of, tokens_of

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
MakeMixture = Callable[..., LoadedManifest[MixtureManifest]]
LENGTH = 16


def again(reader: MixtureReader, length: int = LENGTH, **options: bool) -> MixtureReader:
    return MixtureReader(reader.manifest, [stream.store for stream in reader.training], length, **options)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2000), max_size=40), st.integers(1, 7), st.booleans())
def test_any_split_into_batches_gives_the_same_samples(
    two_sources: MixtureReader, wanted: list[int], batch: int, consecutive: bool
) -> None:
    first = wanted[0] if wanted else 0
    indices = np.arange(first, first + len(wanted)) if consecutive else np.array(wanted, np.int64)
    whole = two_sources.samples(indices).tokens
    assert whole.shape == (len(wanted), 17)
    assert whole.dtype == np.int64
    pieces = [two_sources.samples(indices[at : at + batch]).tokens for at in range(0, len(wanted), batch)]
    assert (np.concatenate([np.empty((0, 17), np.int64), *pieces]) == whole).all()


def test_samples_are_the_windows_that_the_mixture_names(two_sources: MixtureReader) -> None:
    indices = np.arange(600)
    source, _, window = two_sources.mixture.locate(indices)
    tokens = two_sources.samples(indices).tokens
    for number, stream in enumerate(two_sources.training):
        whole = np.empty(stream.num_tokens, np.int64)
        stream.read_into(whole, 0)
        starts = window[source == number] * LENGTH
        assert (tokens[source == number] == whole[starts[:, None] + np.arange(LENGTH + 1)]).all()


def test_held_out_documents_are_never_drawn_and_make_up_validation(two_sources: MixtureReader) -> None:
    """Token i of a source of the fixture has the id i, so ids tell where a token stands."""
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    indices = np.arange(1500)
    for source, row in zip(
        two_sources.mixture.locate(indices).source.tolist(), two_sources.samples(indices).tokens.tolist(), strict=True
    ):
        seen[source] |= set(row)
    for source, name in enumerate(("code", "prose")):
        stream = two_sources.held_out[source]
        held_out = np.empty(stream.num_tokens, np.int64)
        stream.read_into(held_out, 0)
        assert held_out.size == {"code": 44, "prose": 100}[name]
        assert not seen[source] & set(held_out.tolist())
        tokens, counted, _, _, sources = two_sources.validation(name)
        assert (sources == source).all()
        assert len(tokens) == two_sources.num_validation(name) == -(-(held_out.size - 1) // LENGTH)
        assert tokens[:, 1:][counted].tolist() == held_out[1:].tolist(), "each held-out token is a label once"
        assert (two_sources.validation(name, [2, 1]).tokens == tokens[[2, 1]]).all()
        assert two_sources.validation(name, [len(tokens) - 1]).tokens.shape == (1, 17)
        assert two_sources.validation(name, []).tokens.shape == (0, 17)
    with pytest.raises(InputError, match="no source 'web'; it has code, prose"):
        two_sources.validation("web")


def test_documents_kept_apart_restart_positions_and_predict_no_first_token(two_sources: MixtureReader) -> None:
    indices = np.arange(300)
    tokens, counted, cu_seqlens, positions, sources = again(two_sources, documents=True).samples(indices)
    assert (tokens == two_sources.samples(indices).tokens).all()
    inside = two_sources.samples(indices)
    assert inside.counted is inside.cu_seqlens is inside.positions is None
    assert (sources == inside.sources).all()
    begins = {int(place) for place in cu_seqlens[:-1]}
    assert cu_seqlens[-1] == 300 * LENGTH
    for index in indices.tolist():
        parts = parts_of(two_sources, index)
        firsts = [part.first_token for part in parts if part.first_token < LENGTH]
        assert [place - index * LENGTH for place in sorted(begins) if index == place // LENGTH] == firsts
        lengths = np.diff([*firsts, LENGTH])
        assert positions[index].tolist() == [i for length in lengths for i in range(length)]
        not_counted = (np.flatnonzero(~counted[index]) + 1).tolist()
        assert not_counted == [part.first_token for part in parts if part.first_token > 0]


@pytest.mark.parametrize("first", [0, 500, 65_530])
def test_samples_know_their_sources_however_they_are_asked_for(two_sources: MixtureReader, first: int) -> None:
    assert two_sources.source_names == ("code", "prose")
    indices = np.arange(first, first + 40)
    sources = two_sources.mixture.locate(indices).source
    assert 0 < sources.sum() < 40
    for chosen in (indices, indices[::-1], indices[3:4]):
        found = two_sources.samples(chosen).sources
        assert np.array_equal(found, sources[chosen - first])
        found[:] = -1  # what is handed out is the caller's
    assert np.array_equal(two_sources.samples(indices).sources, sources)


def test_several_threads_read_what_one_reads(two_sources: MixtureReader) -> None:
    batches = [np.arange(at * 65_530, at * 65_530 + 12) for at in range(24)] * 4
    expected = [two_sources.samples(batch).tokens for batch in batches]
    fresh = again(two_sources)
    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(fresh.samples, batches), expected, strict=True):
            assert (found.tokens == wanted).all()


def test_a_moved_dataset_gives_the_same_order(
    two_sources: MixtureReader, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    before = two_sources.samples(np.arange(50)).tokens
    tmp_path.rename(elsewhere)
    tmp_path.mkdir()
    assert (MixtureReader.open(str(elsewhere / "mixture"), LENGTH).samples(np.arange(50)).tokens == before).all()


def test_the_parts_of_a_sample_are_what_its_documents_hold(two_sources: MixtureReader) -> None:
    for index in range(60):
        tokens = two_sources.samples(np.array([index])).tokens[0]
        parts = parts_of(two_sources, index)
        assert (parts[0].first_token, parts[-1].last_token) == (0, LENGTH)
        assert all(part.last_token + 1 == following.first_token for part, following in pairwise(parts))
        for part in parts:
            assert part.store is not None
            assert part.store.name == part.source
            held = tokens_of(part, part.store).tolist()
            assert held == tokens[part.first_token : part.last_token + 1].tolist()
            place = part.store.place(part.shard, part.document)
            assert place.file == f"{part.source}/{part.store.shard_name(part.shard)}.jsonl"
            assert place.row == 10 + part.document


def test_other_tokens_than_those_mixed_are_refused(make_tokens: MakeTokens, make_mixture: MakeMixture) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[500]]), 1)})
    make_tokens("a", [[501]])
    with pytest.raises(VerificationError, match="made from tokens 'a' with digest"):
        MixtureReader.open(mixture.url, LENGTH)


def test_damage_is_refused_before_a_sample_is_read(two_sources: MixtureReader, tmp_path: Path) -> None:
    path = tmp_path / "prose" / "shard-00002.bin"
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:1] + bytes([content[1] ^ 1]) + content[2:])
    with pytest.raises(VerificationError, match=r"shard-00002\.bin: sha256 is"):
        MixtureReader.open(str(tmp_path / "mixture"), LENGTH)
    assert MixtureReader.open(str(tmp_path / "mixture"), LENGTH, verify="sizes").samples(np.arange(3)).tokens.size
