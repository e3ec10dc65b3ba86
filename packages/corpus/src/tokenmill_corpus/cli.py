"""`prep clean`."""

from typing import Any

import click

from tokenmill_core.cli.options import nest, reader_options, run_stage_command, stage_options
from tokenmill_corpus.clean import STAGE


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@reader_options
@click.option("--min-words", type=int, help="Fewest words a document may have.")
@click.option("--max-words", type=int, help="Most words a document may have.")
@click.option("--dedup", type=click.Choice(["exact", "none"]), help="Which duplicates are dropped.")
@stage_options
def clean(
    inputs: tuple[str, ...], min_words: int | None, max_words: int | None, dedup: str | None, **options: Any
) -> None:
    """Filter and deduplicate the documents of every INPUT, and account for all that was dropped.

    INPUT is a file, a folder, a glob, an fsspec URL, or the manifest of documents.

    \b
    Examples:
      prep clean 'corpus/*.jsonl.zst' --out data/clean
      prep clean corpus/ --text-field content --min-words 20 --out data/clean
      prep clean src/ --set filter.max_duplicate_line_ratio=1.0 --out data/code
    """
    settings = nest({"filter.min_words": min_words, "filter.max_words": max_words, "dedup": dedup}, options)
    run_stage_command(STAGE, inputs, settings, options)
