"""`prep mix`."""

import json
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import build_from_options, nest, stage_options, summary, wide_console
from tokenmill_shards.mixing.budget import SourceBudget, budget_table, parse_tokens
from tokenmill_shards.mixing.mix import STAGE as MIX


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="NAME=DIR[:WEIGHT]...")
@click.option("--temperature", type=float, help="T in share ~ size^(1/T); above 1 evens sources out. [default: 1]")
@click.option("--tokens", "budget", help="Token budget that the table is for, such as 10B. [default: one pass]")
@click.option("--seed", type=int, help="Seed of the data's order. [default: 0]")
@click.option("--validation-share", type=float, help="Share of each source kept for validation. [default: 0]")
@stage_options
def mix(
    sources: tuple[str, ...],
    temperature: float | None,
    budget: str | None,
    seed: int | None,
    validation_share: float | None,
    **options: Any,
) -> None:
    """Mix tokens datasets: write which share of the training samples comes from which.

    The size of a source is its number of tokens, or WEIGHT where given (for all sources, or for none).

    \b
    Examples:
      prep mix web=data/web code=data/code --temperature 3.3 --tokens 10B --out data/mixture.json
      prep mix web=data/web:0.8 code=data/code:0.2 --out data/mixture.json
    """
    tokens = None if budget is None else parse_tokens(budget)
    flat = {"temperature": temperature, "seed": seed, "validation_share": validation_share}
    built = build_from_options(MIX, sources, nest(flat, options), options)
    rows = budget_table(built.loaded.manifest, tokens)
    if options["as_json"]:
        manifest = built.loaded.manifest.model_dump(mode="json")
        click.echo(json.dumps({"up_to_date": built.up_to_date, "table": [asdict(row) for row in rows], **manifest}))
        return
    click.echo(summary(built))
    wide_console().print(_table(rows))


def _table(rows: list[SourceBudget]) -> Table:
    table = Table()
    table.add_column("source")
    for name in ("documents", "tokens", "share", "tokens drawn", "epochs"):
        table.add_column(name, justify="right")
    for row in rows:
        numbers = (f"{row.documents:,}", f"{row.tokens:,}", f"{row.share:.2%}", f"{row.drawn_tokens:,.0f}")
        table.add_row(row.name, *numbers, f"{row.epochs:.2f}")
    return table
