"""`prep mix`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tokenmill_core import storage
from tokenmill_core.build import Built, build_stage
from tokenmill_core.cli.options import gather_config, make_executor, nest, stage_options, summary, wide_console
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest_io import manifest_url
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.mixing.amounts import parse_per_source, parse_tokens
from tokenmill_shards.mixing.figures import (
    DEFAULT_SEQUENCE_LENGTH,
    Figures,
    StageFigures,
    figures,
    fitting_length,
    run_length,
    shortest_source,
)
from tokenmill_shards.mixing.held_out import warn_of_two_hashes
from tokenmill_shards.mixing.mix import STAGE as MIX
from tokenmill_shards.mixing.request import Method, MixConfig, Unit

PER_SOURCE = ("epochs", "max_epochs", "max_share", "fim")
TOKENS = {"tokens": "--tokens", "continue_from": "--from"}


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="NAME=DIR[:WEIGHT]...")
@click.option(
    "--method",
    type=click.Choice([method.value for method in Method]),
    help="Shares before bounds. [default: temperature]",
)
@click.option("--temperature", type=float, help="T in share ~ size^(1/T); above 1 evens sources out. [default: 1]")
@click.option(
    "--unit", type=click.Choice([unit.value for unit in Unit]), help="What sizes are counted in. [default: tokens]"
)
@click.option("--epochs", multiple=True, metavar="[NAME=]E", help="Exactly E epochs of a source; repeatable.")
@click.option("--max-epochs", multiple=True, metavar="[NAME=]N", help="At most N epochs of a source; repeatable.")
@click.option("--max-share", multiple=True, metavar="[NAME=]S", help="At most this share for a source; repeatable.")
@click.option(
    "--stage", "stages", multiple=True, metavar="FROM:NAME=SHARE,...", help="Shares from a token on; repeatable."
)
@click.option("--tokens", help="Token budget of the whole run, such as 10B. [default: one pass]")
@click.option("--seed", type=int, help="Seed of the data's order. [default: 0]")
@click.option("--validation-share", type=float, help="Share of each source's documents held out. [default: 0]")
@click.option("--continue", "continues", metavar="MIXTURE", help="Go on with an earlier mixture, with new shares.")
@click.option("--from", "continue_from", metavar="TOKENS", help="From which token on, with --continue.")
@click.option("--fim", multiple=True, metavar="[NAME=]RATE", help="Share of documents to fill in the middle of.")
@click.option("--fim-spm-share", type=float, help="Share of these in the order suffix, prefix, middle. [default: 0.5]")
@click.option("--fim-tokens", metavar="PREFIX,MIDDLE,SUFFIX", help="Their special tokens. [default: the usual ones]")
@click.option(
    "--sequence-length",
    type=click.IntRange(min=1),
    default=DEFAULT_SEQUENCE_LENGTH,
    show_default=True,
    help="Of the samples that the figures count; the mixture does not depend on it.",
)
@click.option("--plot", metavar="FILE.png", help="Draw the shares by source and stage.")
@stage_options
def mix(sources: tuple[str, ...], sequence_length: int, plot: str | None, **options: Any) -> None:
    """Mix tokens datasets: write which share of the training samples comes from which.

    The size of a source is its number of tokens, or WEIGHT where given (for all sources, or for none). NAME may be left
    out where a number is for all sources.

    \b
    Examples:
      prep mix web=data/web code=data/code --temperature 3.3 --tokens 10B --out data/mixture.json
      prep mix web=data/web:0.8 code=data/code:0.2 --stage 8B:web=0.4,code=0.6 --tokens 10B --out data/mixture.json
      prep mix web=data/web wiki=data/wiki --epochs web=1 --epochs wiki=3 --out data/mixture.json
      prep mix en=data/en is=data/is --method unimax --max-epochs 4 --tokens 250B --out data/mixture.json
      prep mix web=data/web math=data/math --continue data/mixture.json --from 5B --out data/second.json
    """
    common = {name: options.pop(name) for name in ("out", "name", "config_path", "overrides", "force", "as_json")}
    execution = {name: options.pop(name) for name in ("workers", "executor", "executor_config", "executor_set")}
    target = None if plot is None else _plot_target(plot)
    config = gather_config(MixConfig, _settings(options), common["config_path"], common["overrides"])
    _refuse_own_past(config, common["out"])
    stage = MIX.build(config, sources, common["name"])
    with make_executor(execution) as executor:
        built = build_stage(stage, common["out"], executor, force=common["force"])
    manifest = built.loaded.manifest
    length = fitting_length(manifest, sequence_length)
    drawn = figures(manifest, run_length(config, config.tokens, manifest), length, config)
    if manifest.validation_share:
        by_name = dict(zip((source.name for source in manifest.sources), stage.inputs.manifests, strict=True))
        warnings = (*warn_of_two_hashes(by_name), *drawn.warnings)
        drawn = drawn.model_copy(update={"warnings": warnings})
    if target is not None:
        from tokenmill_shards.mixing.plot import plot_shares

        plot_shares(drawn, target, manifest.name)
    _report(built, drawn, sequence_length, as_json=common["as_json"])


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options as settings, without those not given."""
    settings = dict(options)
    for name, option in TOKENS.items():
        settings[name] = None if options[name] is None else parse_tokens(options[name], option)
    for name in PER_SOURCE:
        option = f"--{name.replace('_', '-')}"
        settings[name] = dict(parse_per_source(text, option) for text in options[name]) or None
    settings["stages"] = [_parse_stage(text) for text in options["stages"]] or None
    if options["fim_tokens"] is not None:
        settings["fim_tokens"] = _three_tokens(options["fim_tokens"])
    return nest(settings, {})


