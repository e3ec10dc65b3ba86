"""What `prep verify` checks of a tokens dataset beyond its checksums: whether the shards hold what they must."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import TOKENIZER_NAME, FileEntry, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.verify import Checked
from tokenmill_shards.formats.mmididx import Shard
from tokenmill_shards.formats.places import HASH, MASK_SUFFIX, PLACES_SUFFIX, read_hashes
from tokenmill_shards.writing.boundaries import Boundaries, special_ids
from tokenmill_shards.writing.document_hashes import hash_ids
from tokenmill_shards.writing.shard_check import Expected, shard_problems

IMPORTED = "import-tokens"
"""The stage whose documents are known by their tokens, not by their text."""
OUR_STAGES = ("tokenize", "merge", IMPORTED)
"""Stages that name shards in their order."""
HASHED_TOKENS = 1 << 24
"""Tokens hashed together, to bound the memory."""


def check_tokens(loaded: LoadedManifest[TokensManifest], checked: Checked) -> Iterator[str]:
    """Each problem of the shards: index against data, ids, ends of documents, places, loss masks, and their sums."""
    manifest = loaded.manifest
    entries = {entry.path: entry for entry in manifest.files}
    yield from _manifest_problems(loaded, entries)
    if not storage.is_local(loaded.url):
        checked.notes.append(
            f"{loaded.url}: its tokens were not looked at, as they lie elsewhere; copy the folder here"
        )
        return
    boundaries = _boundaries(loaded, entries)
    with ProgressBar(f"checking tokens of {manifest.name}", manifest.counts.tokens) as bar:
        for name in manifest.shards:
            if entries.keys() >= set(_files_of(manifest, name)):  # else it is named already
                expected = _expected(manifest, entries[f"{name}.bin"], boundaries)
                yield from _shard_problems(loaded, name, expected, checked, bar.advance)


def _manifest_problems(loaded: LoadedManifest[TokensManifest], entries: dict[str, FileEntry]) -> Iterator[str]:
    manifest = loaded.manifest
    shards = [entries.get(f"{name}.bin") for name in manifest.shards]
    for name in manifest.shards:
        for path in _files_of(manifest, name):
            if path not in entries:
                yield f"{loaded.url}: it names the shard {name}, but lists no file {path}; build it again"
    masks = [path for path in entries if path.endswith(MASK_SUFFIX)]
    if masks and not manifest.loss_mask:
        yield f"{loaded.url}: loss_mask is false, but it lists {masks[0]}; build it again"
    if manifest.stage.name in OUR_STAGES and list(manifest.shards) != sorted(manifest.shards, key=_number):
        yield f"{loaded.url}: shards: they do not stand in the order they were written; build it again"
    for unit in ("documents", "tokens"):
        have, need = sum(getattr(entry, unit) or 0 for entry in shards if entry), getattr(manifest.counts, unit)
        if have != need:
            yield f"{loaded.url}: counts.{unit} is {need:,}, but its shards have {have:,}; build it again"
    tokenizer = entries.get(TOKENIZER_NAME)
    if tokenizer is not None and tokenizer.sha256 != manifest.tokenizer_sha256:
        yield (
            f"{loaded.url}: tokenizer_sha256 is {manifest.tokenizer_sha256[:12]}…, but its {TOKENIZER_NAME} has "
            f"{tokenizer.sha256[:12]}…; build it again"
        )


def _files_of(manifest: TokensManifest, name: str) -> list[str]:
    """The files that the shard `name` must have."""
    masks = [MASK_SUFFIX] if manifest.loss_mask else []
    return [name + suffix for suffix in (".bin", ".idx", PLACES_SUFFIX, *masks)]


def _number(name: str) -> list[int]:
    """The numbers in the name of a shard, by which our stages order them."""
    return [int(digits) for digits in re.findall("[0-9]+", name)]


def _expected(manifest: TokensManifest, entry: FileEntry, boundaries: Boundaries) -> Expected:
    dtype: np.dtype[Any] = np.dtype(manifest.dtype).newbyteorder("<")
    return Expected(
        dtype=dtype,
        vocab_size=manifest.vocab_size,
        boundaries=boundaries,
        has_mask=manifest.loss_mask,
        num_documents=entry.documents or 0,
        num_tokens=entry.bytes // dtype.itemsize if entry.tokens is None else entry.tokens,
    )


def _boundaries(loaded: LoadedManifest[TokensManifest], entries: dict[str, FileEntry]) -> Boundaries:
    """The ids around documents. Text may have become one of them, unless the settings say that it could not."""
    manifest = loaded.manifest
    begin_id, end_id = manifest.beginning_of_document_id, manifest.end_of_document_id
    only_between = frozenset[int]()
    if manifest.config.get("allow_special") is False and TOKENIZER_NAME in entries:
        only_between = special_ids(loaded.file_url(TOKENIZER_NAME)) & {begin_id, end_id}
    return Boundaries(begin_id, end_id, only_between)


def _shard_problems(
    loaded: LoadedManifest[TokensManifest],
    name: str,
    expected: Expected,
    checked: Checked,
    on_tokens: Callable[[int], None],
) -> Iterator[str]:
    prefix = storage.local_path(loaded.file_url(name))
    try:
        shard = Shard(prefix)
        for problem in shard_problems(shard, expected, on_tokens):
            yield f"{prefix}: the shard has {problem}; tokenize again"
        for problem in _hash_problems(shard, loaded.manifest.stage.name == IMPORTED):
            yield f"{prefix}{PLACES_SUFFIX}: {problem}; tokenize again"
    except (TokenmillError, OSError) as error:
        yield str(error)
        return
    except pa.ArrowException as error:
        yield f"{prefix}: its places cannot be read ({error}); tokenize again"
        return
    checked.documents += shard.num_documents
    checked.tokens += shard.num_tokens


def _hash_problems(shard: Shard, of_ids: bool) -> Iterator[str]:
    """Hashes that cannot be those of the documents; `of_ids`: hashes of the tokens, which are here, and not of text."""
    places = shard.prefix.with_name(shard.prefix.name + PLACES_SUFFIX)
    if pq.read_metadata(places).num_rows != shard.num_documents or HASH not in pq.read_schema(places).names:
        return  # named already
    hashes, lengths = read_hashes(places), np.diff(shard.document_offsets)
    if hashes.dtype != np.uint64:
        yield f"hashes of type {hashes.dtype.name} or none at all, but each document needs one of uint64"
        return
    even = np.flatnonzero(hashes % 2 == 0)
    if even.size:
        yield f"the hash of document {even[0]} is {hashes[even[0]]}, but all are odd"
    order = np.argsort(hashes, kind="stable")
    alike = (np.diff(hashes[order]) == 0) & (np.diff(lengths[order]) != 0)
    if alike.any():
        one, other = order[alike.argmax()], order[alike.argmax() + 1]
        yield f"documents {one} and {other} have the same hash, but {lengths[one]:,} and {lengths[other]:,} tokens"
    if of_ids:
        wrong = np.flatnonzero(_hashes_of_ids(shard) != hashes)
        if wrong.size:
            yield f"the hash of document {wrong[0]} is not that of its tokens, nor are {wrong.size - 1:,} others"


def _hashes_of_ids(shard: Shard) -> NDArray[np.uint64]:
    """The hashes of a shard's documents by their tokens, in batches to bound the memory."""
    offsets, parts, start = shard.document_offsets, [np.zeros(0, np.uint64)], 0
    while start < shard.num_documents:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + HASHED_TOKENS, "right")) - 1)
        own = offsets[start : stop + 1]
        parts.append(hash_ids(shard.tokens[own[0] : own[-1]], own - own[0]))
        start = stop
    return np.concatenate(parts)
