"""`prep pack`: what is stored, for both methods, beside the mixture it is made of."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError, StageError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import LoadedManifest, verify_files
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_shards import MixtureReader, Shard
from tokenmill_shards.packing import fill as fill_module
from tokenmill_shards.packing.pack import STAGE as PACK
from tokenmill_shards.packing.pack import PackConfig
from tokenmill_shards.packing.pieces import PADDING, read_pieces
from tokenmill_shards.packing.reader import PackedReader

Mix = Callable[..., LoadedManifest[MixtureManifest]]
LENGTH = 16
SHARD_BYTES = 40 * 2 * (LENGTH + 1)
"""40 sequences a shard."""


@pytest.fixture
def mixture(make_tokens: Callable[..., Any], make_mixture: Mix) -> LoadedManifest[MixtureManifest]:
    """Three sources; documents of 0, 1, L, L + 1, L + 2 and 2·L + 1 tokens among others, some of them held out."""
    edges = [0, 1, LENGTH, LENGTH + 1, LENGTH + 2, 2 * LENGTH + 1, 3 * LENGTH + 2, 1, 2]
    code = make_tokens("code", [[100, 20, 0, 90, 30, 160], [24, 243, 1], edges])
    prose = make_tokens("prose", [[300, 150, 50, 500], [], [7] * 40, [3, 5, 11] * 30])
    rare = make_tokens("rare", [edges * 2])
    parts = {"code": (code, 2), "prose": (prose, 5), "rare": (rare, 1)}
    return make_mixture(parts, seed=7, validation_share=0.2, later=[(150 * LENGTH, [5, 1, 2])])


def pack(mixture: LoadedManifest[Any], out: Path, workers: int = 1, **settings: Any) -> LoadedManifest[PackedManifest]:
    config = PackConfig(
        **{"sequence_length": LENGTH, "tokens": 300 * LENGTH, "shard_bytes": SHARD_BYTES, "method": "concat"} | settings
    )
    return build_stage(PACK.build(config, [mixture.url], None), str(out), LocalExecutor(workers)).loaded


def stored(packed: LoadedManifest[PackedManifest]) -> list[tuple[int, int, int, int, int, list[int]]]:
    """(source, epoch, shard, document, first token, tokens) of each piece that is stored; padding is left out."""
    folder, rows = Path(packed.folder), []
    for name in packed.manifest.shards:
        tokens = Shard(folder / name).tokens
        pieces = read_pieces(folder / f"{name}.pieces.parquet", packed.manifest.sequence_length + 1)
        start = 0
        columns = pieces.source, pieces.epoch, pieces.shard, pieces.document, pieces.first_token, pieces.num_tokens
        for *row, size in zip(*(column.tolist() for column in columns), strict=True):
            if row[0] != PADDING:
                rows.append((*row, tokens[start : start + size].tolist()))
            start += size
    return rows


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_each_piece_is_what_its_row_says(mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str) -> None:
    packed = pack(mixture, tmp_path / "packed", method=method)
    streams = MixtureReader.open(mixture.url, LENGTH).training
    for source, _, shard, document, first, tokens in stored(packed):
        store = streams[source].store
        begin = int(store.index(shard).document_offsets[document]) + first
        assert tokens == store.tokens(shard)[begin : begin + len(tokens)].tolist()


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_every_token_is_accounted_for(mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str) -> None:
    manifest = pack(mixture, tmp_path / "packed", method=method).manifest
    notes = manifest.notes
    assert manifest.counts.tokens == notes["drawn_tokens"] + notes["overlapping_tokens"] + notes["padding_tokens"]
    assert manifest.counts.tokens == manifest.num_samples * (LENGTH + 1) == notes["sequences"] * (LENGTH + 1)
    assert sum(map(sum, manifest.shard_source_tokens)) <= manifest.num_samples * LENGTH


def test_concat_is_the_mixture(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    packed = PackedReader.open(pack(mixture, tmp_path / "packed").url)
    reader = MixtureReader.open(mixture.url, LENGTH)
    indices = np.arange(300)
    assert packed.num_samples == 300
    assert np.array_equal(packed.samples(indices).tokens, reader.samples(indices).tokens)
    for number in (0, 1, 39, 40, 41, 170, 300):
        assert packed.use(number) == reader.use(number)


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_labels_know_the_source_they_are_of(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str, documents: bool
) -> None:
    packed = PackedReader.open(pack(mixture, tmp_path / "packed", method=method).url, documents=documents)
    assert packed.source_names == ("code", "prose", "rare")
    indices = np.random.default_rng(0).permutation(packed.num_samples)
    samples = packed.samples(indices)
    for row, index in enumerate(indices.tolist()):
        pieces = packed.pieces(index)
        expected = np.repeat(pieces.source, pieces.num_tokens)[1:]
        found = np.broadcast_to(samples.sources[row], LENGTH)[: len(expected)]
        assert np.array_equal(found, expected)
        if samples.counted is not None:
            assert not samples.counted[row, len(expected) :].any()
    if method == "best-fit" and not documents:
        labels = np.bincount(samples.sources[samples.counted], minlength=3)
        assert labels.tolist() == [use.tokens for use in packed.use(packed.num_samples)]


def test_concat_keeps_documents_apart_as_the_mixture_does(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path
) -> None:
    packed = PackedReader.open(pack(mixture, tmp_path / "packed").url, documents=True)
    indices = np.random.default_rng(0).permutation(300)
    samples = packed.samples(indices)
    expected = MixtureReader.open(mixture.url, LENGTH, documents=True).samples(indices)
    for ours, theirs in zip(samples, expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_concat_notes_what_windows_cut_and_lose(
    make_tokens: Callable[..., Any], make_mixture: Mix, tmp_path: Path
) -> None:
    # 35 tokens are two windows of 16 and 2 tokens that fill none: 3 epochs lose 6.
    mixture = make_mixture({"one": (make_tokens("one", [[16, 4, 10, 4, 1]]), 1)})
    notes = pack(mixture, tmp_path / "packed", tokens=6 * LENGTH).manifest.notes
    assert notes["lost_tokens"] == 6
    assert notes["drawn_tokens"] == 3 * 33
    assert notes["overlapping_tokens"] == 3
    # 0–16 in the first window, which ends with token 16; 16–20, 20–30 and 30–33 of 30–34 in the second, which begins
    # with it.
    assert notes["documents"] == 3 * 4
    assert notes["documents_cut_too_long"] == 0
    assert notes["documents_cut_that_fit"] == 3
    assert notes["padding_tokens"] == 0


def test_best_fit_draws_each_document_once_an_epoch_and_cuts_none_that_fits(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path
) -> None:
    packed = pack(mixture, tmp_path / "packed", method="best-fit")
    streams = MixtureReader.open(mixture.url, LENGTH).training
    covered: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for *document, first, tokens in stored(packed):
        covered.setdefault(tuple(document), []).append((first, len(tokens)))
    epochs = Counter((source, epoch) for source, epoch, *_ in covered)
    for (source, _, shard, document), parts in covered.items():
        offsets = streams[source].store.index(shard).document_offsets
        size = int(offsets[document + 1] - offsets[document])
        starts = list(range(0, max(1, size - 1), LENGTH))
        assert sorted(parts) == [(start, min(LENGTH + 1, size - start)) for start in starts]
    for source, stream in enumerate(streams):
        whole = sum(stream.documents(shard).numbers.size for shard in range(len(stream.shard_offsets) - 1))
        last = max(epoch for number, epoch in epochs if number == source)
        assert [epochs[source, epoch] for epoch in range(last)] == [whole] * last
        assert 0 < epochs[source, last] <= whole
    notes = packed.manifest.notes
    assert (notes["documents"], notes["documents_cut_that_fit"], notes["lost_tokens"]) == (len(covered), 0, 0)
    assert notes["documents_cut_too_long"] == sum(len(parts) > 1 for parts in covered.values())


def test_best_fit_draws_what_the_mixture_asks_for(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    packed = pack(mixture, tmp_path / "packed", method="best-fit")
    reader = MixtureReader.open(mixture.url, LENGTH)
    drawn, longest = [0, 0, 0], 500
    borders = sorted({*range(0, 300, 40), 150, 300})  # the mixture's second stage begins with sample 150
    for name in packed.manifest.shards:
        pieces = read_pieces(Path(packed.folder) / f"{name}.pieces.parquet", LENGTH + 1)
        border = borders[int(name.removeprefix("shard-")) + 1]
        pieces = pieces.take(pieces.source != PADDING)
        for source, first, size in zip(pieces.source, pieces.first_token, pieces.num_tokens, strict=True):
            drawn[source] += size - (first > 0)
        asked = reader.mixture.counts(border) * LENGTH
        for source, tokens in enumerate(asked.tolist()):
            assert 0 <= drawn[source] - tokens < longest


def test_order_computed_in_parts(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pack(mixture, tmp_path / "whole", method="best-fit")
    monkeypatch.setattr("tokenmill_shards.packing.draws.TOGETHER", 7)
    parts = pack(mixture, tmp_path / "parts", method="best-fit")
    assert contents(whole.folder) == contents(parts.folder)


def test_a_longer_run_only_adds(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    for method in ("concat", "best-fit"):
        short = pack(mixture, tmp_path / f"short-{method}", method=method, tokens=120 * LENGTH)
        long = pack(mixture, tmp_path / f"long-{method}", method=method, tokens=240 * LENGTH)
        for name in short.manifest.shards:
            assert (Path(short.folder) / f"{name}.bin").read_bytes() == (Path(long.folder) / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_as_many_workers_as_you_like(mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str) -> None:
    one = pack(mixture, tmp_path / "one", method=method)
    two = pack(mixture, tmp_path / "two", method=method, workers=2)
    assert contents(one.folder) == contents(two.folder)


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_stopped_and_gone_on_with(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = pack(mixture, tmp_path / "clean", method=method)
    calls = []

    def stop_at_third(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise MemoryError("stopped")
        return fill_module.fill(*arguments)

    monkeypatch.setattr("tokenmill_shards.packing.pack.fill", stop_at_third)
    with pytest.raises(StageError, match="stopped"):
        pack(mixture, tmp_path / "resumed", method=method)
    assert not (tmp_path / "resumed" / "manifest.json").exists()
    resumed = pack(mixture, tmp_path / "resumed", method=method)
    assert len(calls) == 3 + len(clean.manifest.shards) - 2
    assert contents(clean.folder) == contents(resumed.folder)


def test_files_are_what_the_manifest_says(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    packed = pack(mixture, tmp_path / "packed", method="best-fit")
    verify_files(packed)
    for name, samples in zip(packed.manifest.shards, packed.manifest.shard_samples, strict=True):
        shard = Shard(Path(packed.folder) / name)
        assert (np.diff(shard.document_offsets) == LENGTH + 1).all()
        assert shard.num_documents == samples


def test_padding_is_the_end_of_document_where_there_is_no_token_for_it(
    tokenize: Callable[..., Any], make_mixture: Mix, tmp_path: Path
) -> None:
    tokens = tokenize("text", [f"number {i}" for i in range(40)])
    packed = pack(make_mixture({"text": (tokens, 1)}), tmp_path / "packed", method="best-fit")
    assert packed.manifest.padding_id == tokens.manifest.end_of_document_id
    assert (Path(packed.folder) / "tokenizer.json").read_bytes() == (
        Path(tokens.folder) / "tokenizer.json"
    ).read_bytes()


def test_more_than_one_mixture_is_refused(mixture: LoadedManifest[MixtureManifest]) -> None:
    with pytest.raises(InputError, match="one mixture is packed at a time, got 2"):
        PACK.build(PackConfig(sequence_length=16, tokens=100), [mixture.url, mixture.url], None)


def test_a_sequence_length_that_no_source_fills_is_refused(mixture: LoadedManifest[MixtureManifest]) -> None:
    with pytest.raises(InputError, match="needs at least 100,001"):
        PACK.build(PackConfig(sequence_length=100_000, tokens=100), [mixture.url], None)
