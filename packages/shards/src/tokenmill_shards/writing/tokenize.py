"""The `tokenize` stage: raw files or documents ─▶ token shards.

    read ─▶ encode ─▶ boundaries ─▶ shard-NNNNN.bin, .idx (MMIDIDX), .documents.parquet, .loss_mask.bin on request
    tokenizer.json ─▶ a copy beside them

The third file of a shard holds the raw file of each document, the row in it, the user's id, the hash of its text, and
what is carried, so that any token leads back to where it came from.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from tokenmill_core.documents import DOCUMENT_SCHEMA, Account
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import (
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    Counts,
    DocumentsManifest,
    FileEntry,
    Frozen,
    ManifestBase,
    TokensManifest,
)
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.readers import ReadOptions
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import document_tasks, read_task
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, resolve_inputs
from tokenmill_core.storage import copy_file
from tokenmill_shards.formats.mmididx import dtype_for
from tokenmill_shards.formats.places import HASH
from tokenmill_shards.writing.boundaries import Boundaries, special_ids
from tokenmill_shards.writing.columns import count_filled, refuse_empty
from tokenmill_shards.writing.encoded import BatchEncoder
from tokenmill_shards.writing.loss_masks import LossMasks, refuse_inexact, refuse_unusable
from tokenmill_shards.writing.rejections import Rejecter
from tokenmill_shards.writing.shard_files import ShardForm, ShardSeries
from tokenmill_tokenizer import Encoder, OpenedTokenizer, open_tokenizer
from tokenmill_tokenizer.encoder import Engine

ENCODE = "encode"
"""The stage's one phase."""
TEXT_A_BYTE = 4
"""Bytes of text, about, in a byte of a compressed file."""


class TokenizeConfig(Frozen):
    """Settings of `prep tokenize`."""

    tokenizer: str
    """A tokenizer dataset, or a `tokenizer.json`."""
    engine: Annotated[Engine, Field(exclude=True)] = Engine.AUTO
    """What encodes: `gigatoken`, `tokenizers`, or `auto`: the former where it proves equal to the latter. All give the
    same ids, so this is no part of the dataset's identity."""
    allow_special: bool = False
    """Let text that reads like a special token become that token; by default it is ordinary text."""
    append_end_of_document: bool = True
    """Close every document with the end-of-document token."""
    end_of_document: str | None = None
    """That token; by default the one that the tokenizer's manifest names, or a usual one."""
    prepend_beginning_of_document: bool = False
    """Open every document with the beginning-of-document token."""
    beginning_of_document: str | None = None
    """That token; by default the one that the tokenizer's manifest names."""
    loss_mask: str | None = None
    """Key or column that says which text counts for the loss: [start, end) pairs in characters, true or false."""
    shard_bytes: Annotated[int, Field(ge=1)] = 256_000_000
    """A shard is closed at the first end of a document where it holds this many bytes of text. A task takes at most
    about a quarter of it on disk, and less where there is little data, so that shards can be smaller."""
    reader: ReadOptions = ReadOptions()

    @model_validator(mode="after")
    def _ends_where_they_are_used(self) -> Self:
        if self.end_of_document is not None and not self.append_end_of_document:
            raise ValueError(
                f"end_of_document is {self.end_of_document!r}, but append_end_of_document is false: "
                "set it to true to close documents"
            )
        if self.beginning_of_document is not None and not self.prepend_beginning_of_document:
            raise ValueError(
                f"beginning_of_document is {self.beginning_of_document!r}, but prepend_beginning_of_document is false: "
                "set it to true to open documents"
            )
        return self

    @field_validator("reader")
    @classmethod
    def _no_second_hash(cls, reader: ReadOptions) -> ReadOptions:
        if HASH in reader.carry:
            raise ValueError(
                f"carry: {HASH!r} stands beside each document anyway, as the hash of its text; rename the column, or "
                "leave it out"
            )
        return reader

    @field_validator("loss_mask")
    @classmethod
    def _column_of_its_own(cls, loss_mask: str | None) -> str | None:
        taken = [*DOCUMENT_SCHEMA.names, HASH]
        if loss_mask == "" or loss_mask in taken:
            raise ValueError(
                f"{loss_mask!r} cannot hold loss masks: each document has {', '.join(taken)} for other ends; name "
                "another column"
            )
        return loss_mask

    def identity(self) -> "TokenizeConfig":
        """Without the place of the tokenizer: what counts is its digest, among the inputs."""
        return self.model_copy(update={"tokenizer": "in inputs"})

    def read_options(self) -> ReadOptions:
        """The reader's settings, with the column of loss masks among those that are read."""
        carry = dict.fromkeys([*self.reader.carry, *([self.loss_mask] if self.loss_mask else [])])
        return ReadOptions(**self.reader.model_dump() | {"carry": tuple(carry)})


