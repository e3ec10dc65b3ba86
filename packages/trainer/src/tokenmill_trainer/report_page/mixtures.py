"""What the runs were trained on, as tables: sources, their weights in each stage, and what was drawn of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill_core.lineage import Node
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_trainer.report_page.run_record import RunRecord
from tokenmill_trainer.report_page.spelling import NONE, count


@dataclass(frozen=True)
class MixtureTable:
    """One mixture and the runs that were last trained on it."""

    name: str
    digest: str
    runs: list[str]
    facts: list[tuple[str, str]]
    heads: list[str]
    rows: list[tuple[str, list[str]]]
    """Source, and a cell for each of `heads`."""
    lineage: Node | None


def mixture_tables(runs: Sequence[RunRecord]) -> list[MixtureTable]:
    """A table a mixture, in the order of the runs."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.mixture is not None:
            groups.setdefault(run.mixture.manifest.digest, []).append(run)
    return [_table(group) for group in groups.values()]


def _table(runs: Sequence[RunRecord]) -> MixtureTable:
    assert runs[0].mixture is not None
    manifest = runs[0].mixture.manifest
    facts, heads, cells = _of_mixture(manifest) if isinstance(manifest, MixtureManifest) else _of_packed(manifest)
    drawn = {source: [cell for run in runs for cell in _drawn(run, source)] for source in cells}
    return MixtureTable(
        name=manifest.name,
        digest=manifest.digest,
        runs=[run.label for run in runs],
        facts=facts,
        heads=heads + [head for run in runs for head in _drawn_heads(run, several=len(runs) > 1)],
        rows=[(source, row + drawn[source]) for source, row in cells.items()],
        lineage=runs[0].lineage,
    )


def _of_mixture(manifest: MixtureManifest) -> tuple[list[tuple[str, str]], list[str], dict[str, list[str]]]:
    facts = [("seed", str(manifest.seed)), ("sources", count(len(manifest.sources)))]
    if manifest.validation_share:
        facts.append(("held out", f"{100 * manifest.validation_share:g} % of each source's documents"))
    facts += [("goes on with", f"{one.digest[:12]} up to token {one.until_token:,}") for one in manifest.continues]
    heads = ["documents", "held out", "training tokens"]
    heads += [f"share, {stage.name} from token {stage.first_token:,}" for stage in manifest.stages]
    cells = {
        source.name: [
            *map(count, (source.documents, source.held_out_documents, source.training_tokens)),
            *(f"{stage.weights[number] / manifest.denominator:.2%}" for stage in manifest.stages),
        ]
        for number, source in enumerate(manifest.sources)
    }
    return facts, heads, cells


def _of_packed(manifest: PackedManifest) -> tuple[list[tuple[str, str]], list[str], dict[str, list[str]]]:
    facts = [
        ("packed", manifest.method),
        ("sequence length", count(manifest.sequence_length)),
        ("sequences", count(manifest.num_samples)),
    ]
    tokens = [sum(shard[number] for shard in manifest.shard_source_tokens) for number in range(len(manifest.sources))]
    numbers = zip(manifest.sources, manifest.epoch_tokens, tokens, strict=True)
    cells = {source: [count(epoch), count(packed)] for source, epoch, packed in numbers}
    return facts, ["tokens of an epoch", "tokens packed"], cells


def _drawn_heads(run: RunRecord, *, several: bool) -> list[str]:
    step, _ = run.drawn
    where = f"{run.label}, step {step:,}" if several else f"step {step:,}"
    return [f"tokens drawn ({where})", "epochs"]


def _drawn(run: RunRecord, source: str) -> list[str]:
    use = next((use for use in run.drawn[1] if use.name == source), None)
    return [count(use.tokens), f"{use.epochs:.2f}"] if use else [NONE, NONE]
