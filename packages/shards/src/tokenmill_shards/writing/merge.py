"""The `merge` stage: several tokens datasets ─▶ one, their shards one after another in the order they are named."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TOKENIZER_NAME, Counts, FileEntry, Frozen, ManifestBase, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work
from tokenmill_core.storage import copy_file
from tokenmill_shards.formats.places import MASK_SUFFIX, PLACES_SUFFIX
from tokenmill_shards.mixing.mix import refuse_mismatch
from tokenmill_shards.writing.tokenize import copy_tokenizer


class MergeConfig(Frozen):
    """`prep merge` has no settings: the result is decided by what is merged."""


@dataclass(frozen=True)
class MergeStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "merge"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-shards",)

    config: MergeConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        """One pass of copying."""
        return (Phase("copy", self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """A task a shard."""
        return [Task(index=n, payload={"input": i, "shard": shard}) for n, (i, shard) in enumerate(self._shards())]

    def _shards(self) -> list[tuple[int, str]]:
        """(input, its shard) of every shard, in order."""
        return [(i, shard) for i, item in enumerate(self.inputs.manifests) for shard in item.manifest.shards]

    def run(self, task: Task, work: Work) -> Report:
        """Copy a shard under its new name, byte for byte."""
        loaded = self.inputs.manifests[task.payload["input"]]
        entries = {entry.path: entry for entry in loaded.manifest.files}
        files = []
        for suffix in (".bin", ".idx", PLACES_SUFFIX, *((MASK_SUFFIX,) if loaded.manifest.loss_mask else ())):
            old = entries[task.payload["shard"] + suffix]
            path = work.path("copy", f"shard-{task.index:05d}{suffix}")
            num_bytes, sha256 = copy_file(loaded.file_url(old.path), path)
            files.append(old.model_copy(update={"path": path.name, "bytes": num_bytes, "sha256": sha256}))
        return Report(files=tuple(files))

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """The tokenizer that all inputs share."""
        return copy_tokenizer(self.inputs.manifests[0].file_url(TOKENIZER_NAME), self.inputs.manifests[:1], work)

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokens manifest: what the inputs have in common, and their sums."""
        first: TokensManifest = self.inputs.manifests[0].manifest
        counts = [loaded.manifest.counts for loaded in self.inputs.manifests]
        totals = {unit: sum(getattr(c, unit) for c in counts) for unit in ("documents", "bytes", "tokens")}
        taken_in = {"input_documents": totals["documents"], "input_bytes": totals["bytes"]}
        engines = [self.inputs.manifests[i].manifest.engines.get(shard) for i, shard in self._shards()]
        shards = [f"shard-{number:05d}" for number in range(len(engines))]
        return TokensManifest(
            **common | {"counts": Counts(**totals, **taken_in)},
            dtype=first.dtype,
            vocab_size=first.vocab_size,
            padded_vocab_size=first.padded_vocab_size,
            tokenizer_sha256=first.tokenizer_sha256,
            end_of_document_id=first.end_of_document_id,
            beginning_of_document_id=first.beginning_of_document_id,
            loss_mask=first.loss_mask,
            shards=tuple(shards),
            engines={shard: engine for shard, engine in zip(shards, engines, strict=True) if engine},
        )


def build(config: MergeConfig, inputs: Sequence[str], name: str | None) -> MergeStage:
    """The stage for the tokens datasets `inputs`, in this order.

    Errors: `InputError` where tokenizers, token types, what opens and closes documents, or loss masks differ.
    """
    if not inputs:
        raise InputError("no INPUT given: name the tokens datasets to merge")
    loaded: list[LoadedManifest[TokensManifest]] = [load_manifest(path, TokensManifest) for path in inputs]
    refuse_mismatch(list(inputs), loaded)
    _refuse_other_forms(list(inputs), loaded)
    together = Inputs(manifests=tuple(loaded))
    return MergeStage(config=config, inputs=together, dataset_name=name or together.default_name())


def _refuse_other_forms(paths: Sequence[str], loaded: Sequence[LoadedManifest[TokensManifest]]) -> None:
    """One dataset has one rule for what opens its documents, and a loss mask for all shards or for none."""
    for path, item in zip(paths, loaded, strict=True):
        for field in ("beginning_of_document_id", "loss_mask"):
            own, first = (getattr(other.manifest, field) for other in (item, loaded[0]))
            if own != first:
                raise InputError(
                    f"{path!r} has {field} {own}, but {paths[0]!r} has {first}: tokenize both with the same settings"
                )


STAGE = StageType(config=MergeConfig, build=build)
