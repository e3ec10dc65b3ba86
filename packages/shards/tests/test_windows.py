"""The mixture reader: each window once an epoch, held-out ones never, the same whoever asks and in which pieces."""

from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import MixtureManifest, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards import MixtureReader, num_windows

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
MakeMixture = Callable[..., LoadedManifest[MixtureManifest]]


@pytest.mark.parametrize(
    ("num_tokens", "sequence_length", "expected"),
    [(0, 64, 0), (1, 64, 0), (50, 64, 0), (64, 64, 0), (65, 64, 1), (128, 64, 1), (129, 64, 2), (2, 1, 1)],
)
def test_a_window_needs_one_token_more_than_its_length(num_tokens: int, sequence_length: int, expected: int) -> None:
    assert num_windows(num_tokens, sequence_length) == expected


def test_splits_hold_out_the_share_from_the_end(two_sources: MixtureReader) -> None:
    # 644 tokens are 40 windows of 16, 2000 are 124.
    assert two_sources.splits == ((36, 4), (112, 12))


def test_each_training_window_comes_once_an_epoch_and_epochs_differ(two_sources: MixtureReader) -> None:
    located = two_sources.locate(np.arange(1200))
    visits: dict[tuple[int, int], list[int]] = defaultdict(list)
    for source, epoch, window in zip(*(part.tolist() for part in located), strict=True):
        visits[source, epoch].append(window)
    complete = {key: windows for key, windows in visits.items() if len(windows) == two_sources.splits[key[0]][0]}
    assert {(0, epoch) for epoch in range(8)} | {(1, epoch) for epoch in range(8)} == set(complete)
    for (source, _), windows in complete.items():
        assert sorted(windows) == list(range(two_sources.splits[source].num_training))
    for windows in visits.values():
        assert len(set(windows)) == len(windows)
    orders = {(source, tuple(windows)) for (source, _), windows in complete.items()}
    assert len(orders) == len(complete), "every epoch has its own order"


def test_shares_are_the_weights_at_every_prefix(two_sources: MixtureReader) -> None:
    source = two_sources.locate(np.arange(4000)).source
    prose = np.cumsum(source == 1)
    assert (np.abs(prose - 0.75 * np.arange(1, 4001)) < 1).all()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2000), max_size=40), st.integers(1, 7))
def test_any_split_into_batches_gives_the_same_samples(
    two_sources: MixtureReader, wanted: list[int], batch: int
) -> None:
    indices = np.array(wanted, np.int64)
    whole = two_sources.windows(indices)
    assert whole.shape == (len(wanted), 17)
    assert whole.dtype == np.int32
    pieces = [two_sources.windows(indices[at : at + batch]) for at in range(0, len(wanted), batch)]
    assert (np.concatenate([np.empty((0, 17), np.int32), *pieces]) == whole).all()


def test_windows_are_the_tokens_that_locate_names(two_sources: MixtureReader) -> None:
    """Token i of a source of the fixture has the id i."""
    indices = np.arange(300)
    located = two_sources.locate(indices)
    assert (two_sources.windows(indices) == located.window[:, None] * 16 + np.arange(17)).all()


def test_held_out_windows_are_never_drawn(two_sources: MixtureReader) -> None:
    located = two_sources.locate(np.arange(5000))
    for source, name in enumerate(("code", "prose")):
        training, held_out = two_sources.splits[source]
        assert located.window[located.source == source].max() == training - 1
        validation = two_sources.validation(name)
        assert validation.shape == (held_out, 17) == (two_sources.num_validation(name), 17)
        assert (validation[:, 0] == (training + np.arange(held_out)) * 16).all()
        assert (two_sources.validation(name, 1, 2) == validation[1:3]).all()
        assert two_sources.validation(name, held_out - 1, 50).shape == (1, 17)
        assert two_sources.validation(name, held_out + 3).shape == (0, 17)
    with pytest.raises(InputError, match="no source 'web'; it has code, prose"):
        two_sources.validation("web")


def test_several_threads_read_what_one_reads(two_sources: MixtureReader) -> None:
    batches = [np.arange(at * 65_530, at * 65_530 + 12) for at in range(24)] * 4
    expected = [two_sources.windows(batch) for batch in batches]
    fresh = MixtureReader(two_sources.manifest, two_sources.sources, 16)
    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(fresh.windows, batches), expected, strict=True):
            assert (found == wanted).all()


def test_seed_sequence_length_and_sources_are_all_the_order_depends_on(
    make_tokens: MakeTokens, make_mixture: MakeMixture
) -> None:
    tokens = make_tokens("a", [[5000]])
    orders = {}
    for seed in (0, 1):
        for attempt in (0, 1):
            reader = MixtureReader.open(make_mixture({"a": (tokens, 1)}, seed=seed).url, 16)
            orders[seed, attempt] = reader.locate(np.arange(100)).window.tolist()
    assert orders[0, 0] == orders[0, 1] != orders[1, 0] == orders[1, 1]


