"""`prep clean` and `prep agreement`."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from tokenmill_core.cli.options import (
    gather_config,
    json_option,
    nest,
    previewed_stage_options,
    reader_options,
    run_stage_command,
    wide_console,
)
from tokenmill_core.progress import ProgressBar
from tokenmill_corpus.clean import STAGE
from tokenmill_corpus.config import CleanConfig, Ledger
from tokenmill_corpus.inputs import resolve_clean_inputs
from tokenmill_corpus.preview import preview, sample
from tokenmill_corpus.preview_report import print_preview
from tokenmill_corpus.profiles import Profile

_DEDUP: dict[str, dict[str, Any]] = {
    "none": {"exact": "none", "minhash": {"enabled": False}},
    "exact": {"exact": "document", "minhash": {"enabled": False}},
    "minhash": {"exact": "document", "minhash": {"enabled": True}},
}


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    help="Set of rules to start from. [default: native]",
)
@click.option("--min-words", type=int, help="Fewest words a document may have.")
@click.option("--max-words", type=int, help="Most words a document may have.")
@click.option(
    "--language", multiple=True, metavar="CODE", help="Keep documents in this language, such as en; repeatable."
)
@click.option("--dedup", type=click.Choice(list(_DEDUP)), help="Which duplicates are dropped. [default: the profile's]")
@click.option("--against", multiple=True, metavar="INPUT", help="Also drop what this corpus holds; repeatable.")
@click.option("--scores", is_flag=True, default=None, help="Write the score of every rule as a column.")
@click.option(
    "--ledger",
    type=click.Choice([ledger.value for ledger in Ledger]),
    help="`full`: a row for each dropped document. [default: totals]",
)
@click.option(
    "--preview", "is_preview", is_flag=True, help="Show what each rule would drop of a sample, and write nothing."
)
@click.option(
    "--preview-documents",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Size of that sample: the first documents of files spread over all inputs.",
)
@reader_options
@previewed_stage_options
def clean(
    inputs: tuple[str, ...],
    min_words: int | None,
    max_words: int | None,
    language: tuple[str, ...],
    dedup: str | None,
    is_preview: bool,
    preview_documents: int,
    **options: Any,
) -> None:
    """Filter and deduplicate the documents of every INPUT, and account for all that was dropped.

    INPUT is a file, a folder, a glob, an fsspec URL, or the manifest of documents.

    \b
    Examples:
      prep clean 'corpus/*.jsonl.zst' --out data/clean
      prep clean corpus/ --text-field content --min-words 20 --out data/clean
      prep clean src/ --profile code --out data/code
      prep clean 'web/*.warc.gz' --profile fineweb --preview
      prep clean crawl/ --profile fineweb --dedup minhash --ledger full --workers 8 --out data/web
      prep clean new/ --against data/web --out data/new
    """
    own = {
        "filter.length.min_words": min_words,
        "filter.length.max_words": max_words,
        **({"filter.language.enabled": True, "filter.language.keep": language} if language else {}),
        "dedup": _DEDUP.get(dedup or ""),
        **{name: options.pop(name) for name in ("profile", "against", "scores", "ledger")},
    }
    settings = nest(own, options)
    if is_preview:
        show_preview(inputs, settings, options, preview_documents)
    elif options["out"] is None:
        raise click.UsageError("Missing option '--out': name the folder to write to, or give --preview.")
    else:
        run_stage_command(STAGE, inputs, settings, options)


def show_preview(
    inputs: tuple[str, ...], settings: dict[str, Any], options: dict[str, Any], num_documents: int
) -> None:
    """What every rule would drop."""
    config = gather_config(CleanConfig, settings, options["config_path"], options["overrides"])
    resolved = resolve_clean_inputs(config, inputs, hashing=False)
    found = preview(resolved.families, resolved.documents, config.read_options(), num_documents)
    if options["as_json"]:
        click.echo(found.model_dump_json(indent=2))
    else:
        print_preview(found, wide_console())


@click.command("agreement")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "--documents", type=click.IntRange(min=1), default=200, show_default=True, help="Documents to compare on."
)
@reader_options
@json_option
def agreement_command(inputs: tuple[str, ...], documents: int, as_json: bool, **options: Any) -> None:
    """How often the native rules and datatrove's filters decide alike on the documents of every INPUT, rule by rule.

    Both have the published thresholds. datatrove takes about 25 seconds a megabyte.

    \b
    Examples:
      prep agreement web.jsonl.zst
      prep agreement data/clean --documents 1000 --json
    """
    # Of the extra `datatrove`.
    from tokenmill_corpus.agreement import agreement

    config = gather_config(CleanConfig, nest({}, options), None, ())
    resolved = resolve_clean_inputs(config, inputs, hashing=False)
    with ProgressBar("comparing", documents) as bar:
        report = agreement(_advancing(sample(resolved.documents, config.read_options(), documents), bar))
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        wide_console().print(report.table())


def _advancing(batches: Iterator[pa.RecordBatch], bar: ProgressBar) -> Iterator[pa.RecordBatch]:
    """Batches in slices of a few documents, each counted when the next is asked for."""
    for batch in batches:
        for start in range(0, batch.num_rows, 8):
            yield batch.slice(start, 8)
            bar.advance(min(8, batch.num_rows - start))