def _parse_stage(text: str) -> dict[str, Any]:
    """`8B:web=0.6,code=0.4` as the settings of a stage."""
    first, colon, shares = text.partition(":")
    if not colon or not shares:
        raise ConfigError(f"--stage {text!r}: expected FROM:NAME=SHARE,..., such as 8B:web=0.6,code=0.4")
    weights: dict[str, str] = {}
    for share in shares.split(","):
        name, _, _ = share.rpartition("=")
        if not name or name in weights:
            raise ConfigError(f"--stage {text!r}: {share!r} is not NAME=SHARE, or its source is named twice")
        _, weights[name] = parse_per_source(share, "--stage")
    return {"from_tokens": parse_tokens(first, "--stage"), "weights": weights}


def _three_tokens(text: str) -> list[str]:
    tokens = text.split(",")
    if len(tokens) != 3:
        raise ConfigError(f"--fim-tokens {text!r}: expected three special tokens, PREFIX,MIDDLE,SUFFIX")
    return tokens


def _refuse_own_past(config: MixConfig, out: str) -> None:
    if config.continues is not None and _place(out) == _place(config.continues):
        raise InputError(f"--out {out}: this is the mixture that is gone on with; name another place")


def _place(path: str) -> str:
    url = manifest_url(path)
    return str(storage.local_path(url).resolve()) if storage.is_local(url) else url


def _plot_target(path: str) -> Path:
    """What would fail at the end fails at the start: a place that is no local file, and no matplotlib."""
    if not storage.is_local(path) or storage.local_path(path).is_dir():
        raise ConfigError(f"--plot {path!r}: a picture is written to a local file; name one, such as shares.png")
    import tokenmill_shards.mixing.plot  # noqa: F401

    return storage.local_path(path)


def _report(built: Built, drawn: Figures, wanted_length: int, *, as_json: bool) -> None:
    manifest: MixtureManifest = built.loaded.manifest
    if as_json:
        body = manifest.model_dump(mode="json")
        click.echo(json.dumps({"up_to_date": built.up_to_date, "figures": drawn.model_dump(mode="json"), **body}))
        return
    click.echo(summary(built))
    if drawn.sequence_length < wanted_length:
        shortest = shortest_source(manifest)
        click.echo(
            f"warning: source {shortest.name!r} has {shortest.training_tokens:,} tokens to train on, a sample of "
            f"{drawn.sequence_length:,} at most: training at {wanted_length} with this mixture is not possible; "
            f"figures are for samples of {drawn.sequence_length}"
        )
    console = wide_console()
    for stage in drawn.stages:
        console.print(_table(stage, manifest, several=len(drawn.stages) > 1))
    if len(drawn.stages) > 1:
        console.print(_table(drawn.total, manifest, several=False))
    for warning in drawn.warnings:
        click.echo(f"warning: {warning}")


def _table(stage: StageFigures, manifest: MixtureManifest, *, several: bool) -> Table:
    title = f"{stage.name}: {stage.samples:,} samples, {stage.tokens:,} tokens from token {stage.first_token:,} on"
    table = Table("source", title=title, title_justify="left", title_style="")
    last = "epochs so far" if several else "worth in new tokens"
    sizes = ("documents", *(("held out",) if manifest.validation_share else ()), "training tokens")
    for name in (*sizes, "share", "samples drawn", "tokens drawn", "epochs", last):
        table.add_column(name, justify="right")
    for row, source in zip(stage.sources, manifest.sources, strict=True):
        held_out = (f"{source.held_out_documents:,}",) if manifest.validation_share else ()
        numbers = (f"{source.documents:,}", *held_out, f"{source.training_tokens:,}", f"{row.share:.2%}")
        end = f"{row.epochs_so_far:.2f}" if several else f"{row.effective_tokens:,}"
        table.add_row(row.name, *numbers, f"{row.samples:,}", f"{row.tokens:,}", f"{row.epochs:.2f}", end)
    return table