def test_a_moved_dataset_gives_the_same_order(
    two_sources: MixtureReader, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    before = two_sources.windows(np.arange(50))
    tmp_path.rename(elsewhere)
    tmp_path.mkdir()
    assert (MixtureReader.open(str(elsewhere / "mixture"), 16).windows(np.arange(50)) == before).all()


@pytest.mark.parametrize(("num_tokens", "fits"), [(50, False), (64, False), (65, True)])
def test_a_source_shorter_than_a_window_is_refused_with_have_and_need(
    make_tokens: MakeTokens, make_mixture: MakeMixture, num_tokens: int, fits: bool
) -> None:
    mixture = make_mixture({"small": (make_tokens("small", [[num_tokens]]), 1)})
    if fits:
        assert MixtureReader.open(mixture.url, 64).windows(np.arange(3)).shape == (3, 65)
    else:
        message = f"source small has {num_tokens} tokens; sequence length 64 needs at least 65"
        with pytest.raises(InputError, match=message):
            MixtureReader.open(mixture.url, 64)


@pytest.mark.parametrize(("share", "held_out"), [(0.0001, 0), (0.049, 0), (0.96, 10)])
def test_a_validation_share_that_leaves_a_side_empty_is_refused(
    make_tokens: MakeTokens, make_mixture: MakeMixture, share: float, held_out: int
) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[161]]), 1)}, validation_share=share)
    with pytest.raises(InputError, match=f"10 windows .* share of {share} holds out {held_out} of them"):
        MixtureReader.open(mixture.url, 16)


@pytest.mark.parametrize(("share", "held_out"), [(0.0, 0), (0.05, 1), (0.14, 1), (0.15, 2), (0.9, 9)])
def test_the_held_out_share_is_rounded_half_up(
    make_tokens: MakeTokens, make_mixture: MakeMixture, share: float, held_out: int
) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[161]]), 1)}, validation_share=share)
    assert MixtureReader.open(mixture.url, 16).splits == ((10 - held_out, held_out),)


def test_a_source_without_weight_may_be_short_and_is_never_drawn(
    make_tokens: MakeTokens, make_mixture: MakeMixture
) -> None:
    parts = {"a": (make_tokens("a", [[500]]), 3), "unused": (make_tokens("unused", [[5]]), 0)}
    reader = MixtureReader.open(make_mixture(parts).url, 16)
    assert Counter(reader.locate(np.arange(1000)).source.tolist()) == {0: 1000}


def test_a_trace_names_the_documents_of_a_sample_and_covers_it(two_sources: MixtureReader) -> None:
    for index in range(60):
        tokens = two_sources.windows(np.array([index]))[0]
        documents = two_sources.trace(index)
        assert documents[0]["first_token"] == 0
        assert documents[-1]["last_token"] == 16
        for document, following in pairwise(documents):
            assert document["last_token"] + 1 == following["first_token"]
        for document in documents:
            source = next(source for source in two_sources.sources if source.name == document["source"])
            place = source.locate_document(int(tokens[document["first_token"]]))
            assert (document["shard"], document["document"]) == (place.shard, place.document)
            assert document["file"] == f"{source.name}/{place.shard}.jsonl"
            assert document["row"] == 10 + place.document
            assert source.locate_document(int(tokens[document["last_token"]])) == place


def test_other_tokens_than_those_mixed_are_refused(make_tokens: MakeTokens, make_mixture: MakeMixture) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[500]]), 1)})
    make_tokens("a", [[501]])
    with pytest.raises(VerificationError, match="made from tokens 'a' with digest"):
        MixtureReader.open(mixture.url, 16)


def test_sources_that_do_not_fit_the_manifest_are_refused(two_sources: MixtureReader) -> None:
    code, prose = two_sources.sources
    with pytest.raises(InputError, match="sources are code, prose; got prose, code"):
        MixtureReader(two_sources.manifest, [prose, code], 16)
    with pytest.raises(InputError, match="sequence_length must be at least 1, got 0"):
        MixtureReader(two_sources.manifest, [code, prose], 0)
    items = tuple(item.model_copy(update={"tokens": item.tokens + 1}) for item in two_sources.manifest.sources)
    changed = two_sources.manifest.model_copy(update={"sources": items})
    with pytest.raises(VerificationError, match=r"code has 644 tokens .* made with 645"):
        MixtureReader(changed, [code, prose], 16)


def test_damage_is_refused_before_a_window_is_read(two_sources: MixtureReader) -> None:
    path = two_sources.sources[1].folder / "shard-00002.bin"
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:1] + bytes([content[1] ^ 1]) + content[2:])
    mixture = str(two_sources.sources[1].folder.parent / "mixture")
    MixtureReader.open(mixture, 16, verify="sizes")
    for verify in ("auto", "full"):
        with pytest.raises(VerificationError, match=r"shard-00002\.bin.*sha256"):
            MixtureReader.open(mixture, 16, verify=verify)
    path.write_bytes(content[:-1])
    with pytest.raises(VerificationError, match=r"shard-00002\.bin has 1,999 bytes"):
        MixtureReader.open(mixture, 16, verify="sizes")
