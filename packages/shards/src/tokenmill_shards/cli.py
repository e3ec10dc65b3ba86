"""`prep tokenize`, `mix`, `merge` and `trace`."""

import json
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import (
    build_from_options,
    json_option,
    nest,
    reader_options,
    run_stage_command,
    stage_options,
    summary,
    wide_console,
)
from tokenmill_core.sizes import parse_bytes
from tokenmill_shards.budget import SourceBudget, budget_table, parse_tokens
from tokenmill_shards.merge import STAGE as MERGE
from tokenmill_shards.mix import STAGE as MIX
from tokenmill_shards.tokenize import STAGE as TOKENIZE
from tokenmill_shards.windows import MixtureReader
from tokenmill_tokenizer.encoder import Engine

MAX_SAMPLE = (1 << 53) - 1
"""The largest index that JSON carries exactly, and far from where 64 bits overflow."""


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@reader_options
@click.option("--tokenizer", required=True, help="A tokenizer dataset, or a tokenizer.json.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    help="What encodes; all give the same ids. [default: auto, the fast one where it proves equal to the reference]",
)
@click.option("--allow-special", is_flag=True, default=None, help="Let special tokens' text become those tokens.")
@click.option("--end-of-document", metavar="TOKEN", help="Token that closes a document. [default: the tokenizer's]")
@click.option("--no-end-of-document", is_flag=True, help="Do not close documents.")
@click.option(
    "--beginning-of-document",
    metavar="[TOKEN]",
    is_flag=False,
    flag_value="",
    help="Open documents, with this token or the one that the tokenizer's manifest names. [default: they are not]",
)
@click.option(
    "--loss-mask",
    metavar="NAME",
    help="Field that says which text counts for the loss: [[start, end], ...] in characters, true or false.",
)
@click.option(
    "--shard-size", metavar="SIZE", help="Bytes of text after which a shard is closed, such as 1GB. [default: 256MB]"
)
@stage_options
def tokenize(
    inputs: tuple[str, ...],
    no_end_of_document: bool,
    beginning_of_document: str | None,
    shard_size: str | None,
    **options: Any,
) -> None:
    """Encode the documents of every INPUT into token shards.

    INPUT is a file, a folder, a glob, an fsspec URL, or the manifest of documents.

    \b
    Examples:
      prep tokenize data/clean --tokenizer data/tokenizer --out data/tokens
      prep tokenize 'corpus/*.jsonl.gz' --tokenizer tokenizer.json --text-field content --out data/tokens
      prep tokenize data/clean --tokenizer data/tokenizer --shard-size 1GB --workers 8 --out data/tokens
      prep tokenize chats.jsonl --tokenizer data/tokenizer --loss-mask answers --carry source --out data/chats
      prep tokenize data/clean --tokenizer llama.json --beginning-of-document '<s>' --out data/tokens
      prep tokenize data/clean --tokenizer data/tokenizer --engine tokenizers --out data/tokens
    """
    own = {name: options.pop(name) for name in ("tokenizer", "engine", "allow_special", "end_of_document", "loss_mask")}
    own |= {
        "append_end_of_document": False if no_end_of_document else None,
        "prepend_beginning_of_document": None if beginning_of_document is None else True,
        "beginning_of_document": beginning_of_document or None,
        "shard_bytes": None if shard_size is None else parse_bytes(shard_size, "--shard-size"),
    }
    run_stage_command(TOKENIZE, inputs, nest(own, options), options)


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


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="DIR...")
@stage_options
def merge(inputs: tuple[str, ...], **options: Any) -> None:
    """Put several tokens datasets of one tokenizer into one, in the order they are named.

    \b
    Example: prep merge data/tokens-2024 data/tokens-2025 --out data/tokens
    """
    run_stage_command(MERGE, inputs, {}, options)


@click.command()
@click.argument("mixture")
@click.option("--sample", type=click.IntRange(0, MAX_SAMPLE), required=True, help="Global sample index, from 0.")
@click.option("--sequence-length", type=click.IntRange(min=1), required=True, help="That of the training run.")
@json_option
def trace(mixture: str, sample: int, sequence_length: int, as_json: bool) -> None:
    """Name the documents that a training sample is made of.

    \b
    Example: prep trace data/mixture.json --sample 12345 --sequence-length 2048
    """
    documents = MixtureReader.open(mixture, sequence_length).trace(sample)
    if as_json:
        click.echo(json.dumps(documents))
        return
    table = Table("source", "raw file", "row", "id", "shard", "document", "tokens of the sample")
    for d in documents:
        place = f"{d['first_token']}-{d['last_token']}"
        table.add_row(d["source"], d["file"], str(d["row"]), d["id"] or "", d["shard"], str(d["document"]), place)
    wide_console().print(table)
