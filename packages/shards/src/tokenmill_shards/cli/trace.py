"""`prep trace`."""

import json

import click
from rich.table import Table

from tokenmill_core.cli.options import json_option, wide_console
from tokenmill_shards.reading.windows import MixtureReader

MAX_SAMPLE = (1 << 53) - 1
"""The largest index that JSON carries exactly, and far from where 64 bits overflow."""


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
