"""The `import-tokens` stage: token files of other tools ─▶ a tokens dataset, their tokens left where they lie.

x.ds │ x.npy │ x.bin ─▶ TokenFile ─▶ shard-NNNNN.bin (a hard link), .idx, .documents.parquet, .loss_mask.bin
tokenizer.json ─▶ a copy beside them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tokenmill_core.errors import InputError
from tokenmill_core.inputs import RawFile, RawGroup
from tokenmill_core.manifest import Counts, FileEntry, Frozen, LedgerRow, ManifestBase, TokensManifest
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work
from tokenmill_shards.formats.mmididx import dtype_for
from tokenmill_shards.importing.inputs import find_token_files
from tokenmill_shards.importing.layouts import LAYOUTS, Layout, TokenFormat
from tokenmill_shards.importing.shard import ImportedShard
from tokenmill_shards.importing.token_file import DTYPES, Reading
from tokenmill_shards.writing.boundaries import Boundaries
from tokenmill_shards.writing.tokenize import copy_tokenizer, shards_among
from tokenmill_tokenizer import OpenedTokenizer, open_tokenizer

IMPORT = "import"
"""The stage's one phase."""


class ImportTokensConfig(Frozen):
    """Settings of `prep import-tokens`."""

    format: TokenFormat
    """Which tool wrote the files: `datatrove`, `olmo`, `llmc` or `megatron`."""
    tokenizer: str
    """The tokenizer that the tokens were made with: a tokenizer dataset, or a `tokenizer.json`."""
    end_of_document: str | None = None
    """Token that stands between documents; by default the one that the tokenizer's manifest names, or a usual one."""
    dtype: Literal["uint16", "uint32"] | None = None
    """Type of the tokens where the files do not say; by default the narrowest that holds the tokenizer's ids."""

    def identity(self) -> "ImportTokensConfig":
        """Without the place of the tokenizer: what counts is its digest, among the inputs."""
        return self.model_copy(update={"tokenizer": "in inputs"})


@dataclass(frozen=True)
class ImportTokensStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "import-tokens"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-shards", "pyarrow")

    config: ImportTokensConfig
    inputs: Inputs
    dataset_name: str
    groups: tuple[RawGroup, ...]
    """Those of the inputs that are token files and what lies beside them."""
    tokenizer: OpenedTokenizer

    @property
    def layout(self) -> Layout:
        """How the files lie and are read."""
        return LAYOUTS[self.config.format]

    def phases(self) -> Sequence[Phase]:
        """One pass."""
        return (Phase(IMPORT, self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """A task, and so a shard, for each file."""
        return [
            Task(index=number, payload={"url": file.url, "name": f"{group.name}/{file.name}"}, weight=file.bytes)
            for number, (group, file) in enumerate(self._token_files())
        ]

    def _token_files(self) -> list[tuple[RawGroup, RawFile]]:
        suffix = self.layout.suffix
        return [(group, file) for group in self.groups for file in group.files if file.name.endswith(suffix)]

    def run(self, task: Task, work: Work) -> Report:
        """Make a shard of one file."""
        dtype = DTYPES[self.config.dtype] if self.config.dtype else dtype_for(self.tokenizer.vocab_size)
        source = self.layout.open_file(
            Path(task.payload["url"]), Reading(dtype=dtype, end_id=self.tokenizer.end_of_document_id)
        )
        prefix = work.path(IMPORT, f"shard-{task.index:05d}")
        shard = ImportedShard(source, task.payload["name"], prefix, self.tokenizer.vocab_size, self._boundaries())
        files, notes = shard.write()
        num_empty = shard.lengths.size - shard.rows.size
        counts = Counts(
            input_documents=shard.lengths.size,
            input_bytes=source.tokens.nbytes,
            documents=shard.rows.size,
            bytes=source.tokens.nbytes,
            tokens=source.tokens.size,
        )
        ledger = (LedgerRow(reason="no_tokens", documents=num_empty, bytes=0),) if num_empty else ()
        form = {"dtype": source.tokens.dtype.name, "loss_mask": source.loss_mask is not None}
        return Report(files=tuple(files), counts=counts, ledger=ledger, notes=notes, extra=form)

    def _boundaries(self) -> Boundaries:
        """What may stand around documents."""
        tokenizer, end = self.tokenizer, self.tokenizer.end_of_document_id
        if self.layout.end_opens:
            return Boundaries(begin_id=end, end_id=None)
        return Boundaries(tokenizer.vocabulary.get(tokenizer.beginning_of_document or ""), end)

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """The tokenizer itself: shards can always be decoded by what lies beside them."""
        return copy_tokenizer(self.tokenizer.url, self.tokenizer.inputs.manifests, work)

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokens manifest.

        Raises:
            InputError: files differ in the type of their tokens, or only some have a loss mask.
        """
        reports, notes, boundaries = work.reports(IMPORT), common["notes"], self._boundaries()
        self._refuse_mixed(reports)
        # Our loss masks never count the token that opens a document; theirs may.
        opened = not notes.get("documents_without_beginning") and not reports[0].extra["loss_mask"]
        return TokensManifest(
            **common | {"notes": {what: count for what, count in notes.items() if count}},
            **reports[0].extra,
            vocab_size=self.tokenizer.vocab_size,
            padded_vocab_size=self.tokenizer.padded_vocab_size,
            tokenizer_sha256=self.tokenizer.sha256,
            end_of_document_id=None if notes.get("documents_without_end") else boundaries.end_id,
            beginning_of_document_id=boundaries.begin_id if opened else None,
            shards=tuple(shards_among(entry for report in reports for entry in report.files)),
        )

    def _refuse_mixed(self, reports: Sequence[Report]) -> None:
        first = reports[0].extra
        for report, (group, file) in zip(reports, self._token_files(), strict=True):
            for field, value in report.extra.items():
                if value != first[field]:
                    raise InputError(
                        f"{group.name}/{file.name} has {field} {value}, but the files before it {first[field]}: "
                        "import them as two datasets"
                    )


def build(config: ImportTokensConfig, inputs: Sequence[str], name: str | None) -> ImportTokensStage:
    """The stage for PATH arguments.

    Errors: `InputError` where there are no token files, or the tokenizer lacks the end-of-document token named.
    """
    groups = tuple(find_token_files(inputs, LAYOUTS[config.format]))
    tokenizer = open_tokenizer(config.tokenizer, config.end_of_document)
    return ImportTokensStage(
        config=config.identity(),
        inputs=Inputs(raw=(*groups, *tokenizer.inputs.raw), manifests=tokenizer.inputs.manifests),
        dataset_name=name or Inputs(raw=groups).default_name(),
        groups=groups,
        tokenizer=tokenizer,
    )


STAGE = StageType(config=ImportTokensConfig, build=build, path_settings=("tokenizer",))
