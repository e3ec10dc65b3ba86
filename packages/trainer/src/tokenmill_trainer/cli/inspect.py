"""`pretrain checkpoints` and `pretrain trace`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import json_option, wide_console
from tokenmill_core.errors import ExitCode, InputError, ManifestError, VerificationError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_core.manifest_io import load_manifest

run_argument = click.argument("run_path", metavar="RUN", type=click.Path(path_type=Path))


@click.command()
@run_argument
@click.option("--verify", is_flag=True, help="Hash every file.")
@json_option
def checkpoints(run_path: Path, verify: bool, as_json: bool) -> int:
    """List the checkpoints of RUN, newest first. Ends with code 3 where one is broken.

    \b
    Examples:
      pretrain checkpoints runs/first
      pretrain checkpoints runs/first --verify --json
    """
    from tokenmill_trainer.checkpoint_store import list_checkpoints
    from tokenmill_trainer.run_folder import RunFolder

    folder = RunFolder(run_path)
    if not folder.has_run:
        raise InputError(f"{run_path}: no run here; name the --out of a `pretrain run`")
    rows = [describe_checkpoint(path, verify) for path in list_checkpoints(folder.checkpoints)]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        _print_table(rows, ["name", "step", "consumed_samples", "consumed_tokens", "bytes", "state"])
    return ExitCode.VERIFICATION if any(row["state"].startswith("broken") for row in rows) else ExitCode.DONE


def describe_checkpoint(path: Path, verify: bool) -> dict[str, Any]:
    """A row of the list: what the manifest says, and `state`: `listed`, `verified`, or `broken: why`."""
    from tokenmill_trainer.checkpoint_store import verify_checkpoint

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
        "bytes": sum(entry.bytes for entry in manifest.files),
        "state": "verified" if verify else "listed",
    }


@click.command()
@run_argument
@click.option("--step", required=True, type=click.IntRange(min=1), help="Step of the run; 1 is the first.")
@click.option("--mixture", help="Where the mixture lies now, if it has moved.")
@json_option
def trace(run_path: Path, step: int, mixture: str | None, as_json: bool) -> None:
    """Name the documents that a step of RUN has seen.

    \b
    Examples:
      pretrain trace runs/first --step 120
      pretrain trace runs/first --step 120 --json
    """
    from tokenmill_trainer.run_folder import RunFolder
    from tokenmill_trainer.trace import trace_step

    rows = trace_step(RunFolder(run_path), step, mixture)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        _print_table(rows, list(rows[0]) if rows else [])


def _print_table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    wide_console().print(table, markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)
