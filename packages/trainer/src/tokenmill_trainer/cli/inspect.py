"""`pretrain checkpoints` and `pretrain trace`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from tokenmill_core.cli.options import json_option, wide_console
from tokenmill_core.errors import ConfigError, ExitCode, InputError, ManifestError, VerificationError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_core.manifest_io import load_manifest
from tokenmill_shards.cli.traced import document_option, show, text_option
from tokenmill_trainer.cli.arguments import Place, check_text

if TYPE_CHECKING:
    from tokenmill_trainer.run_folder import RunFolder

run_argument = click.argument("run_path", metavar="RUN", type=Place(path_type=Path))


@click.command()
@run_argument
@click.option("--verify", is_flag=True, help="Hash every file.")
@json_option
def checkpoints(run_path: Path, verify: bool, as_json: bool) -> int:
    """List the checkpoints of RUN, newest first, and what becomes of each once another is complete.

    Ends with code 3 where one is broken.

    \b
    Examples:
      pretrain checkpoints runs/first
      pretrain checkpoints runs/first --verify --json
    """
    from tokenmill_trainer.checkpoints.store import list_checkpoints

    run = _run_in(run_path)
    paths = list_checkpoints(run.checkpoints)
    rows = [describe_checkpoint(path, verify) for path in paths]
    if run.config_file.exists():
        _add_futures(rows, run, paths)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        columns = ["name", "step", "consumed_samples", "consumed_tokens", "world_size", "bytes", "state", "retention"]
        _print_table(rows, columns)
    return ExitCode.VERIFICATION if any(row["state"].startswith("broken") for row in rows) else ExitCode.DONE


def _add_futures(rows: list[dict[str, Any]], run: "RunFolder", paths: list[Path]) -> None:
    from tokenmill_trainer.checkpoints.retention import future

    for row, kept in zip(rows, future(paths, run.read_config().checkpoint), strict=True):
        row["retention"] = kept


def describe_checkpoint(path: Path, verify: bool) -> dict[str, Any]:
    """A row of the list: what the manifest says, and `state`: `not hashed`, `verified`, or `broken: why`."""
    from tokenmill_trainer.checkpoints.store import verify_checkpoint

    try:
        loaded = verify_checkpoint(path) if verify else load_manifest(str(path), CheckpointManifest)
    except (ManifestError, VerificationError, OSError) as error:
        return {"name": path.name, "state": f"broken: {error}"}
    manifest = loaded.manifest
    return {
        "name": path.name,
        "step": manifest.step,
        "consumed_samples": manifest.consumed_samples,
        "consumed_tokens": manifest.consumed_tokens,
        "sources": [use.model_dump() for use in manifest.sources],
        "world_size": manifest.world_size,
        "bytes": sum(entry.bytes for entry in manifest.files),
        "state": "verified" if verify else "not hashed",
    }


@click.command()
@run_argument
@click.option("--step", type=click.IntRange(min=1), help="Step of the run, 1 is the first: list its documents.")
@click.option("--rank", type=click.IntRange(min=0), help="Of the step, what this rank has seen.")
@click.option("--sample", type=click.IntRange(min=0), help="Of the step, this global sample index.")
@document_option
@click.option("--mixture", type=Place(), help="Where the mixture or packed dataset lies now, if it has moved.")
@text_option
@json_option
def trace(
    run_path: Path,
    step: int | None,
    rank: int | None,
    sample: int | None,
    document: str | None,
    mixture: str | None,
    text: bool | None,
    as_json: bool,
) -> None:
    """Name the documents that a step of RUN has seen, or the steps that have seen a document.

    \b
    Examples:
      pretrain trace runs/first --step 120
      pretrain trace runs/first --step 120 --rank 3 --json
      pretrain trace runs/first --document web:raw/part-3.jsonl:17
    """
    from tokenmill_trainer.trace import trace_document_of_run, trace_step

    if (step is None) == (document is None) or (document is not None and (rank, sample) != (None, None)):
        raise ConfigError("say what to trace: --step N, with --rank or --sample; or --document SOURCE:FILE:ROW")
    check_text("--document", document or "")
    run, with_text = _run_in(run_path), text is not False
    if step is not None:
        rows = trace_step(run, step, rank=rank, sample=sample, mixture=mixture, with_text=with_text, with_paths=as_json)
        show(rows, text, as_json)
        return
    rows, reasons = trace_document_of_run(run, str(document), mixture=mixture, with_text=with_text, with_paths=as_json)
    show(rows, text, as_json)
    for reason in reasons:
        click.echo(reason, err=True)


def _run_in(path: Path) -> "RunFolder":
    """The run in folder `path`, or `InputError` where there is none."""
    from tokenmill_trainer.run_folder import RunFolder

    run = RunFolder(path)
    if not run.has_run:
        raise InputError(f"{path}: no run here; name the --out of a `pretrain run`")
    return run


def _print_table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    wide_console().print(table, markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)
