"""Who is held out of training, how it is counted, and a share that cannot be met."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest, publish
from tokenmill_core.stage import Report, Work
from tokenmill_shards import Shard
from tokenmill_shards.formats.places import is_held_out, read_hashes
from tokenmill_shards.mixing import held_out
from tokenmill_shards.mixing.held_out import (
    HeldOutCounts,
    count_shards,
    held_out_counts,
    held_out_phase,
    nearest_share,
    refuse_nothing_held_out,
    without_training,
)

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
TEXTS = [f"document {number}, " + "word " * (number % 7) for number in range(60)]
SHARES = st.floats(0, 1, exclude_max=True)
HASHES = st.integers(0, 2**64 - 1)


@given(st.lists(HASHES, max_size=30), SHARES)
def test_a_document_is_held_out_when_its_hash_is_below_the_share_of_all(hashes: list[int], share: float) -> None:
    limit = int(share * 2**64)
    assert is_held_out(np.array(hashes, np.uint64), share).tolist() == [value < limit for value in hashes]


@given(st.lists(HASHES, max_size=30), SHARES, SHARES)
def test_a_larger_share_only_adds(hashes: list[int], one: float, other: float) -> None:
    array, (low, high) = np.array(hashes, np.uint64), sorted((one, other))
    assert not (is_held_out(array, low) & ~is_held_out(array, high)).any()


def sides(tokens: LoadedManifest[TokensManifest], share: float) -> dict[str, bool]:
    """id ─▶ held out."""
    found: dict[str, bool] = {}
    for name in tokens.manifest.shards:
        path = Path(tokens.folder) / f"{name}.documents.parquet"
        ids = pq.read_table(path).column("id").to_pylist()
        found |= dict(zip(ids, is_held_out(read_hashes(path), share).tolist(), strict=True))
    return found


def test_a_grown_corpus_keeps_every_old_document_on_its_side(tokenize: Tokenize, tmp_path: Path) -> None:
    rows = [{"id": f"d{n}", "text": text} for n, text in enumerate(TEXTS)]
    before = tokenize("before", rows)
    more = [{"id": f"new{n}", "text": f"new document {n}"} for n in range(40)]
    (tmp_path / "b.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in (*more, *rows[::-1])))
    after = tokenize("after", inputs=[tmp_path / "b.jsonl"], shard_bytes=300, append_end_of_document=False)
    assert len(after.manifest.shards) > 3
    for share in (0.1, 0.5):
        old, new = sides(before, share), sides(after, share)
        assert {id: new[id] for id in old} == old
        assert 0 < sum(old.values()) < len(old)


def test_equal_texts_are_on_one_side(tokenize: Tokenize) -> None:
    rows = [{"id": f"{n}-{copy}", "text": text} for copy in range(2) for n, text in enumerate(TEXTS)]
    found = sides(tokenize("twice", rows), 0.5)
    assert all(found[f"{n}-0"] == found[f"{n}-1"] for n in range(len(TEXTS)))


def expected_counts(tokens: LoadedManifest[TokensManifest], share: float) -> tuple[int, tuple[int, ...]]:
    """Document by document."""
    documents, by_shard = 0, []
    for name in tokens.manifest.shards:
        shard = Shard(Path(tokens.folder) / name)
        hashes = read_hashes(Path(tokens.folder) / f"{name}.documents.parquet").tolist()
        out = [n for n, value in enumerate(hashes) if value < int(share * 2**64)]
        documents += len(out)
        by_shard.append(sum(len(shard.document(n)) for n in out))
    return documents, tuple(by_shard)


def run_phase(
    datasets: Sequence[LoadedManifest[TokensManifest]], share: float, folder: Path, workers: int = 1
) -> list[Report]:
    """The reports of the phase, last one first: what they come to must not depend on their order."""
    phase, work = held_out_phase(tuple(datasets), share), Work(folder)
    LocalExecutor(workers).run(phase, phase.plan(work), work, lambda task: None)
    return work.reports(phase.name)[::-1]


@pytest.mark.parametrize(("task_tokens", "workers"), [(1 << 33, 1), (400, 2), (1, 1)])
def test_the_phase_counts_each_shard_of_each_dataset(
    tokenize: Tokenize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_tokens: int, workers: int
) -> None:
    monkeypatch.setattr(held_out, "TASK_TOKENS", task_tokens)
    datasets = [tokenize("a", TEXTS, shard_bytes=200), tokenize("none", []), tokenize("b", TEXTS[:20])]
    reports = run_phase(datasets, 0.3, tmp_path / "work", workers)
    num_shards = len(datasets[0].manifest.shards)
    assert num_shards > 5
    assert len(reports) == {1 << 33: 2, 1: num_shards + 1}.get(task_tokens, len(reports))
    counts = held_out_counts(reports, 3)
    assert [(c.documents, c.shard_tokens) for c in counts] == [expected_counts(each, 0.3) for each in datasets]
    assert [c.all_documents for c in counts] == [60, 0, 20]
    for dataset, count in zip(datasets, counts, strict=True):
        assert count == count_shards(dataset, 0.3, range(len(dataset.manifest.shards)))


def test_a_dataset_elsewhere_is_counted_through_a_cache(tokenize: Tokenize, tmp_path: Path) -> None:
    local = tokenize("a", TEXTS, shard_bytes=200)
    memory = fsspec.filesystem("memory")
    memory.put(local.folder, "/held-out", recursive=True)
    try:
        remote = load_manifest("memory://held-out", TokensManifest)
        reports = run_phase([remote], 0.3, tmp_path / "work")
    finally:
        memory.rm("/held-out", recursive=True)
    (counts,) = held_out_counts(reports, 1)
    assert (counts.documents, counts.shard_tokens) == expected_counts(local, 0.3)


def test_documents_without_tokens_are_on_no_side(make_tokens: Callable[..., Any]) -> None:
    tokens = make_tokens("a", [[0, 5, 0, 7], []])
    counts = count_shards(tokens, 0.999999, range(2))
    assert counts[:3] == (2, (12, 0), 2)


def test_a_shard_that_was_changed_is_refused(tokenize: Tokenize) -> None:
    tokens = tokenize("a", TEXTS)
    path = Path(tokens.folder) / "shard-00000.idx"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(VerificationError, match=r"shard-00000\.idx has .* bytes"):
        count_shards(tokens, 0.3, [0])


def test_places_of_another_number_of_documents_are_refused(make_tokens: Callable[..., Any]) -> None:
    tokens = make_tokens("a", [[5, 7]])
    path = Path(tokens.folder) / "shard-00000.documents.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    entries = [
        entry.model_copy(update={"bytes": path.stat().st_size}) if entry.path == path.name else entry
        for entry in tokens.manifest.files
    ]
    changed = publish(tokens.manifest.model_copy(update={"files": tuple(entries)}), tokens.folder)
    with pytest.raises(VerificationError, match="has 2 documents, its places 1 hashes; tokenize again"):
        count_shards(changed, 0.3, [0])


def test_a_share_that_holds_out_nothing_is_refused_and_the_nearest_one_is_not(tokenize: Tokenize) -> None:
    datasets = {"one": tokenize("one", ["a"]), "tiny": tokenize("tiny", ["a", "b", "c"]), "web": tokenize("web", TEXTS)}

    def counts(share: float) -> dict[str, HeldOutCounts]:
        return {name: count_shards(tokens, share, [0]) for name, tokens in datasets.items()}

    with pytest.raises(InputError, match=r"share of 0.0001 holds out 0 of the 64 documents of the sources") as refusal:
        refuse_nothing_held_out(counts(0.0001), 0.0001)
    nearest = float(str(refusal.value).split("hold out one: ")[1].split(" does, of source 'web'")[0])
    assert [each.documents for each in counts(nearest).values()] == [0, 0, 1]
    refuse_nothing_held_out(counts(nearest), nearest)


def test_a_source_without_training_is_told_the_nearest_share_that_leaves_some(tokenize: Tokenize) -> None:
    tokens = tokenize("a", TEXTS)
    found = without_training(count_shards(tokens, 0.9999, [0]), 0.9999)
    assert found.startswith(
        "has nothing to train on, as a validation share of 0.9999 holds out all of its 60 documents"
    )
    nearest = float(found.split("(one of ")[1].split(" leaves")[0])
    assert 50 < count_shards(tokens, nearest, [0]).documents < 60


@pytest.mark.parametrize("texts", [["only one"], ["the same"] * 5])
def test_what_no_share_can_cut_is_refused(tokenize: Tokenize, texts: list[str]) -> None:
    counts = count_shards(tokenize("a", texts), 1e-9, [0])
    with pytest.raises(InputError, match="needs to hold out one: give a source documents of more than one text"):
        refuse_nothing_held_out({"web": counts}, 1e-9)


@settings(max_examples=300)
@given(st.lists(HASHES, min_size=2, max_size=6), SHARES)
def test_the_nearest_share_has_documents_on_both_sides(hashes: list[int], share: float) -> None:
    array = np.array(hashes, np.uint64)
    out = int(is_held_out(array, share).sum())
    assume(out in (0, len(hashes)))
    nearest = nearest_share(HeldOutCounts(out, (), len(hashes), min(hashes), max(hashes)), share)
    if nearest is None:
        # No 17 digits lie between them, or one is the end of the range.
        assert max(hashes) - min(hashes) < 2**14 or int(max(hashes) / 2**64) == 1
        return
    assert 0 < is_held_out(array, nearest).sum() < len(hashes)
