"""The `pack` stage: a mixture ─▶ its samples in training order, written out as sequences of L + 1 tokens.

    concat    samples i to j                                   ─▶ shard-NNNNN
    best-fit  documents ─ order of sources ─▶ draws of a chunk ─▶ shard-NNNNN

A task is a shard. Which samples or documents it takes follows from the mixture and the settings alone.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TOKENIZER_NAME, Counts, FileEntry, Frozen, ManifestBase
from tokenmill_core.manifest_io import LoadedManifest, load_input, load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, sum_notes
from tokenmill_shards.mixing.amounts import Tokens
from tokenmill_shards.mixture import Mixture, num_windows
from tokenmill_shards.packing.account import account, labels_of_sources
from tokenmill_shards.packing.concat import concat_pieces
from tokenmill_shards.packing.documents import pack_documents
from tokenmill_shards.packing.draws import Draws, drawn_documents, plan_draws
from tokenmill_shards.packing.fill import fill
from tokenmill_shards.packing.packed_shard import write_packed_shard
from tokenmill_shards.packing.padding import padding_token
from tokenmill_shards.packing.pieces import Pieces, join
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.store import Verify
from tokenmill_shards.writing.tokenize import copy_tokenizer, shards_among

DRAW, PACK = "draw", "pack"
"""The stage's phases; `concat` has the latter alone."""
TARGETS_NAME = "targets.npy"
MAX_SHARDS = 1_000_000
CACHE_BYTES = 64 << 30
"""What is kept at most of the files of remote datasets while they are packed."""


class Method(StrEnum):
    """How documents are put into sequences."""

    CONCAT = "concat"
    """Sequence i is sample i of the mixture: windows of documents one after another, cut wherever a window ends."""
    BEST_FIT = "best-fit"
    """No document is cut that fits into a sequence."""


