"""Reading packed datasets: what counts, where documents begin, what was drawn, and where it came from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import FimTokens, MixtureManifest, PackedManifest
from tokenmill_shards import MixtureReader
from tokenmill_shards.audit.parts import parts_of, tokens_of
from tokenmill_shards.open_samples import open_samples
from tokenmill_shards.packing.pack import STAGE as PACK
from tokenmill_shards.packing.pack import PackConfig
from tokenmill_shards.packing.reader import PackedReader

Mix = Callable[..., LoadedManifest[MixtureManifest]]
LENGTH = 16


def pack(
    mixture: LoadedManifest[Any], out: Path, method: str, tokens: int = 80 * LENGTH
) -> LoadedManifest[PackedManifest]:
    config = PackConfig(sequence_length=LENGTH, tokens=tokens, method=method, shard_bytes=30 * 2 * (LENGTH + 1))
    return build_stage(PACK.build(config, [mixture.url], None), str(out), LocalExecutor(1)).loaded


@pytest.fixture
def mixture(make_tokens: Callable[..., Any], make_mixture: Mix) -> LoadedManifest[MixtureManifest]:
    one = make_tokens("one", [[5, 12, 40, 3] * 6, [9] * 20])
    two = make_tokens("two", [[1, 16, 17, 18, 33] * 5])
    return make_mixture({"one": (one, 2), "two": (two, 1)}, seed=3)


def masked(tokenize: Callable[..., Any], name: str) -> LoadedManifest[Any]:
    rows = [
        {"id": f"{name}-{i}", "text": f"{name} says {i}", "answer": [[0, 4]] if i % 2 else False} for i in range(30)
    ]
    tokens: LoadedManifest[Any] = tokenize(name, rows, loss_mask="answer")
    return tokens


@pytest.mark.parametrize("documents", [False, True])
def test_best_fit_counts_each_label_of_a_document_once(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path, documents: bool
) -> None:
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", "best-fit").url, documents=documents)
    samples = reader.samples(np.arange(reader.num_samples))
    assert samples.counted is not None
    for index, counted in enumerate(samples.counted):
        expected, at = np.zeros(LENGTH + 1, np.bool_), 0
        pieces = reader.pieces(index)
        for first, size in zip(pieces.first_token.tolist(), pieces.num_tokens.tolist(), strict=True):
            expected[at : at + size] = True
            expected[at] = first == 0 and not documents
            at += size
        assert counted.tolist() == expected[1:].tolist()


def test_documents_begin_where_pieces_do(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", "best-fit").url, documents=True)
    indices = np.array([3, 0, reader.num_samples - 1, 3])
    samples = reader.samples(indices)
    assert samples.cu_seqlens is not None
    assert samples.positions is not None
    begins = []
    for row, index in enumerate(indices.tolist()):
        ends = np.cumsum(reader.pieces(index).num_tokens)
        begins += [row * LENGTH + start for start in [0, *ends.tolist()] if start < LENGTH]
    assert samples.cu_seqlens.tolist() == [*begins, len(indices) * LENGTH]
    expected = [i - max(b for b in begins if b <= i) for i in range(len(indices) * LENGTH)]
    assert samples.positions.ravel().tolist() == expected


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_use_is_what_the_sequences_hold(mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str) -> None:
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", method).url)
    labels = np.zeros(2, np.int64)
    for number in range(reader.num_samples + 1):
        assert [use.tokens for use in reader.use(number)] == labels.tolist()
        samples = (labels // LENGTH).tolist() if method == "concat" else [None, None]
        assert [use.samples for use in reader.use(number)] == samples
        if number < reader.num_samples:
            pieces = reader.pieces(number)
            for place, (source, first, size) in enumerate(
                zip(pieces.source, pieces.first_token, pieces.num_tokens, strict=True)
            ):
                labels[source] += size - (place == 0 or first > 0)
    assert labels.tolist() == np.sum(reader.manifest.shard_source_tokens, axis=0).tolist()


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_the_parts_of_a_sequence_are_what_its_documents_hold(
    mixture: LoadedManifest[MixtureManifest], tmp_path: Path, method: str
) -> None:
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", method).url)
    for index in (0, 31, reader.num_samples - 1):
        tokens, at = reader.samples(np.array([index])).tokens[0], 0
        for part in parts_of(reader, index):
            assert part.store is not None
            assert part.first_token == at
            assert tokens_of(part, part.store).tolist() == tokens[at : part.last_token + 1].tolist()
            at = part.last_token + 1
    if method == "concat":
        theirs = parts_of(MixtureReader.open(mixture.url, LENGTH), 31)
        assert [part._replace(store=None) for part in parts_of(reader, 31)] == [
            part._replace(store=None) for part in theirs
        ]


def test_parts_without_the_token_datasets(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    packed = pack(mixture, tmp_path / "packed", "concat")
    (tmp_path / "mixture" / "manifest.json").unlink()
    for part in parts_of(PackedReader.open(packed.url), 0):
        assert part.store is None
        assert part.source in ("one", "two")


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_loss_masks_go_along(tokenize: Callable[..., Any], make_mixture: Mix, tmp_path: Path, method: str) -> None:
    plain = tokenize("plain", [f"plain text {i}" for i in range(30)])
    mixture = make_mixture({"chat": (masked(tokenize, "chat"), 1), "plain": (plain, 1)})
    packed = PackedReader.open(pack(mixture, tmp_path / "packed", method, tokens=40 * LENGTH).url)
    samples = packed.samples(np.arange(packed.num_samples))
    assert samples.counted is not None
    files = sorted((tmp_path / "packed").glob("*.loss_mask.bin"))
    stored = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, LENGTH + 1)
    assert not stored[:, 0].any()
    assert np.array_equal(stored[:, 1:], samples.counted)
    if method == "concat":
        reader = MixtureReader.open(mixture.url, LENGTH).samples(np.arange(packed.num_samples))
        assert reader.counted is not None
        assert np.array_equal(samples.counted, reader.counted)
    streams = MixtureReader.open(mixture.url, LENGTH).training
    for index, counted in enumerate(samples.counted):
        at, expected = 0, [0] * (LENGTH + 1)
        for source, _, shard, document, first, size in zip(
            *(c.tolist() for c in packed.pieces(index)[1:7]), strict=True
        ):
            begin = int(streams[source].store.index(shard).document_offsets[document]) + first
            mask = streams[source].store.mask(shard)
            expected[at : at + size] = [1] * size if mask is None else mask[begin : begin + size].tolist()
            if first:
                expected[at] = 0
            at += size
        assert counted.tolist() == [bool(value) for value in expected[1:]]


def test_concat_fills_in_the_middle_as_the_mixture_does(
    make_tokens: Callable[..., Any], make_mixture: Mix, tmp_path: Path
) -> None:
    parts = {"code": (make_tokens("code", [[30, 7, 12] * 20]), 1), "prose": (make_tokens("prose", [[25] * 20]), 1)}
    fim = FimTokens(prefix=59_001, middle=59_002, suffix=59_003)
    mixture = make_mixture(parts, sources={"code": {"fim_rate": 0.7}}, fim=fim)
    packed = PackedReader.open(pack(mixture, tmp_path / "packed", "concat").url)
    indices = np.arange(packed.num_samples)
    expected = MixtureReader.open(mixture.url, LENGTH).samples(indices).tokens
    assert (expected == fim.middle).any()
    assert np.array_equal(packed.samples(indices).tokens, expected)


def test_a_loss_mask_moves_with_what_is_filled_in(
    tokenize: Callable[..., Any], make_mixture: Mix, tmp_path: Path
) -> None:
    parts = {"chat": (masked(tokenize, "chat"), 1), "plain": (tokenize("plain", ["plain text"] * 30), 1)}
    fim = FimTokens(prefix=59_001, middle=59_002, suffix=59_003)
    mixture = make_mixture(parts, sources={"chat": {"fim_rate": 1.0}}, fim=fim)
    packed = PackedReader.open(pack(mixture, tmp_path / "packed", "concat", tokens=40 * LENGTH).url)
    indices = np.arange(packed.num_samples)
    ours, expected = packed.samples(indices), MixtureReader.open(mixture.url, LENGTH).samples(indices)
    assert (expected.tokens == fim.middle).any()
    assert expected.counted is not None
    assert 0 < expected.counted.mean() < 1
    assert np.array_equal(ours.tokens, expected.tokens)
    assert np.array_equal(ours.counted, expected.counted)


def test_best_fit_fills_in_the_middle_of_whole_documents(
    make_tokens: Callable[..., Any], make_mixture: Mix, tmp_path: Path
) -> None:
    parts = {"code": (make_tokens("code", [[11, 5, 12] * 20]), 1), "prose": (make_tokens("prose", [[6] * 90]), 1)}
    marks = {"prefix": 59_001, "middle": 59_002, "suffix": 59_003}
    mixture = make_mixture(parts, sources={"code": {"fim_rate": 1.0}}, fim=FimTokens(**marks))
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", "best-fit").url)
    stores, seen = reader.stores, set()
    assert stores is not None
    for index in range(reader.num_samples):
        tokens, at, pieces = reader.samples(np.array([index])).tokens[0].tolist(), 0, reader.pieces(index)
        for source, shard, document, size in zip(
            pieces.source, pieces.shard, pieces.document, pieces.num_tokens.tolist(), strict=True
        ):
            begin = int(stores[source].index(shard).document_offsets[document])
            before, after = stores[source].tokens(shard)[begin : begin + size].tolist(), tokens[at : at + size]
            if source == 0:
                assert sorted(set(after) & set(marks.values())) == sorted(marks.values())
                assert sorted(token for token in after if token not in marks.values()) == sorted(before[:-3])
                seen.add(after[1] == marks["suffix"])
            else:
                assert after == before
            at += size
    assert seen == {True, False}


def test_more_samples_than_there_are(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    reader = PackedReader.open(pack(mixture, tmp_path / "packed", "concat").url)
    for ask in (lambda: reader.samples(np.array([0, 80])), lambda: reader.use(81), lambda: reader.pieces(80)):
        with pytest.raises(InputError, match="has 80 sequences, but 81 are needed"):
            ask()


def test_opened_by_kind(mixture: LoadedManifest[MixtureManifest], tmp_path: Path) -> None:
    packed = pack(mixture, tmp_path / "packed", "concat")
    assert isinstance(open_samples(packed.url, None), PackedReader)
    with pytest.raises(InputError, match="packed with sequence length 16, but 32 is asked for"):
        open_samples(packed.url, 32)


@pytest.mark.parametrize("name", ["shard-00001.bin", "shard-00001.pieces.parquet"])
def test_a_flipped_byte_is_found(mixture: LoadedManifest[MixtureManifest], tmp_path: Path, name: str) -> None:
    packed = pack(mixture, tmp_path / "packed", "concat")
    content = bytearray((tmp_path / "packed" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "packed" / name).write_bytes(content)
    with pytest.raises(VerificationError, match="the content changed"):
        PackedReader.open(packed.url)
    (tmp_path / "packed" / name).write_bytes(content[:-2])
    with pytest.raises(VerificationError, match="bytes on disk"):
        PackedReader.open(packed.url, verify="sizes")
