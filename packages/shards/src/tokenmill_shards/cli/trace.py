"""`prep trace`."""

import click

from tokenmill_core.cli.options import json_option
from tokenmill_core.errors import ConfigError
from tokenmill_shards.audit.search import Query, num_samples, trace_document
from tokenmill_shards.audit.trace import Tracer
from tokenmill_shards.cli.traced import document_option, show, text_option
from tokenmill_shards.mixing.amounts import parse_tokens
from tokenmill_shards.open_samples import open_samples
from tokenmill_shards.reading.cache import FileCache

MAX_SAMPLE = (1 << 53) - 1
"""The largest index that JSON carries exactly, and far from where 64 bits overflow."""


@click.command()
@click.argument("mixture")
@click.option("--sample", type=click.IntRange(0, MAX_SAMPLE), help="Global sample index, from 0: list its documents.")
@document_option
@click.option(
    "--sequence-length", type=click.IntRange(min=1), help="That of the training run; a packed dataset has one."
)
@click.option("--tokens", help="With --document, how far training goes, such as 10B. [default: one pass over the data]")
@text_option
@json_option
def trace(
    mixture: str,
    sample: int | None,
    document: str | None,
    sequence_length: int | None,
    tokens: str | None,
    text: bool | None,
    as_json: bool,
) -> None:
    """Name the documents of a training sample of MIXTURE, or the samples that a document is in.

    MIXTURE may be a packed dataset too. The text shown is that of the document, as far as the sample holds it.

    \b
    Examples:
      prep trace data/mixture.json --sample 12345 --sequence-length 2048
      prep trace data/mixture.json --document web:raw/part-3.jsonl:17 --sequence-length 2048 --tokens 10B
      prep trace data/packed --document web:doc-4711 --json
    """
    if (sample is None) == (document is None):
        raise ConfigError("say what to trace: --sample INDEX, or --document SOURCE:FILE:ROW")
    reader = open_samples(mixture, sequence_length, cache=FileCache.open())
    tracer = Tracer(reader, with_text=text is not False, with_paths=as_json)
    if sample is not None:
        show(tracer.samples([sample]), text, as_json)
        return
    assert document is not None
    budget = None if tokens is None else parse_tokens(tokens, "--tokens")
    rows, reasons = trace_document(tracer, Query.parse(document), num_samples(reader, budget))
    show(rows, text, as_json)
    for reason in reasons:
        click.echo(reason, err=True)
