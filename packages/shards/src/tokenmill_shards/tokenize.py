"""The `tokenize` stage: raw files or documents ─▶ token shards.

    read ─▶ encode ─▶ shard-NNNNN.bin, .idx (MMIDIDX) and shard-NNNNN.documents.parquet, a shard a task
    tokenizer.json ─▶ a copy beside them

The third file of a shard holds the raw file of each document, the row in it, and the user's id, so that any token leads
back to where it came from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import (
    TOKENIZER_NAME,
    Counts,
    DocumentsManifest,
    FileEntry,
    Frozen,
    ManifestBase,
    TokensManifest,
)
from tokenmill_core.readers import ReadOptions
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import document_tasks, read_task
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, resolve_inputs
from tokenmill_core.storage import HashingWriter, copy_file
from tokenmill_shards.mmididx import ShardWriter, dtype_for
from tokenmill_shards.places import PLACES_SCHEMA, PLACES_SUFFIX
from tokenmill_tokenizer import Encoder, OpenedTokenizer, open_tokenizer

SHARD_SUFFIXES = (".bin", ".idx", PLACES_SUFFIX)


class TokenizeConfig(Frozen):
    """Settings of `prep tokenize`."""

    tokenizer: str
    """A tokenizer dataset, or a `tokenizer.json`."""
    append_end_of_document: bool = True
    """Close every document with the end-of-document token."""
    end_of_document: str | None = None
    """That token; by default the one that the tokenizer's manifest names, or a usual one."""
    reader: ReadOptions = ReadOptions()

    def identity(self) -> "TokenizeConfig":
        """Without the place of the tokenizer: what counts is its digest, among the inputs."""
        return self.model_copy(update={"tokenizer": "in inputs"})


@dataclass(frozen=True)
class TokenizeStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "tokenize"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-tokenizer", "tokenmill-shards", "tokenizers", "pyarrow")

    config: TokenizeConfig
    inputs: Inputs
    dataset_name: str
    documents: Inputs
    """Those of the inputs that are text."""
    tokenizer: OpenedTokenizer

    @property
    def end_id(self) -> int | None:
        """Id put at the end of every document, or none."""
        return self.tokenizer.end_of_document_id if self.config.append_end_of_document else None

    def phases(self) -> Sequence[Phase]:
        """One pass."""
        return (Phase("encode", self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """A shard for each group of small files, and for each share of a large one."""
        return document_tasks(self.documents, self.config.reader)

    def run(self, task: Task, work: Work) -> Report:
        """Write one shard; none where there are no documents."""
        prefix = work.path("encode", f"shard-{task.index:05d}")
        writer = ShardWriter(prefix, dtype_for(self.tokenizer.vocab_size), self.tokenizer.vocab_size)
        places = HashingWriter(prefix.with_name(prefix.name + PLACES_SUFFIX))
        with keeping_rejects(work, "encode", task.index) as account, writer, places:
            kept_bytes = self._encode(task, account, writer, places)
        files = [*writer.files, FileEntry(path=places.path.name, bytes=places.bytes, sha256=places.sha256)]
        counts = Counts(
            input_documents=account.documents,
            input_bytes=account.bytes,
            documents=writer.num_documents,
            bytes=kept_bytes,
            tokens=writer.num_tokens,
        )
        return Report(
            files=tuple(files if writer.num_documents else ()),
            counts=counts,
            ledger=tuple(account.ledger()),
            notes=account.notes,
        )

    def _encode(self, task: Task, account: Account, writer: ShardWriter, places: HashingWriter) -> int:
        """Encode the documents of a task; the bytes of text that became tokens."""
        encoder = Encoder(self.tokenizer.url)
        kept_bytes = 0
        with pq.ParquetWriter(places, PLACES_SCHEMA, compression="zstd") as table:
            for batch in read_task(task, self.config.reader, account):
                ids, lengths = encoder.encode(batch.column("text").to_pylist(), self.end_id)
                writer.append(ids, lengths)
                table.write_batch(batch.select(PLACES_SCHEMA.names))
                kept_bytes += _text_bytes(batch)
        return kept_bytes

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """The tokenizer itself: shards can always be decoded by what lies beside them."""
        return copy_tokenizer(self.tokenizer.url, work)

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokens manifest."""
        shards = [entry.path.removesuffix(".bin") for entry in common["files"] if entry.path.endswith(".bin")]
        dtype: Literal["uint16", "int32"] = "uint16" if dtype_for(self.tokenizer.vocab_size) == np.uint16 else "int32"
        return TokensManifest(
            **common,
            dtype=dtype,
            vocab_size=self.tokenizer.vocab_size,
            tokenizer_sha256=self.tokenizer.sha256,
            end_of_document_id=self.end_id,
            shards=tuple(shards),
        )


def copy_tokenizer(url: str, work: Work) -> list[tuple[FileEntry, Path]]:
    """A copy of the `tokenizer.json` at `url` as a file of the dataset."""
    target = work.folder / TOKENIZER_NAME
    num_bytes, sha256 = copy_file(url, target)
    return [(FileEntry(path=TOKENIZER_NAME, bytes=num_bytes, sha256=sha256), target)]


def _text_bytes(batch: pa.RecordBatch) -> int:
    offsets = np.frombuffer(batch.column("text").buffers()[1], np.int64)
    start = batch.column("text").offset
    return int(offsets[start + len(batch)] - offsets[start])


def build(config: TokenizeConfig, inputs: Sequence[str], name: str | None) -> TokenizeStage:
    """The stage for INPUT arguments.

    Errors: `InputError` where documents are to be closed and the tokenizer has no token for it.
    """
    tokenizer = open_tokenizer(config.tokenizer, config.end_of_document)
    if config.append_end_of_document and tokenizer.end_of_document is None:
        raise InputError(
            f"{config.tokenizer}: no token to end a document with; name one with --end-of-document, "
            "or leave documents open with --no-end-of-document"
        )
    documents = resolve_inputs(inputs, DocumentsManifest, format=config.reader.format)
    together = Inputs(
        raw=(*documents.raw, *tokenizer.inputs.raw), manifests=(*documents.manifests, *tokenizer.inputs.manifests)
    )
    return TokenizeStage(
        config=config.identity(),
        inputs=together,
        dataset_name=name or documents.default_name(),
        documents=documents,
        tokenizer=tokenizer,
    )


STAGE = StageType(config=TokenizeConfig, build=build, path_settings=("tokenizer",))
