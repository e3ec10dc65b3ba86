"""`prep pack`."""

import json
from dataclasses import asdict, replace
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import build_from_options, nest, stage_options, summary, wide_console
from tokenmill_core.mixture_manifest import PackedManifest
from tokenmill_core.sizes import parse_bytes
from tokenmill_shards.packing.pack import STAGE as PACK
from tokenmill_shards.packing.pack import Method
from tokenmill_shards.packing.report import PackedSource, amounts, fill_rate, packed_sources


@click.command()
@click.argument("mixture")
@click.option("--sequence-length", type=click.IntRange(min=1), help="Inputs, and labels, of a sequence.")
@click.option("--tokens", help="Tokens to train on, such as 10B; rounded up to whole sequences.")
@click.option(
    "--method",
    type=click.Choice([method.value for method in Method]),
    help="concat: the samples of the mixture. best-fit: no document is cut that fits. [default: concat]",
)
@click.option("--shard-size", metavar="SIZE", help="Bytes of tokens in a shard, such as 1GB. [default: 128MB]")
@stage_options
def pack(mixture: str, shard_size: str | None, **options: Any) -> None:
    """Write a mixture out in training order, as sequences of one length that are read from start to end.

    \b
    Examples:
      prep pack data/mixture.json --sequence-length 2048 --tokens 10B --out data/packed
      prep pack data/mixture.json --sequence-length 8192 --tokens 10B --method best-fit --out data/packed
    """
    own = {name: options.pop(name) for name in ("sequence_length", "tokens", "method")}
    own["shard_bytes"] = None if shard_size is None else parse_bytes(shard_size, "--shard-size")
    built = build_from_options(PACK, [mixture], nest(own, options), options)
    manifest: PackedManifest = built.loaded.manifest
    if options["as_json"]:
        rows = [asdict(row) for row in packed_sources(manifest)]
        report = {"up_to_date": built.up_to_date, "fill_rate": fill_rate(manifest), "table": rows}
        click.echo(json.dumps(report | manifest.model_dump(mode="json")))
        return
    without_notes = replace(built.loaded, manifest=manifest.model_copy(update={"notes": {}}))
    click.echo(summary(replace(built, loaded=without_notes)))
    wide_console().print(_table_of_amounts(amounts(manifest)))
    wide_console().print(_table_of_sources(packed_sources(manifest)))


def _table_of_amounts(rows: list[tuple[str, str]]) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _table_of_sources(rows: list[PackedSource]) -> Table:
    table = Table()
    table.add_column("source")
    for name in ("tokens", "share", "epochs"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.name, f"{row.tokens:,}", f"{row.share:.2%}", f"{row.epochs:.2f}")
    return table
