"""`pretrain report`."""

import json
from pathlib import Path

import click

from tokenmill_core.cli.options import json_option
from tokenmill_core.errors import ConfigError
from tokenmill_trainer.cli.arguments import Place

PAGE_NAME = "report.html"


@click.command()
@click.argument("run_paths", metavar="RUN...", nargs=-1, required=True, type=Place(path_type=Path))
@click.option("--out", type=Place(path_type=Path), help="HTML file to write; of a single run RUN/report.html.")
@json_option
def report(run_paths: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write one HTML page on RUN, or on several beside each other.

    It holds their curves, figures, settings, mixtures, lineage, events, samples and checkpoints, and needs no network.
    Runs may be going on. With --json the figures are printed, and a page is written only where --out names one.

    \b
    Examples:
      pretrain report runs/first
      pretrain report runs/first runs/second --out compared.html
      pretrain report runs/* --json
    """
    from tokenmill_core import storage
    from tokenmill_trainer.report_page.figures import figures
    from tokenmill_trainer.report_page.page import make_page
    from tokenmill_trainer.report_page.run_record import distinct_labels, read_runs

    distinct_labels(run_paths)
    if out is None and not as_json:
        if len(run_paths) > 1:
            raise ConfigError("--out: say where to write the page on several runs, such as --out report.html")
        out = run_paths[0] / PAGE_NAME
    if out is not None and out.is_dir():
        raise ConfigError(f"--out {out}: this is a folder; name a file, such as {out / PAGE_NAME}")
    runs = read_runs(run_paths)
    if out is not None:
        # A name that is not UTF-8 stands on the page with its bytes spelled out.
        content = make_page(runs).encode("utf-8", "backslashreplace")
        out.parent.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(out, content)
    if as_json:
        click.echo(json.dumps([figures(run) for run in runs], default=str))
    else:
        click.echo(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {len(content):,} bytes -> {out}")
