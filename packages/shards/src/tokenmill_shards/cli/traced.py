"""How traced documents are shown, by `prep trace` and `pretrain trace` alike."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.table import Table

from tokenmill_core.cli.options import wide_console

if TYPE_CHECKING:
    from tokenmill_shards.audit.trace import Row

text_option = click.option(
    "--text/--no-text",
    "text",
    default=None,
    help="The text of each document: all of it, or none. [default: its beginning in a table, all of it in JSON]",
)
document_option = click.option(
    "--document",
    metavar="SOURCE:FILE:ROW|SOURCE:ID",
    help="A document of the raw data: list every sample that holds a part of it.",
)
SHOWN_CHARACTERS = 60
FURTHER = ("step", "rank", "skipped")
"""Columns of a run's rows alone, shown first."""
TITLES = ("sample", "source", "epoch", "file", "row", "id", "shard", "document", "tokens", "counted")


def show(rows: "Sequence[Row]", text: bool | None, as_json: bool) -> None:
    """Print `rows`: as JSON, as a table, or, with `text`, as a table each with the whole text below."""
    if as_json:
        click.echo(json.dumps(list(rows), ensure_ascii=False))
    elif text:
        for row in rows:
            _print_table([row], beginning=False)
            click.echo(row["text"] or "")
    elif rows:
        _print_table(rows, beginning=text is None)


def _print_table(rows: "Sequence[Row]", beginning: bool) -> None:
    """Print a table of `rows`, with the `beginning` of each text if that is wanted."""
    further = [name for name in FURTHER if name in rows[0]]
    table = Table(*further, *TITLES, *(["text"] if beginning else []))
    for row in rows:
        cells = [*(_shown(row[name]) for name in further), *_cells(row)]
        cells += [_one_line(row["text"])] if beginning else []
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    wide_console().print(table)


def _shown(value: object) -> object:
    """A flag is named where it is set."""
    return ("skipped" if value else None) if isinstance(value, bool) else value


def _cells(row: "Row") -> list[str | int | None]:
    tokens = f"{row['first_token']}-{row['last_token']}" + (" rearranged" if row["rearranged"] else "")
    names = [row[name] for name in ("sample", "source", "epoch", "file", "row", "id", "shard", "document")]
    return [*names, tokens, row["counted"]]


def _one_line(text: str | None) -> str:
    line = "".join(c for c in " ".join((text or "").split()) if c.isprintable())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
