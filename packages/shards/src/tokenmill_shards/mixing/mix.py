"""The `mix` stage: tokens datasets and a request ─▶ a mixture manifest. No token is touched.

    NAME=DIR ... ─┐                       ┌▶ held-out counts (where there is a validation share)
    settings ─────┴▶ MixRequest, recorded ┴▶ sizes ─▶ solve_stages ─▶ integer weights, stage by stage

Shares are kept as integers over a common denominator, so that they are the same on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import Counts, ManifestBase, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.mixture_manifest import Continued, FimTokens, MixtureManifest, MixtureSource, MixtureStage
from tokenmill_core.named_sources import NamedSource, parse_source, refuse_repeated_names, refuse_some_weights
from tokenmill_core.stage import Inputs, Phase, Stage, StageType, Work, shared_name
from tokenmill_shards.mixing.amounts import amount_for
from tokenmill_shards.mixing.continuing import (
    Before,
    before,
    load_earlier,
    refuse_other_fim_tokens,
    with_earlier_fim,
    with_earlier_sources,
)
from tokenmill_shards.mixing.figures import run_length
from tokenmill_shards.mixing.fim import fim_tokens
from tokenmill_shards.mixing.held_out import (
    HOLD_OUT,
    HeldOutCounts,
    held_out_counts,
    held_out_phase,
    refuse_nothing_held_out,
    without_training,
)
from tokenmill_shards.mixing.request import MixConfig, MixRequest, MixSettings, refuse_unknown_names
from tokenmill_shards.mixing.shares import SourceSize
from tokenmill_shards.mixing.stages import needs_tokens, solve_stages
from tokenmill_shards.reading.store import shard_tokens


@dataclass(frozen=True)
class MixStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "mix"
    version: ClassVar[int] = 2
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-shards",)
    reads_input_files: ClassVar[bool] = False
    writes_files: ClassVar[bool] = False

    config: MixRequest
    inputs: Inputs
    dataset_name: str
    before: Before
    """What it takes over from an earlier mixture."""
    fim: FimTokens | None
    tokens: int | None
    """The budget asked for, also where nothing depends on it."""

    def phases(self) -> Sequence[Phase]:
        """The count of what is held out, where anything is; else all is known from the manifests."""
        share = self.config.validation_share
        return [held_out_phase(self.inputs.manifests, share)] if share else []

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The mixture manifest."""
        manifests: list[TokensManifest] = [loaded.manifest for loaded in self.inputs.manifests]
        held_out = self._held_out(work)
        sources = self._sources(held_out)
        stages = self._stages(sources, manifests, held_out)
        self._refuse_nothing_held_out(stages, held_out)
        totals = {unit: sum(getattr(m.counts, unit) for m in manifests) for unit in ("documents", "bytes", "tokens")}
        counts = Counts(**totals, input_documents=totals["documents"], input_bytes=totals["bytes"])
        first = manifests[0]
        mixture = MixtureManifest(
            **common | {"counts": counts},
            sources=sources,
            stages=stages,
            denominator=self.before.denominator,
            seed=self.config.seed,
            validation_share=self.config.validation_share,
            continues=self.before.continues,
            dtype=first.dtype,
            vocab_size=first.vocab_size,
            padded_vocab_size=max(manifest.padded_vocab_size for manifest in manifests),
            tokenizer_sha256=first.tokenizer_sha256,
            end_of_document_id=first.end_of_document_id,
            beginning_of_document_id=first.beginning_of_document_id,
            fim=self.fim,
        )
        run_length(self.config, self.tokens, mixture)  # refuses a budget that fixed epochs do not come to
        return mixture

    def _sources(self, held_out: Sequence[HeldOutCounts]) -> tuple[MixtureSource, ...]:
        rates = [amount_for(name, self.config.fim) or 0 for name in self.config.sources]
        return tuple(
            MixtureSource(
                name=name,
                input=number,
                documents=loaded.manifest.counts.documents,
                tokens=sum(shard_tokens(loaded.manifest)),
                shard_tokens=shard_tokens(loaded.manifest),
                held_out_documents=held_out[number].documents if held_out else 0,
                held_out_tokens=held_out[number].shard_tokens if held_out else (),
                loss_mask=loaded.manifest.loss_mask,
                fim_rate=float(rates[number]),
                fim_spm_share=self.config.fim_spm_share,
            )
            for number, (name, loaded) in enumerate(zip(self.config.sources, self.inputs.manifests, strict=True))
        )

    def _held_out(self, work: Work) -> list[HeldOutCounts]:
        reports = work.reports(HOLD_OUT) if self.config.validation_share else []
        return held_out_counts(reports, len(self.inputs.manifests)) if reports else []

    def _stages(
        self,
        sources: Sequence[MixtureSource],
        manifests: Sequence[TokensManifest],
        held_out: Sequence[HeldOutCounts],
    ) -> tuple[MixtureStage, ...]:
        sizes = [
            _size(source.name, manifest)._replace(tokens=source.training_tokens)
            for source, manifest in zip(sources, manifests, strict=True)
        ]
        for number, counts in enumerate(held_out):
            if 0 < counts.documents == counts.all_documents:
                reason = without_training(counts, self.config.validation_share)
                sizes[number] = sizes[number]._replace(without_tokens=reason)
        return solve_stages(self.config, sizes, self.before.stages, self.before.denominator)

    def _refuse_nothing_held_out(self, stages: Sequence[MixtureStage], held_out: Sequence[HeldOutCounts]) -> None:
        weighted = {
            self.config.sources[number]: counts
            for number, counts in enumerate(held_out)
            if any(stage.weights[number] for stage in stages)
        }
        if weighted:
            refuse_nothing_held_out(weighted, self.config.validation_share)


