"""`prep show`, `verify`, `lineage` and `diff`: what a manifest says, whether it is true, where it comes from."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import counted, describe, json_option, wide_console
from tokenmill_core.errors import ExitCode, TokenmillError
from tokenmill_core.lineage import Node, read_raw_files, trace_lineage
from tokenmill_core.manifest import Kind
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_core.verify import Checked, find_problems


@click.command()
@click.argument("path")
@json_option
def show(path: str, as_json: bool) -> None:
    """Show what the manifest at PATH says.

    \b
    Example: prep show data/clean
    """
    loaded = load_manifest(path)
    if as_json:
        click.echo(loaded.manifest.model_dump_json(indent=2))
        return
    click.echo(describe(loaded))
    click.echo("config:")
    for name, value in _leaves("", loaded.manifest.config, readable=True):
        click.echo(f"  {name.removeprefix('.')} = {json.dumps(value)}")
    if isinstance(loaded.manifest, MixtureManifest):
        _show_mixture(loaded.manifest)
    if loaded.manifest.files:
        wide_console().print(_file_table(loaded))


def _show_mixture(manifest: MixtureManifest) -> None:
    """What its sources have and what share of each stage they get, and the mixtures that it goes on with."""
    table = Table("source")
    sizes = ("documents", *(("held out",) if manifest.validation_share else ()), "training tokens")
    for name in (*sizes, *(f"{stage.name}, from token {stage.first_token:,}" for stage in manifest.stages)):
        table.add_column(name, justify="right")
    for number, source in enumerate(manifest.sources):
        held_out = (source.held_out_documents,) if manifest.validation_share else ()
        numbers = (f"{n:,}" for n in (source.documents, *held_out, source.training_tokens))
        shares = (f"{stage.weights[number] / manifest.denominator:.2%}" for stage in manifest.stages)
        table.add_row(source.name, *numbers, *shares)
    wide_console().print(table)
    for earlier in manifest.continues:
        click.echo(f"goes on with mixture {earlier.digest[:12]}, the same up to token {earlier.until_token:,}")


def _file_table(loaded: LoadedManifest[Any]) -> Table:
    table = Table("file", "bytes", "documents", "tokens", "sha256")
    for entry in loaded.manifest.files:
        numbers = ("" if n is None else f"{n:,}" for n in (entry.bytes, entry.documents, entry.tokens))
        table.add_row(entry.path, *numbers, entry.sha256[:12])
    return table


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--inputs", is_flag=True, help="Verify everything it was made from as well, raw files included.")
@json_option
def verify(paths: tuple[str, ...], inputs: bool, as_json: bool) -> int:
    """Read every file of the datasets at PATHS again and compare it with its manifest.

    Of tokens and mixtures it also checks what the files hold: ids, documents and their ends, loss masks, what is held
    out, and how near each source comes to its share. Exits with 3 and names everything that is not as it should be.

    \b
    Example: prep verify data/tokens --inputs
    """
    outcomes = {path: _verify_one(path, inputs) for path in paths}
    if as_json:
        rows = {
            path: {"ok": not found, "problems": found, "checked": asdict(c)} for path, (found, c) in outcomes.items()
        }
        click.echo(json.dumps(rows))
    else:
        for path, (found, checked) in outcomes.items():
            click.echo("\n  ".join(_verdict(path, found, checked)))
    return ExitCode.VERIFICATION if any(found for found, _ in outcomes.values()) else ExitCode.DONE


def _verify_one(path: str, inputs: bool) -> tuple[list[str], Checked]:
    checked = Checked()
    try:
        return find_problems(load_manifest(path), inputs=inputs, checked=checked), checked
    except TokenmillError as error:
        return [str(error)], checked


def _verdict(path: str, problems: list[str], checked: Checked) -> list[str]:
    verdict = counted(len(problems), "problem") if problems else "ok"
    amounts = ((checked.files, "file"), (checked.bytes, "byte"), (checked.documents, "document"))
    shown = ", ".join(counted(n, unit) for n, unit in (*amounts, (checked.tokens, "token")) if n)
    return [f"{path}: {verdict}" + (f" ({shown} checked)" if shown else ""), *problems, *checked.notes]


@click.command()
@click.argument("path")
@click.option("--files", is_flag=True, help="Name every raw file.")
@json_option
def lineage(path: str, files: bool, as_json: bool) -> int:
    """Show what the dataset at PATH was made from, down to its raw files.

    Exits with 3 where a link leads nowhere or to another manifest. Files are not read; `prep verify --inputs` does.

    \b
    Example: prep lineage data/mixture.json
    """
    root = trace_lineage(load_manifest(path))
    if as_json:
        click.echo(json.dumps(root.to_json()))
    else:
        click.echo("\n".join(_tree_lines(root, files)))
    return ExitCode.VERIFICATION if _has_problem(root) else ExitCode.DONE


def _tree_lines(node: Node, files: bool) -> list[str]:
    shown = [f"{count:,} {unit}" for unit, count in node.counts.items() if not unit.startswith("input_")]
    lines = [f"{node.kind} {node.name}  {node.digest[:12]}  {', '.join(shown)}"]
    if node.problem:
        lines.append(f"  ! {node.problem}")
    branches = [_tree_lines(child, files) for child in node.inputs]
    if files:
        branches = [_with_raw_files(node, c, lines) for c, lines in zip(node.inputs, branches, strict=True)]
    for branch in branches:
        head, rest = ("└── ", "    ") if branch is branches[-1] else ("├── ", "│   ")
        lines += [(head if i == 0 else rest) + line for i, line in enumerate(branch)]
    return lines


def _with_raw_files(node: Node, child: Node, lines: list[str]) -> list[str]:
    if child.kind != Kind.RAW:
        return lines
    rows = [row for row in read_raw_files(load_manifest(node.path)) if row["input"] == child.name]
    return lines + [f"    {row['path']}  {row['sha256'][:12]}  {row['bytes']:,} bytes" for row in rows]


def _has_problem(node: Node) -> bool:
    return bool(node.problem) or any(_has_problem(child) for child in node.inputs)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when they differ.")
@json_option
def diff(a: str, b: str, exit_code: bool, as_json: bool) -> int:
    """Show how two datasets differ: settings, inputs, counts, ledger and files.

    \b
    Example: prep diff data/clean-v1 data/clean-v2
    """
    first, second = (_comparable(load_manifest(path)) for path in (a, b))
    changes = {
        key: [first.get(key), second.get(key)]
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    }
    if as_json:
        click.echo(json.dumps(changes))
    elif not changes:
        click.echo("no difference")
    for key, (old, new) in ({} if as_json else changes).items():
        click.echo(f"{key}: {json.dumps(old)} -> {json.dumps(new)}")
    return ExitCode.FAILED if exit_code and changes else ExitCode.DONE


def _comparable(loaded: LoadedManifest[Any]) -> dict[str, Any]:
    body = loaded.manifest.model_dump(mode="json")
    flat: dict[str, Any] = dict(_leaves("config", body.pop("config")))
    flat |= {f"counts.{k}": v for k, v in body.pop("counts").items()}
    flat |= {f"inputs.{ref['kind']}.{ref['name']}": ref["digest"] for ref in body.pop("inputs")}
    flat |= {f"files.{entry['path']}": entry["sha256"] for entry in body.pop("files")}
    flat |= {f"ledger.{row['reason']}": [row["documents"], row["bytes"]] for row in body.pop("ledger")}
    flat |= {f"notes.{k}": v for k, v in body.pop("notes").items()}
    flat |= {f"tools.{k}": v for k, v in body.pop("tools").items()}
    flat |= body
    return flat


def _leaves(path: str, value: Any, *, readable: bool = False) -> Iterator[tuple[str, Any]]:
    """Every setting by its whole path.

    With `readable`, of a section that is not enabled nothing but that, and of sections in a list what they set.
    """
    if readable and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(n): {k: v for k, v in item.items() if v not in (None, {}, [])} for n, item in enumerate(value)}
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    if readable and value.get("enabled") is False:
        yield f"{path}.enabled", False
        return
    for key, child in value.items():
        yield from _leaves(f"{path}.{key}", child, readable=readable)
