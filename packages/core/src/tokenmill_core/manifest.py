"""Manifests: the one thing that passes between packages.

    raw ─▶ documents ─▶ tokenizer ─▶ tokens ─▶ mixture ─▶ packed ─▶ run ─▶ checkpoint ─▶ model

A manifest is JSON beside the files it vouches for: what it was made from (`inputs`), how (`stage`, `config`), what came
out (`files`, each with its sha256), and what was dropped on the way (`ledger`). It is written last, so a folder without
one is unfinished by definition. It holds nothing that differs between two honest builds, neither time nor host nor the
number of workers: two builds of the same data are the same files, byte for byte.
"""

import hashlib
import json
import math
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SCHEMA_VERSION: Final = 1
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
"""Beside it: what `transformers` reads, with the roles of special tokens and the chat template."""
RAW_FILES_NAME = "raw_files.jsonl"
"""Listing of the raw files behind a dataset: one object a line with `input`, `path`, `bytes`, `sha256`."""


class Kind(StrEnum):
    """What a manifest describes. `raw` appears only as an input."""

    RAW = "raw"
    DOCUMENTS = "documents"
    TOKENIZER = "tokenizer"
    TOKENS = "tokens"
    MIXTURE = "mixture"
    PACKED = "packed"
    RUN = "run"
    CHECKPOINT = "checkpoint"
    MODEL = "model"


class Frozen(BaseModel):
    """Immutable, and an unknown key is an error."""

    model_config = ConfigDict(
        use_attribute_docstrings=True, frozen=True, extra="forbid", json_schema_serialization_defaults_required=True
    )


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or ":" in parts[0]:
        raise ValueError(f"path {path!r} leaves the manifest's folder; files must lie beside their manifest")
    return path