def build(config: MixConfig, inputs: Sequence[str], name: str | None) -> MixStage:
    """The stage for `NAME=DIR[:WEIGHT]` arguments; their order does not count."""
    arguments = sorted((parse_source(argument) for argument in inputs), key=lambda source: source.name)
    if not arguments:
        raise ConfigError("no source given: NAME=DIR, or more")
    refuse_repeated_names(arguments)
    refuse_some_weights(arguments)
    earlier = load_earlier(config)
    datasets = {source.name: load_manifest(source.path, TokensManifest) for source in arguments}
    if earlier is not None:
        datasets = with_earlier_sources(earlier, datasets)
    names, loaded = tuple(datasets), tuple(datasets.values())
    _refuse_same_dataset(names, loaded)
    refuse_mismatch(names, loaded)
    request = _request(config, arguments, names, earlier)
    fim = fim_tokens(loaded[0].folder, request.fim_tokens) if any(request.fim.values()) else None
    if earlier is not None:
        refuse_other_fim_tokens(earlier, fim)
    taken_over = before(earlier.manifest, config.continue_from or 0, names) if earlier else Before()
    return MixStage(
        config=_without_idle_budget(request, loaded, len(taken_over.stages)),
        inputs=Inputs(manifests=loaded),
        dataset_name=name or shared_name(names),
        before=taken_over,
        tokens=config.tokens,
        fim=fim,
    )


def _request(
    config: MixConfig,
    arguments: Sequence[NamedSource],
    names: tuple[str, ...],
    earlier: LoadedManifest[MixtureManifest] | None,
) -> MixRequest:
    settings = config.model_dump(include=set(MixSettings.model_fields))
    weights = {source.name: source.weight for source in arguments if source.weight is not None}
    if weights and config.weights:
        raise ConfigError("weights: sources have weights of their own, NAME=DIR:WEIGHT: give them in one place")
    settings |= {"weights": weights or config.weights, "sources": names}
    if earlier is not None:
        old = earlier.manifest
        settings |= {"seed": old.seed, "validation_share": old.validation_share}
        settings |= with_earlier_fim(config, earlier, names)
        settings["left_out"] = sorted(set(names) - {source.name for source in arguments})
        settings["continues"] = Continued(digest=old.digest, until_token=config.continue_from or 0)
    request = MixRequest(**settings)
    refuse_unknown_names(request, names)
    return request


def _without_idle_budget(
    request: MixRequest, loaded: Sequence[LoadedManifest[TokensManifest]], num_before: int
) -> MixRequest:
    """The request without a budget on which nothing depends: a longer run of the same mixture is the same mixture."""
    sizes = [_size(name, item.manifest) for name, item in zip(request.sources, loaded, strict=True)]
    if needs_tokens(request, sizes, num_before):
        return request
    return request.model_copy(update={"tokens": None})


def _size(name: str, manifest: TokensManifest) -> SourceSize:
    return SourceSize(name, sum(shard_tokens(manifest)), manifest.counts.documents, manifest.counts.bytes)


def refuse_mismatch(names: Sequence[str], loaded: Sequence[LoadedManifest[TokensManifest]]) -> None:
    """All sources must speak the same vocabulary."""
    speech = [
        {
            "tokenizer": item.manifest.tokenizer_sha256[:12],
            "dtype": item.manifest.dtype,
            "vocab_size": item.manifest.vocab_size,
            "end_of_document_id": item.manifest.end_of_document_id,
            "beginning_of_document_id": item.manifest.beginning_of_document_id,
        }
        for item in loaded
    ]
    for name, own in zip(names, speech, strict=True):
        for what, value in own.items():
            if value != speech[0][what]:
                raise InputError(
                    f"source {name!r} has {what} {value}, but {names[0]!r} has {speech[0][what]}: "
                    "tokenize them with the same tokenizer and settings"
                )


def _refuse_same_dataset(names: Sequence[str], loaded: Sequence[LoadedManifest[TokensManifest]]) -> None:
    first: dict[str, str] = {}
    for name, item in zip(names, loaded, strict=True):
        other = first.setdefault(item.manifest.digest, name)
        if other != name:
            raise ConfigError(f"sources {other!r} and {name!r} are the same dataset: name it once, with both weights")


STAGE = StageType(config=MixConfig, build=build, suffix=".json", path_settings=("continues",), named_inputs=True)
