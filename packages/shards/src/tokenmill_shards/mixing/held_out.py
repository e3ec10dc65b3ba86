"""Documents held out of training: which they are, how many, and a share that cannot be met.

    <shard>.documents.parquet: hash ─▶ below share · 2⁶⁴? ─▶ held out
    <shard>.idx: tokens of each     ─▶ counted by shard   ─▶ the mixture's manifest

Who is held out is decided by the document alone, by the hash of its text. So a document stays on its side whatever
file it comes in and however the corpus grows, equal texts are never on both sides, and a larger share only adds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tokenmill_core import storage
from tokenmill_core.errors import InputError, TokenmillError, VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.stage import Phase, Report, Task, Work
from tokenmill_shards.formats.places import NUM_HASHES, is_held_out
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.store import ShardStore, shard_tokens

HOLD_OUT = "hold-out"
"""Name of the phase that counts."""
TASK_TOKENS = 1 << 33
"""A task counts shards of about this many tokens: their documents take it seconds."""
IMPORT = "import-tokens"
"""The stage that hashes ids, as it has no texts."""
CACHE_BYTES = 4 << 30
"""What a task keeps at most of the files of remote datasets."""

Datasets = tuple[LoadedManifest[TokensManifest], ...]


class HeldOutCounts(NamedTuple):
    """What a share holds out of one dataset."""

    documents: int
    shard_tokens: tuple[int, ...]
    """Tokens of the held-out documents of each shard."""
    all_documents: int
    """Documents of the dataset that have tokens, held out or not."""
    lowest_hash: int
    """Of all its documents: a larger share of 2⁶⁴ holds one out. 2⁶⁴ − 1 where it has none."""
    highest_hash: int
    """A share of 2⁶⁴ up to this leaves one in. 0 where it has none."""


def held_out_phase(datasets: Datasets, share: float) -> Phase:
    """The pass that counts what `share` holds out of each of `datasets`; `held_out_counts` sums its reports."""
    return Phase(HOLD_OUT, partial(plan_counting, datasets), partial(count_held_out, datasets, share))


def plan_counting(datasets: Datasets, work: Work) -> list[Task]:
    """Tasks of some neighbouring shards of one dataset each."""
    tasks: list[Task] = []
    for number, loaded in enumerate(datasets):
        tokens = np.cumsum(shard_tokens(loaded.manifest), dtype=np.int64)
        groups = np.flatnonzero(np.diff(tokens // TASK_TOKENS)) + 1 if tokens.size else tokens
        for shards in np.split(np.arange(tokens.size), groups):
            if shards.size:
                payload = {"source": number, "first": int(shards[0]), "stop": int(shards[-1]) + 1}
                tasks.append(Task(index=len(tasks), payload=payload, weight=int(shards.size)))
    return tasks


def count_held_out(datasets: Datasets, share: float, task: Task, work: Work) -> Report:
    """Count the held-out documents of a task's shards; reads their indices and the hashes alone."""
    loaded = datasets[task.payload["source"]]
    cache = None if storage.is_local(loaded.url) else FileCache(work.path(HOLD_OUT, "cache"), CACHE_BYTES)
    shards = range(task.payload["first"], task.payload["stop"])
    return Report(extra=task.payload | count_shards(loaded, share, shards, cache)._asdict())


def count_shards(
    loaded: LoadedManifest[TokensManifest], share: float, shards: Iterable[int], cache: FileCache | None = None
) -> HeldOutCounts:
    """What `share` holds out of the `shards` (their numbers) of a dataset.

    Errors: `VerificationError` where a shard's files are not as its manifest says, or hold no hashes.
    """
    store = ShardStore(loaded.manifest.name, lambda: loaded, loaded.manifest.dtype, cache=cache)
    tokens, documents, all_documents = [], 0, 0
    lowest, highest = NUM_HASHES - 1, 0
    for number in shards:
        index, hashes = store.index(number), store.hashes(number)
        if hashes.size != index.num_documents:
            raise VerificationError(
                f"{index.path} has {index.num_documents:,} documents, its places {hashes.size:,} hashes; tokenize again"
            )
        lengths = np.diff(index.document_offsets)
        hashes, lengths = hashes[lengths > 0], lengths[lengths > 0]
        held_out = is_held_out(hashes, share)
        tokens.append(int(lengths[held_out].sum()))
        documents += int(held_out.sum())
        all_documents += hashes.size
        if hashes.size:
            lowest, highest = min(lowest, int(hashes.min())), max(highest, int(hashes.max()))
    return HeldOutCounts(documents, tuple(tokens), all_documents, lowest, highest)