def recordable(value: Any) -> Any:
    """JSON knows no infinities: as strings they pass through it, and a float setting reads them back."""
    if isinstance(value, dict):
        return {key: recordable(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [recordable(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class StageRef(Frozen):
    """The stage that wrote a manifest; `version` is raised whenever the stage's output would change."""

    name: str
    version: int


class InputRef(Frozen):
    """One thing a dataset was made from. `path` says where it lay, relative to the manifest; identity is the digest."""

    kind: Kind
    name: str
    version: str
    digest: Sha256
    path: str


class FileEntry(Frozen):
    """A file beside the manifest. `sha256` was taken while it was written."""

    path: Annotated[str, AfterValidator(_inside)]
    bytes: Count
    sha256: Sha256
    documents: Count | None = None
    tokens: Count | None = None


class LedgerRow(Frozen):
    """What one reason dropped. Bytes are UTF-8 bytes of text, or of the raw row where no text could be read."""

    reason: str
    documents: Count
    bytes: int


class Counts(Frozen):
    """Totals of a dataset: `input_*` = kept + the ledger's rows, for documents and for bytes."""

    input_documents: Count = 0
    input_bytes: Count = 0
    documents: Count = 0
    bytes: Count = 0
    tokens: Count = 0


class ManifestBase(Frozen):
    """The fields that every kind has."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: str
    version: str = "1"
    digest: Sha256 = "0" * 64
    """sha256 of the canonical JSON of everything but `digest`, `outside_digest` and where the inputs lie."""
    stage: StageRef
    inputs: tuple[InputRef, ...] = ()
    config: Annotated[dict[str, Any], BeforeValidator(recordable)]
    files: tuple[FileEntry, ...] = ()
    counts: Counts = Counts()
    ledger: tuple[LedgerRow, ...] = ()
    notes: dict[str, int] = {}
    """Things seen and counted that dropped nothing, such as blank lines and repaired characters."""
    tools: dict[str, str] = {}
    outside_digest: ClassVar[frozenset[str]] = frozenset({"tools"})
    """Fields that say how the dataset was made and not what it is."""

    def compute_digest(self) -> str:
        """The digest of what this manifest says, whatever `digest` holds now."""
        body = self.model_dump(mode="json", exclude={"digest", *self.outside_digest})
        for reference in body["inputs"]:
            del reference["path"]
        return sha256_of_json(body)

    def sealed(self) -> Self:
        """This manifest with its digest filled in and its ledger checked."""
        return self.model_copy(update={"digest": self.compute_digest()})

    @model_validator(mode="after")
    def _each_file_once(self) -> Self:
        paths = [entry.path for entry in self.files]
        if len(set(paths)) < len(paths):
            raise ValueError(f"files: {next(path for path in paths if paths.count(path) > 1)!r} is listed twice")
        return self

    @model_validator(mode="after")
    def _ledger_balances(self) -> Self:
        for unit in ("documents", "bytes"):
            kept, taken_in = getattr(self.counts, unit), getattr(self.counts, f"input_{unit}")
            dropped = sum(getattr(row, unit) for row in self.ledger)
            if taken_in != kept + dropped:
                raise ValueError(
                    f"the ledger does not balance: {taken_in} {unit} came in, {kept} were kept and {dropped} dropped"
                )
        return self


class DocumentsManifest(ManifestBase):
    """Clean documents as Parquet files with the columns of `documents.DOCUMENT_SCHEMA`."""

    kind: Literal[Kind.DOCUMENTS] = Kind.DOCUMENTS


class Compression(Frozen):
    """How well a tokenizer compresses the text of one source: `bytes` over `tokens` is its bytes per token."""

    source: str
    documents: Count
    bytes: Count
    tokens: Count


class TokenizerManifest(ManifestBase):
    """A `tokenizer.json` in the Hugging Face format."""

    kind: Literal[Kind.TOKENIZER] = Kind.TOKENIZER
    vocab_size: Count
    """Number of ids, special tokens included: every id is below it."""
    padded_vocab_size: Count
    """Rows a model's embedding should have: `vocab_size`, or the next multiple of what was asked for."""
    special_tokens: dict[str, int]
    end_of_document: str | None
    """The special token that closes a document, or none."""
    beginning_of_document: str | None = None
    """The special token that opens a document, or none."""
    padding: str | None = None
    """The special token that fills up short sequences, or none."""
    compression: tuple[Compression, ...] = ()
    """What the training sample of each source came to in tokens; empty for a tokenizer that was imported."""


class TokensManifest(ManifestBase):
    """Token shards in Megatron's MMIDIDX format, `<shard>.bin` with `<shard>.idx`.

    `<shard>.documents.parquet` has a row a document of the shard, in order: raw `file`, `row` in it, the
    user's `id`, `hash` of its text.
    """

    kind: Literal[Kind.TOKENS] = Kind.TOKENS
    dtype: Literal["uint16", "int32"]
    vocab_size: Count
    padded_vocab_size: Count
    """As in the tokenizer's manifest."""
    tokenizer_sha256: Sha256
    """sha256 of the `tokenizer.json` beside the shards, a copy of the one they were made with."""
    end_of_document_id: int | None
    """Id that closes every document, or none when documents are not closed."""
    beginning_of_document_id: int | None = None
    """Id that opens every document, or none when they are not opened."""
    loss_mask: bool = False
    """Whether each shard has a `<shard>.loss_mask.bin`: a byte a token, 1 where the token counts for the loss."""
    shards: tuple[str, ...]
    engines: dict[str, str] = {}
    """Which encoder wrote each shard, such as `gigatoken 0.10.0`; all of them give the same ids."""
    outside_digest: ClassVar[frozenset[str]] = ManifestBase.outside_digest | {"engines"}


class SourceUse(Frozen):
    """What training has drawn from one source."""

    name: str
    samples: Count | None
    """None where a sample holds documents of several sources."""
    tokens: Count
    epochs: Annotated[float, Field(ge=0)]
    """Samples over the source's windows; of packed sequences, tokens over those of one epoch."""


SkipReason = Literal["overflow", "non_finite", "spike"]


class SkippedSamples(Frozen):
    """Consumed samples that have not trained the weights: [first, stop), as global indices."""

    first: Count
    stop: Count
    step: Count | None
    """The step they were read in, which updated nothing; none where they were jumped over and are part of no step."""
    reason: SkipReason
    """A gradient too large for fp16, or what the guard found."""


class RunManifest(ManifestBase):
    """A finished training run: its settings, its metrics and the manifests of its checkpoints."""

    kind: Literal[Kind.RUN] = Kind.RUN
    step: Count
    consumed_samples: Count
    consumed_tokens: Count
    sources: tuple[SourceUse, ...] = ()
    """What was drawn from each source of the mixture."""
    skipped: tuple[SkippedSamples, ...] = ()
    """Which samples of it have not trained the weights."""


class CheckpointManifest(ManifestBase):
    """The state of a run after `step` steps, complete enough to go on from."""

    kind: Literal[Kind.CHECKPOINT] = Kind.CHECKPOINT
    step: Count
    consumed_samples: Count
    consumed_tokens: Count
    world_size: Count
    sources: tuple[SourceUse, ...] = ()
    """What was drawn from each source of the mixture so far."""
    skipped: tuple[SkippedSamples, ...] = ()
    """Which samples of it have not trained the weights."""


class ModelManifest(ManifestBase):
    """A model in the Hugging Face layout, exported from a checkpoint."""

    kind: Literal[Kind.MODEL] = Kind.MODEL
    architecture: str
    parameters: Count
    max_logit_difference: float
    """Largest |ours − transformers'| over the logits of the check made at export, fp32."""


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys, no spaces, UTF-8: one text for one value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def sha256_of_json(value: object) -> str:
    """Hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