@dataclass(frozen=True)
class TokenizeStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "tokenize"
    version: ClassVar[int] = 3
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-tokenizer", "tokenmill-shards", "tokenizers", "pyarrow")

    config: TokenizeConfig
    inputs: Inputs
    dataset_name: str
    documents: Inputs
    """Those of the inputs that are text."""
    tokenizer: OpenedTokenizer
    boundaries: Boundaries

    def phases(self) -> Sequence[Phase]:
        """One pass."""
        return (Phase(ENCODE, self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """A task for each group of small files, and for each share of a large one."""
        most_bytes = max(1, self.config.shard_bytes // TEXT_A_BYTE)
        return document_tasks(self.documents, self.config.read_options(), most_bytes)

    def run(self, task: Task, work: Work) -> Report:
        """Write the shards of a task; none where there are no documents."""
        encoder = Encoder(self.tokenizer.url, self.config.engine, self.config.allow_special)
        filled: Counter[str] = Counter()
        with (
            keeping_rejects(work, ENCODE, task.index) as account,
            ShardSeries(work.path(ENCODE, f"shard-{task.index:05d}"), self._form()) as shards,
        ):
            for encoded in self._batch_encoder(encoder, account).batches(self._read(task, account, filled)):
                shards.append(encoded)
        counts = Counts(
            input_documents=account.documents,
            input_bytes=account.bytes,
            documents=shards.num_documents,
            bytes=shards.text_bytes,
            tokens=shards.num_tokens,
        )
        extra = {"engine": encoder.engine, "filled": dict(filled)}
        ledger = tuple(account.ledger())
        return Report(files=tuple(shards.files), counts=counts, ledger=ledger, notes=account.notes, extra=extra)

    def _read(self, task: Task, account: Account, filled: Counter[str]) -> Iterator[pa.RecordBatch]:
        options = self.config.read_options()
        return count_filled(read_task(task, options, account), options.carry, filled)

    def _batch_encoder(self, encoder: Encoder, account: Account) -> BatchEncoder:
        column = self.config.loss_mask
        masks = LossMasks.of(column, self.tokenizer.url) if column else None
        return BatchEncoder(encoder, self.boundaries, masks, Rejecter(account, self.config.reader.strict))

    def _form(self) -> ShardForm:
        return ShardForm(
            vocab_size=self.tokenizer.vocab_size,
            boundaries=self.boundaries,
            has_mask=self.config.loss_mask is not None,
            carry=self.config.reader.carry,
            shard_bytes=self.config.shard_bytes,
        )

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """The tokenizer itself: shards can always be decoded by what lies beside them."""
        return copy_tokenizer(self.tokenizer.url, self.tokenizer.inputs.manifests, work)

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokens manifest.

        Raises:
            InputError: no document has a loss mask that can be used.
        """
        reports = work.reports(ENCODE)
        refuse_empty((report.extra["filled"] for report in reports), self.config.loss_mask)
        if self.config.loss_mask:
            refuse_unusable(self.config.loss_mask, common["counts"].documents, common["ledger"])
        engines = {shard: report.extra["engine"] for report in reports for shard in shards_among(report.files)}
        dtype: Literal["uint16", "int32"] = "uint16" if dtype_for(self.tokenizer.vocab_size) == np.uint16 else "int32"
        return TokensManifest(
            **common,
            dtype=dtype,
            vocab_size=self.tokenizer.vocab_size,
            padded_vocab_size=self.tokenizer.padded_vocab_size,
            tokenizer_sha256=self.tokenizer.sha256,
            end_of_document_id=self.boundaries.end_id,
            beginning_of_document_id=self.boundaries.begin_id,
            loss_mask=self.config.loss_mask is not None,
            shards=tuple(engines),
            engines=engines,
        )


def shards_among(files: Iterable[FileEntry]) -> list[str]:
    """The shards that `files` are of."""
    return [entry.path.removesuffix(".idx") for entry in files if entry.path.endswith(".idx")]


def copy_tokenizer(
    url: str, beside: Iterable[LoadedManifest[ManifestBase]], work: Work
) -> list[tuple[FileEntry, Path]]:
    """Copies of the `tokenizer.json` at `url` as a file of the dataset, and of the settings beside it.

    What else lies beside it may be anybody's, so they must be listed in the manifest `beside` it.
    """
    sources = {TOKENIZER_NAME: url}
    for loaded in beside:
        if any(entry.path == TOKENIZER_CONFIG_NAME for entry in loaded.manifest.files):
            sources[TOKENIZER_CONFIG_NAME] = loaded.file_url(TOKENIZER_CONFIG_NAME)
    copied = []
    for name, source in sources.items():
        num_bytes, sha256 = copy_file(source, work.folder / name)
        copied.append((FileEntry(path=name, bytes=num_bytes, sha256=sha256), work.folder / name))
    return copied


def build(config: TokenizeConfig, inputs: Sequence[str], name: str | None) -> TokenizeStage:
    """The stage for INPUT arguments.

    Errors: `InputError` where the tokenizer lacks a token that documents are to be opened or closed with, or cannot be
    used with a loss mask.
    """
    tokenizer = open_tokenizer(config.tokenizer, config.end_of_document)
    boundaries = boundaries_of(config, tokenizer)
    if config.loss_mask:
        refuse_inexact(tokenizer.url)
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
        boundaries=boundaries,
    )


def boundaries_of(config: TokenizeConfig, tokenizer: OpenedTokenizer) -> Boundaries:
    """What the settings put around documents.

    Errors: `InputError` where there is no such token.
    """
    end = tokenizer.end_of_document
    if config.append_end_of_document and end is None:
        raise InputError(
            f"{config.tokenizer}: no token to end a document with; name one with --end-of-document, "
            "or leave documents open with --no-end-of-document"
        )
    begin = config.beginning_of_document or tokenizer.beginning_of_document
    if config.prepend_beginning_of_document and begin not in tokenizer.vocabulary:
        named = "" if begin is None else f" {begin!r}"
        raise InputError(
            f"{config.tokenizer}: no token{named} to begin a document with; name one that it has with "
            "--beginning-of-document TOKEN"
        )
    begin_id = tokenizer.vocabulary[str(begin)] if config.prepend_beginning_of_document else None
    end_id = tokenizer.end_of_document_id if config.append_end_of_document else None
    special = frozenset() if config.allow_special else special_ids(tokenizer.url)
    return Boundaries(begin_id, end_id, special & {begin_id, end_id})


STAGE = StageType(config=TokenizeConfig, build=build, path_settings=("tokenizer",))