def held_out_counts(reports: Sequence[Report], num_sources: int) -> list[HeldOutCounts]:
    """The counts of each dataset, in the order that `held_out_phase` was given them."""
    parts: list[list[dict[str, Any]]] = [[] for _ in range(num_sources)]
    for report in reports:
        parts[report.extra["source"]].append(report.extra)
    return [_joined(sorted(part, key=lambda extra: extra["first"])) for part in parts]


def _joined(parts: Sequence[dict[str, Any]]) -> HeldOutCounts:
    return HeldOutCounts(
        documents=sum(part["documents"] for part in parts),
        shard_tokens=tuple(tokens for part in parts for tokens in part["shard_tokens"]),
        all_documents=sum(part["all_documents"] for part in parts),
        lowest_hash=min((part["lowest_hash"] for part in parts), default=NUM_HASHES - 1),
        highest_hash=max((part["highest_hash"] for part in parts), default=0),
    )


def refuse_nothing_held_out(weighted: Mapping[str, HeldOutCounts], share: float) -> None:
    """Refuse a `share`, above 0, that holds out no document of any of the sources with weight, given by name.

    Raises:
        InputError: naming how many there are, and the least share that holds one out.
    """
    if any(counts.documents for counts in weighted.values()):
        return
    shares = ((nearest_share(counts, share), name) for name, counts in weighted.items())
    least, name = min(((nearest, name) for nearest, name in shares if nearest is not None), default=(None, ""))
    remedy = "give a source documents of more than one text" if least is None else f"{least} does, of source {name!r}"
    raise InputError(
        f"a validation share of {share:g} holds out 0 of the {sum(c.all_documents for c in weighted.values()):,} "
        f"documents of the sources with weight, but needs to hold out one: {remedy}; or leave it out"
    )


def without_training(counts: HeldOutCounts, share: float) -> str:
    """What a refusal says of a source of which `share` holds out every document."""
    nearest = nearest_share(counts, share)
    remedy = "" if nearest is None else f" (one of {nearest} leaves some)"
    return (
        f"has nothing to train on, as a validation share of {share:g} holds out all of its "
        f"{counts.all_documents:,} documents{remedy}"
    )


def warn_of_two_hashes(sources: Mapping[str, LoadedManifest[TokensManifest]]) -> Iterator[str]:
    """A warning where documents of some of `sources`, by name, are known by their text, and of others by their ids."""
    hashed = {name: _hashed(loaded) for name, loaded in sources.items()}
    by_ids = [name for name, own in hashed.items() if "ids" in own]
    by_text = [name for name, own in hashed.items() if "text" in own]
    if by_ids and by_text:
        yield (
            f"source {by_ids[0]!r} has imported tokens, held out by a hash of ids, source {by_text[0]!r} tokenized "
            "text, held out by a hash of text: a document of both may be trained on and held out at once"
        )


def _hashed(loaded: LoadedManifest[Any]) -> set[str]:
    """Of what the hashes of a tokens dataset are: `ids`, `text`, or of both where it was merged."""
    if loaded.manifest.stage.name != "merge":
        return {"ids" if loaded.manifest.stage.name == IMPORT else "text"}
    try:
        return set().union(*(_hashed(load_input(loaded, number)) for number in range(len(loaded.manifest.inputs))))
    except TokenmillError:
        return set()  # what was merged is gone, and nothing is known


def nearest_share(counts: HeldOutCounts, share: float) -> float | None:
    """The nearest share to `share` that has documents on both sides, in three digits or as many as it takes.

    None if there is none.
    """
    too_small = share * NUM_HASHES <= counts.lowest_hash
    limit = Decimal(counts.lowest_hash + 1 if too_small else counts.highest_hash)
    for digits in range(3, 18):
        context = Context(prec=digits, rounding=ROUND_CEILING if too_small else ROUND_FLOOR)
        nearest = float(context.divide(limit, Decimal(NUM_HASHES)))
        if counts.lowest_hash < int(nearest * NUM_HASHES) <= counts.highest_hash:
            return nearest
    return None