class PackConfig(Frozen):
    """Settings of `prep pack`."""

    sequence_length: Annotated[int, Field(ge=1, le=1 << 24)]
    """L: inputs, and labels, of a sequence."""
    tokens: Tokens
    """Tokens to train on, such as `10B`; rounded up to whole sequences."""
    method: Method = Method.CONCAT
    """`concat`: the mixture's samples. `best-fit`: whole documents, in the mixture's proportions."""
    shard_bytes: Annotated[int, Field(ge=1)] = 128_000_000
    """A shard has about this many bytes of tokens. With `best-fit` it is also what is packed at once: more documents
    fit together better."""

    @property
    def num_samples(self) -> int:
        """Samples that the mixture draws."""
        return -(-self.tokens // self.sequence_length)


@dataclass(frozen=True)
class PackStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "pack"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-shards", "pyarrow")

    config: PackConfig
    inputs: Inputs
    dataset_name: str

    @property
    def mixture(self) -> LoadedManifest[MixtureManifest]:
        """What is packed."""
        mixture: LoadedManifest[MixtureManifest] = self.inputs.manifests[0]
        return mixture

    def phases(self) -> Sequence[Phase]:
        """One pass, and for `best-fit` one before it over the lengths of the documents."""
        if self.config.method is Method.CONCAT:
            return (Phase(PACK, self.plan_first, self.pack_samples),)
        return (Phase(DRAW, self.plan_draws, self.draw), Phase(PACK, self.plan, self.pack_draws))

    def plan_first(self, work: Work) -> Sequence[Task]:
        """`plan`, once all files of the sources are known to be what their manifests vouch for."""
        self._reader(work, Verify.FULL)
        return self.plan(work)

    def plan(self, work: Work) -> Sequence[Task]:
        """A task a shard."""
        weights = np.diff(self._borders()).tolist()
        return [Task(index=number, payload={}, weight=weight) for number, weight in enumerate(weights)]

    def plan_draws(self, work: Work) -> Sequence[Task]:
        """A task a source, once all files are checked, and known how much each source is to give to each chunk."""
        mixture = self._reader(work, Verify.FULL).mixture
        counts = np.array([mixture.counts(border) for border in self._borders().tolist()], np.int64)
        _save(work.path(DRAW, TARGETS_NAME), counts * self.config.sequence_length)
        sources = mixture.manifest.sources
        return [Task(index=i, payload={}, weight=max(1, source.documents)) for i, source in enumerate(sources)]

    def draw(self, task: Task, work: Work) -> Report:
        """Which documents of one source each chunk takes."""
        reader = self._reader(work)
        targets = np.load(work.path(DRAW, TARGETS_NAME), allow_pickle=False)[:, task.index]
        for name, array in plan_draws(reader.manifest, reader.training[task.index], targets)._asdict().items():
            _save(_draws_path(work, task.index, name), array)
        return Report()

    def pack_samples(self, task: Task, work: Work) -> Report:
        """A shard of windows."""
        reader, (first, last) = self._reader(work), self._borders()[task.index : task.index + 2].tolist()
        located = reader.mixture.locate(np.arange(first, last))
        pieces = concat_pieces(reader.training, located, self.config.sequence_length)
        num_overlapping = int(np.count_nonzero(located.window))
        return self._write(work, reader, task.index, pieces, num_overlapping, first_index=first)

    def pack_draws(self, task: Task, work: Work) -> Report:
        """A shard of whole documents; none where an earlier chunk drew so much that nothing is left to draw."""
        reader = self._reader(work)
        drawn = [
            drawn_documents(reader.manifest, source, stream, _load_draws(work, source), task.index)
            for source, stream in enumerate(reader.training)
        ]
        pieces = pack_documents(reader.manifest, join(drawn), self.config.sequence_length, task.index)
        num_overlapping = int(np.count_nonzero(pieces.first_token))
        return self._write(work, reader, task.index, pieces, num_overlapping, first_index=task.index << 32)

    def _write(
        self, work: Work, reader: MixtureReader, number: int, pieces: Pieces, num_overlapping: int, first_index: int
    ) -> Report:
        windows = self.config.method is Method.CONCAT
        notes = account(pieces, self.config.sequence_length, num_overlapping, windows=windows)
        if not notes["sequences"]:
            return Report(notes=notes)
        filled = fill(reader.manifest, reader.training, pieces, self._padding_id(), first_index)
        prefix = work.path(PACK, f"shard-{number:05d}")
        files = write_packed_shard(prefix, filled, pieces, reader.manifest.vocab_size)
        labels = labels_of_sources(pieces, len(reader.training)).tolist()
        return Report(
            files=tuple(files), counts=Counts(tokens=filled.tokens.size), notes=notes, extra={"source_tokens": labels}
        )

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """The tokenizer of all sources."""
        tokens = self._tokens_manifest()
        if all(entry.path != TOKENIZER_NAME for entry in tokens.manifest.files):
            return ()
        return copy_tokenizer(tokens.file_url(TOKENIZER_NAME), [tokens], work)

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The packed manifest."""
        mixture, config = self.mixture.manifest, self.config
        reports = [report for report in work.reports(PACK) if report.files]
        names = "dtype", "vocab_size", "padded_vocab_size", "tokenizer_sha256", "end_of_document_id"
        epochs = self._epoch_tokens()
        notes = sum_notes([common["notes"], {"lost_tokens": self._lost_tokens(epochs)}])
        return PackedManifest(
            **common | {"notes": notes},
            **{name: getattr(mixture, name) for name in (*names, "beginning_of_document_id")},
            sequence_length=config.sequence_length,
            method=config.method.value,
            padding_id=self._padding_id(),
            loss_mask=any(source.loss_mask for source in mixture.sources),
            shards=tuple(shard for report in reports for shard in shards_among(report.files)),
            shard_samples=tuple(report.notes["sequences"] for report in reports),
            sources=tuple(source.name for source in mixture.sources),
            shard_source_tokens=tuple(tuple(report.extra["source_tokens"]) for report in reports),
            epoch_tokens=tuple(epochs),
        )

    def _epoch_tokens(self) -> list[int]:
        """Labels that an epoch of each source gives."""
        length = self.config.sequence_length
        if self.config.method is Method.BEST_FIT:
            return [source.training_tokens for source in self.mixture.manifest.sources]
        return [num_windows(source.training_tokens, length) * length for source in self.mixture.manifest.sources]

    def _lost_tokens(self, epoch_tokens: Sequence[int]) -> int:
        """Tokens of all epochs drawn to their end that were no label and not the first: what fills no window."""
        if self.config.method is Method.BEST_FIT:
            return 0
        drawn = Mixture(self.mixture.manifest, self.config.sequence_length).use(self.config.num_samples)
        rows = zip(drawn, self.mixture.manifest.sources, epoch_tokens, strict=True)
        return sum(
            use.tokens // tokens * (source.training_tokens - 1 - tokens) for use, source, tokens in rows if use.tokens
        )

    def _borders(self) -> NDArray[np.int64]:
        """The samples that shards begin with, and their number: (shards + 1,). Each stage begins a shard."""
        width = (self.config.sequence_length + 1) * np.dtype(self.mixture.manifest.dtype).itemsize
        firsts = np.arange(0, self.config.num_samples, max(1, self.config.shard_bytes // width))
        stages = [stage.first for stage in Mixture(self.mixture.manifest, self.config.sequence_length).stages]
        return np.unique(np.minimum([*firsts, *stages, self.config.num_samples], self.config.num_samples))

    def _reader(self, work: Work, verify: Verify = Verify.SIZES) -> MixtureReader:
        mixture, length = self.mixture, self.config.sequence_length
        remote = not all(storage.is_local(mixture.input_url(source.input)) for source in mixture.manifest.sources)
        return _open_reader(
            mixture.url, mixture.manifest.digest, length, verify, work.folder / "cache" if remote else None
        )

    def _tokens_manifest(self) -> LoadedManifest[Any]:
        """The tokens of the first source: all share a tokenizer."""
        return load_input(self.mixture, self.mixture.manifest.sources[0].input)

    def _padding_id(self) -> int:
        return padding_token(self._tokens_manifest())


@lru_cache(1)  # kept for the next task
def _open_reader(
    url: str, digest: str, sequence_length: int, verify: Verify, cache_folder: Path | None
) -> MixtureReader:
    cache = None if cache_folder is None else FileCache(cache_folder, CACHE_BYTES)
    reader = MixtureReader.open(url, sequence_length, verify=verify, cache=cache)
    if reader.manifest.digest != digest:
        raise InputError(f"{url} changed while it was being packed, so nothing is published: run again")
    return reader


def _save(path: Path, array: NDArray[np.int64]) -> None:
    content = io.BytesIO()
    np.save(content, array)
    storage.write_atomic(path, content.getvalue())


def _draws_path(work: Work, source: int, name: str) -> Path:
    return work.path(DRAW, f"{name}-{source:05d}.npy")


def _load_draws(work: Work, source: int) -> Draws:
    paths = (_draws_path(work, source, name) for name in Draws._fields)
    return Draws(*(np.load(path, mmap_mode="r", allow_pickle=False) for path in paths))


def build(config: PackConfig, inputs: Sequence[str], name: str | None) -> PackStage:
    """The stage for one mixture.

    Errors: `InputError` where there is not one, or a source has not one window of the sequence length.
    """
    if len(inputs) != 1:
        raise InputError(f"one mixture is packed at a time, got {len(inputs)}: mix them into one with `prep mix`")
    mixture = load_manifest(inputs[0], MixtureManifest)
    Mixture(mixture.manifest, config.sequence_length)
    _refuse_too_many_shards(config, mixture.manifest)
    return PackStage(config=config, inputs=Inputs(manifests=(mixture,)), dataset_name=name or mixture.manifest.name)


def _refuse_too_many_shards(config: PackConfig, mixture: MixtureManifest) -> None:
    num_bytes = config.num_samples * (config.sequence_length + 1) * np.dtype(mixture.dtype).itemsize
    num_shards = num_bytes // config.shard_bytes
    if num_shards > MAX_SHARDS:
        raise InputError(
            f"--tokens {config.tokens}: about {num_bytes:,} bytes in {num_shards:,} shards of {config.shard_bytes:,}, "
            f"but at most {MAX_SHARDS:,} are written: pack fewer tokens, or larger shards with --shard-size"
        )


STAGE = StageType(config=PackConfig, build=build)
