"""What `prep verify` checks of a mixture against its own `config`, the request it answers: all of it but the datasets.

config ─▶ MixRequest ─▶ solve_stages, fim_tokens ─▶ the stages and the special tokens that the mixture must have
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pydantic import ValidationError

from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import Counts
from tokenmill_core.manifest_io import LoadedManifest, describe_validation_error
from tokenmill_core.mixture_manifest import FimTokens, MixtureManifest
from tokenmill_core.verify import Checked
from tokenmill_shards.mixing.amounts import amount_for
from tokenmill_shards.mixing.fim import fim_tokens
from tokenmill_shards.mixing.mix import MixStage
from tokenmill_shards.mixing.request import MixRequest
from tokenmill_shards.mixing.shares import DENOMINATOR, SourceSize
from tokenmill_shards.mixing.stages import solve_stages


class Dataset(NamedTuple):
    """What a mixture depends on of the dataset of one source, beside what it says of it itself."""

    folder: str
    counts: Counts
    padded_vocab_size: int


def request_problems(
    loaded: LoadedManifest[MixtureManifest], datasets: Sequence[Dataset], checked: Checked
) -> Iterator[str]:
    """Each thing in a mixture of `datasets`, one a source, that is not as its config asks."""
    manifest = loaded.manifest
    yield from _sum_problems(loaded, datasets)
    yield from _fim_id_problems(loaded)
    if (manifest.stage.name, manifest.stage.version) != (MixStage.name, MixStage.version):
        written_by = f"{manifest.stage.name} version {manifest.stage.version}"
        checked.notes.append(
            f"{loaded.url}: not compared with its config, as {written_by} wrote it; mix again for that"
        )
        return
    try:
        request = MixRequest.model_validate(manifest.config)
    except ValidationError as error:
        yield f"{loaded.url}: config: {describe_validation_error(error)}; mix again"
        return
    names = tuple(source.name for source in manifest.sources)
    if names != request.sources:
        yield f"{loaded.url}: sources are {', '.join(names)}, but its config asks for {', '.join(request.sources)}"
        return
    yield from _setting_problems(loaded, request)
    yield from _chain_problems(loaded, request, checked)
    yield from _stage_problems(loaded, request, datasets)
    yield from _fim_problems(loaded, request, datasets[0].folder)


def _sum_problems(loaded: LoadedManifest[MixtureManifest], datasets: Sequence[Dataset]) -> Iterator[str]:
    manifest = loaded.manifest
    for unit in ("documents", "bytes", "tokens"):
        need = sum(getattr(dataset.counts, unit) for dataset in datasets)
        if (have := getattr(manifest.counts, unit)) != need:
            yield f"{loaded.url}: counts.{unit} is {have:,}, but its sources have {need:,}; mix again"
    rows = max(dataset.padded_vocab_size for dataset in datasets)
    if manifest.padded_vocab_size != rows:
        yield f"{loaded.url}: padded_vocab_size is {manifest.padded_vocab_size}, but its sources need {rows}; mix again"


def _setting_problems(loaded: LoadedManifest[MixtureManifest], request: MixRequest) -> Iterator[str]:
    manifest = loaded.manifest
    pairs: dict[str, tuple[object, object]] = {
        "seed": (manifest.seed, request.seed),
        "validation_share": (manifest.validation_share, request.validation_share),
    }
    for source in manifest.sources:
        rate = float(amount_for(source.name, request.fim) or 0)
        pairs[f"source {source.name!r}: fim_rate"] = source.fim_rate, rate
        pairs[f"source {source.name!r}: fim_spm_share"] = source.fim_spm_share, request.fim_spm_share
    for what, (have, need) in pairs.items():
        if have != need:
            yield f"{loaded.url}: {what} is {have}, but its config asks for {need}; mix again"


def _chain_problems(loaded: LoadedManifest[MixtureManifest], request: MixRequest, checked: Checked) -> Iterator[str]:
    """Mixtures it goes on with that its config does not name; they are no inputs, so all that is known is a digest."""
    continues = loaded.manifest.continues
    if continues[-1:] != ((request.continues,) if request.continues else ()):
        have = ", ".join(f"{c.digest[:12]}… until token {c.until_token}" for c in continues) or "no mixture"
        asked = request.continues
        need = f"{asked.digest[:12]}… until token {asked.until_token}" if asked else "none"
        yield f"{loaded.url}: continues {have}, but its config asks for {need}; mix again"
    elif any(before.until_token > after.until_token for before, after in pairwise(continues)):
        yield f"{loaded.url}: continues: an older mixture stands with a later token than a newer one; mix again"
    elif continues:
        checked.notes.append(
            f"{loaded.url}: its stages before token {continues[-1].until_token:,} were not compared with the mixture "
            f"{continues[-1].digest[:12]}… that it goes on with, which is none of its inputs"
        )


def _stage_problems(
    loaded: LoadedManifest[MixtureManifest], request: MixRequest, datasets: Sequence[Dataset]
) -> Iterator[str]:
    """Stages that are not what the config comes to, after those that an earlier mixture decides."""
    manifest = loaded.manifest
    if not request.continues and manifest.denominator != DENOMINATOR:
        yield f"{loaded.url}: denominator is {manifest.denominator}, but needs to be {DENOMINATOR}; mix again"
        return
    first = request.continues.until_token if request.continues else 0
    earlier = tuple(stage for stage in manifest.stages if stage.first_token < first)
    sizes = [
        SourceSize(source.name, source.training_tokens, dataset.counts.documents, dataset.counts.bytes)
        for source, dataset in zip(manifest.sources, datasets, strict=True)
    ]
    try:
        stages = solve_stages(request, sizes, earlier, manifest.denominator)
    except TokenmillError as error:
        yield f"{loaded.url}: its config cannot be met: {error}"
        return
    if len(stages) != len(manifest.stages):
        yield f"{loaded.url}: {len(manifest.stages)} stages, but its config comes to {len(stages)}; mix again"
        return
    for number, (have, need) in enumerate(zip(manifest.stages, stages, strict=True)):
        if have != need:
            field = next(name for name, value in need if value != getattr(have, name))
            yield (
                f"{loaded.url}: stages.{number}.{field} is {getattr(have, field)}, but its config comes to "
                f"{getattr(need, field)}; mix again"
            )


def _fim_id_problems(loaded: LoadedManifest[MixtureManifest]) -> Iterator[str]:
    fim, vocab_size = loaded.manifest.fim, loaded.manifest.vocab_size
    if fim is None:
        return
    ids = list(fim.model_dump().values())
    if len(set(ids)) < len(ids) or max(ids) >= vocab_size:
        yield f"{loaded.url}: fim is {_shown(fim)}, but needs three ids of their own below {vocab_size}; mix again"


def _fim_problems(loaded: LoadedManifest[MixtureManifest], request: MixRequest, folder: str) -> Iterator[str]:
    """Ids that are not those of the special tokens in the tokenizer beside the first source's tokens."""
    try:
        need = fim_tokens(folder, request.fim_tokens) if any(request.fim.values()) else None
    except TokenmillError as error:
        yield f"{loaded.url}: fim: {error}"
        return
    have = loaded.manifest.fim
    if have != need:
        yield f"{loaded.url}: fim is {_shown(have)}, but its config and tokenizer give {_shown(need)}; mix again"


def _shown(fim: FimTokens | None) -> str:
    return "none" if fim is None else ", ".join(f"{part} {id}" for part, id in fim)
