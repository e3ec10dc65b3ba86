"""What `prep verify` checks of a tokens dataset beyond its checksums: whether the shards hold what they must."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import TOKENIZER_NAME, FileEntry, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.verify import Checked
from tokenmill_shards.formats.mmididx import Shard
from tokenmill_shards.writing.boundaries import Boundaries, special_ids
from tokenmill_shards.writing.shard_check import Expected, shard_problems


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
            entry = entries.get(f"{name}.bin")
            if entry is not None:
                yield from _shard_problems(loaded, name, _expected(manifest, entry, boundaries), checked, bar.advance)


def _manifest_problems(loaded: LoadedManifest[TokensManifest], entries: dict[str, FileEntry]) -> Iterator[str]:
    manifest = loaded.manifest
    shards = [entries.get(f"{name}.bin") for name in manifest.shards]
    for name, entry in zip(manifest.shards, shards, strict=True):
        if entry is None:
            yield f"{loaded.url}: it names the shard {name}, but lists no file {name}.bin; build it again"
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
    except (TokenmillError, OSError) as error:
        yield str(error)
        return
    except pa.ArrowInvalid as error:
        yield f"{prefix}: its places cannot be read ({error}); tokenize again"
        return
    checked.documents += shard.num_documents
    checked.tokens += shard.num_tokens
