"""`prep tokenizer-report`."""

from typing import Any

import click

from tokenmill_core import storage
from tokenmill_core.cli.options import json_option, nest, reader_options, wide_console
from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError, ExitCode
from tokenmill_core.readers import ReadOptions
from tokenmill_core.sizes import parse_bytes


@click.command("tokenizer-report")
@click.argument("tokenizer")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--against", multiple=True, metavar="TOKENIZER", help="Measure this one on the same text; repeatable.")
@click.option("--by", metavar="COLUMN", help="Break every source down by this field, such as a language.")
@click.option(
    "--sample-bytes",
    metavar="SIZE",
    default="64MiB",
    show_default=True,
    help="Text to measure of each INPUT, chosen by a hash of the text and held in memory; 0: all, streamed.",
)
@click.option("--html", metavar="FILE", help="Write the report as a page, with plots.")
@click.option("--strict-round-trip", is_flag=True, help="Exit with 3 if a document differs once decoded.")
@reader_options
@json_option
def tokenizer_report(
    tokenizer: str,
    inputs: tuple[str, ...],
    against: tuple[str, ...],
    by: str | None,
    sample_bytes: str,
    html: str | None,
    strict_round_trip: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Report how TOKENIZER does on the text of every INPUT, and which of its tokens are worth a look.

    TOKENIZER is a tokenizer dataset or a tokenizer.json, INPUT a file, a folder, a glob, an fsspec URL, or the manifest
    of documents: a source of its own each. All of them can be given a name, as NAME=PATH. Without INPUT the report is
    on the vocabulary alone.

    \b
    Examples:
      prep tokenizer-report data/tokenizer data/clean
      prep tokenizer-report data/tokenizer web=data/web code=src/ --by language --html report.html
      prep tokenizer-report data/tokenizer data/clean --against old=old/tokenizer.json --json
    """
    # The kernels take most of a second to import, and matplotlib, of the extra `report`, as long.
    from tokenmill_tokenizer.report import build_report, print_report

    if html is not None:
        _check_page(html)
    settings = nest({}, options).get("reader", {})
    reader = validate_config(ReadOptions, settings, "reader options")
    size = 0 if sample_bytes == "0" else parse_bytes(sample_bytes, "--sample-bytes")
    report = build_report([tokenizer, *against], inputs, reader, by=by, sample_bytes=size)
    if html is not None:
        from tokenmill_tokenizer.report.page import make_page

        with storage.AtomicWriter(storage.local_path(html)) as writer:
            writer.write(make_page(report).encode("utf-8"))
    if as_json:
        click.echo(report.model_dump_json(indent=2))
    else:
        print_report(report, wide_console())
    failed = strict_round_trip and report.round_trip_failures
    return ExitCode.VERIFICATION if failed else ExitCode.DONE


def _check_page(html: str) -> None:
    """What would fail at the end fails at the start: a place that is no local file, and no matplotlib."""
    if not storage.is_local(html) or storage.local_path(html).is_dir():
        raise ConfigError(f"--html {html!r}: a page is written to a local file; name one, such as report.html")
    import tokenmill_tokenizer.report.page  # noqa: F401
