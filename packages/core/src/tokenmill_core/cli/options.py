"""Options that every stage command has, and what happens after they are read."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import click
from pydantic import BaseModel
from rich.console import Console

from tokenmill_core.build import Built, build_stage
from tokenmill_core.config import apply_override, merge, read_toml, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_core.executor import EXECUTORS, Executor, open_executor
from tokenmill_core.manifest import LedgerRow, TokenizerManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_core.readers import Format, TextUnit
from tokenmill_core.stage import StageType

C = TypeVar("C", bound=BaseModel)
F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")


def default_workers() -> int:
    """One worker a core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wide_console() -> Console:
    """Standard output for tables: as wide as the terminal, and wide enough to cut nothing where there is none."""
    # What a user called "[red]" is a name, not a colour.
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(width=200, markup=False, highlight=False)


def execution_options(function: F) -> F:
    """Add the options that say how to run, and do not change the output."""
    for option in reversed(
        [
            click.option(
                "--workers",
                type=click.IntRange(min=1),
                help="How many tasks run at a time; the output does not depend on it. [default: one a core]",
            ),
            click.option(
                "--executor",
                type=click.Choice(list(EXECUTORS)),
                default="local",
                show_default=True,
                help="Where tasks run; the output does not depend on it.",
            ),
            click.option("--executor-config", help="TOML file with the executor's settings, in [executor]."),
            click.option("--executor-set", multiple=True, metavar="NAME=VALUE", help="Set one of them; repeatable."),
            click.option("--force", is_flag=True, help="Build again even if the output is up to date."),
            json_option,
        ]
    ):
        function = option(function)
    return function


def stage_options(function: F) -> F:
    """Add the options that all stage commands share."""
    return _stage_options(function, out_required=True)


def previewed_stage_options(function: F) -> F:
    """The same for a command that can also look at its inputs and write nothing: `--out` may be left out."""
    return _stage_options(function, out_required=False)


def _stage_options(function: F, *, out_required: bool) -> F:
    for option in reversed(
        [
            click.option("--out", required=out_required, help="Where to write: a folder, or for `mix` a .json file."),
            click.option("--name", help="Name of the dataset; by default that of its inputs."),
            click.option("--config", "config_path", help="TOML file with this stage's settings."),
            click.option(
                "--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Set one setting; repeatable."
            ),
        ]
    ):
        function = option(function)
    return execution_options(function)


def reader_options(function: F) -> F:
    """Add the options that say how raw files are read."""
    for option in reversed(
        [
            click.option("--text-field", help="Field or column with the text. [default: text]"),
            click.option("--id-field", help="Field or column with the document's id. [default: id]"),
            click.option("--carry", multiple=True, metavar="NAME", help="Further field to keep as text; repeatable."),
            click.option(
                "--format",
                type=click.Choice([format.value for format in Format]),
                help="Format of all files. [default: by suffix]",
            ),
            click.option(
                "--text-unit",
                type=click.Choice([unit.value for unit in TextUnit]),
                help="What of a plain text file is a document. [default: document, the file]",
            ),
            click.option("--separator", help="What stands between documents, with --text-unit separator."),
            click.option("--strict", is_flag=True, default=None, help="Stop at the first row that gives no document."),
        ]
    ):
        function = option(function)
    return function


READER_SETTINGS = ("text_field", "id_field", "carry", "format", "text_unit", "separator", "strict")


def nest(settings: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Settings given as `section.name`, and the reader's taken out of `options`, as nested dicts without the nones."""
    flat = settings | {f"reader.{name}": options.pop(name) for name in READER_SETTINGS if name in options}
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        if value is not None and value != ():
            *sections, name = path.split(".")
            table = nested
            for section in sections:
                table = table.setdefault(section, {})
            table[name] = value
    return nested


@contextmanager
def make_executor(options: Mapping[str, Any]) -> Iterator[Executor]:
    """The executor that the options name, until it is no longer needed."""
    name, num_workers = options["executor"], options["workers"]
    if num_workers is None and name != "local":
        raise ConfigError(f"--executor {name} needs --workers N: how many tasks may run at a time")
    workers = num_workers or default_workers()
    with closing(open_executor(name, workers, options["executor_config"], options["executor_set"])) as executor:
        yield executor


def build_from_options(
    stage_type: StageType, inputs: Sequence[str], settings: dict[str, Any], common: dict[str, Any]
) -> Built:
    """Build what a stage command asks for.

    `settings` are the command's own options, as `nest` gives them; they win over `--config`, and `--set` over both.
    """
    config = gather_config(stage_type.config, settings, common["config_path"], common["overrides"])
    stage = stage_type.build(config, inputs, common["name"])
    with make_executor(common) as executor:
        return build_stage(stage, common["out"], executor, force=common["force"])


def run_stage_command(
    stage_type: StageType, inputs: Sequence[str], settings: dict[str, Any], common: dict[str, Any]
) -> None:
    """`build_from_options`, and say what came of it."""
    built = build_from_options(stage_type, inputs, settings, common)
    if common["as_json"]:
        click.echo(json.dumps({"up_to_date": built.up_to_date, **built.loaded.manifest.model_dump(mode="json")}))
    else:
        click.echo(summary(built))


def gather_config(model: type[C], settings: dict[str, Any], path: str | None, overrides: Sequence[str]) -> C:
    """Settings from a file, the command line's options, and `--set`, in this order."""
    values = merge(read_toml(path) if path else {}, settings)
    for override in overrides:
        apply_override(values, override)
    return validate_config(model, values, path or "settings")


def summary(built: Built) -> str:
    """What was built, in a few lines."""
    lines = [("up to date: " if built.up_to_date else "") + describe(built.loaded)]
    if isinstance(built.loaded.manifest, MixtureManifest):
        lines += _shares(built.loaded.manifest)
    return "\n".join(lines)


def counted(number: int, unit: str) -> str:
    """`1 file`, `1,000 files`."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def _as_seen_from_here(url: str) -> str:
    """The path relative to the current folder where it lies below it: what a person would type."""
    here = os.getcwd() + os.sep
    return url.removeprefix(here)


def describe(loaded: LoadedManifest[Any]) -> str:
    """A dataset in a few lines: what it is, how much, and what was dropped."""
    manifest = loaded.manifest
    counts = manifest.counts
    parts = [f"{manifest.kind} {manifest.name} ({manifest.digest[:12]})"]
    if counts.input_documents:
        parts.append(f"{counts.documents:,} of {counts.input_documents:,} documents")
        parts.append(f"{counts.bytes:,} of {counts.input_bytes:,} bytes")
    if counts.tokens:
        parts.append(f"{counts.tokens:,} tokens")
    lines = [", ".join(parts) + f" -> {_as_seen_from_here(loaded.url)}"]
    if isinstance(manifest, TokenizerManifest):
        lines += _describe_tokenizer(manifest)
    lines += [_ledger_line(row) for row in manifest.ledger]
    lines += [f"  noted {count:,}: {what}" for what, count in _summed_up(manifest.notes).items()]
    return "\n".join(lines)


def _describe_tokenizer(manifest: TokenizerManifest) -> list[str]:
    roles = {"end": manifest.end_of_document, "beginning": manifest.beginning_of_document, "padding": manifest.padding}
    tokens = ", ".join(f"{role} {token or 'none'}" for role, token in roles.items())
    lines = [
        f"  vocabulary {manifest.vocab_size:,}, padded to {manifest.padded_vocab_size:,} for a model; "
        f"{len(manifest.special_tokens):,} special tokens: {tokens}"
    ]
    for row in manifest.compression:
        ratio = f"{row.bytes / row.tokens:.2f} bytes a token" if row.tokens else "no tokens"
        lines.append(
            f"  {row.source}: {row.documents:,} documents, {row.bytes:,} bytes, {row.tokens:,} tokens, {ratio}"
        )
    return lines


def _shares(manifest: MixtureManifest) -> list[str]:
    lines = []
    for stage in manifest.stages:
        pairs = zip(manifest.sources, stage.weights, strict=True)
        shares = ", ".join(f"{source.name} {weight / manifest.denominator:.2%}" for source, weight in pairs)
        lines.append(f"  {stage.name}, from token {stage.first_token:,}: {shares}")
    return lines


def _ledger_line(row: LedgerRow) -> str:
    if row.documents:
        return f"  dropped {row.documents:,} ({row.bytes:,} bytes): {row.reason}"
    return (
        f"  cut {row.bytes:,} bytes: {row.reason}" if row.bytes >= 0 else f"  added {-row.bytes:,} bytes: {row.reason}"
    )


def _summed_up(notes: dict[str, int]) -> dict[str, int]:
    """Notes with the suffixes of files that were left out as one: a folder of code has dozens."""
    skipped = {what: count for what, count in notes.items() if what.startswith("skipped_suffix_")}
    if len(skipped) <= 3:
        return notes
    rest = {what: count for what, count in notes.items() if what not in skipped}
    return rest | {f"files left out by their suffix ({len(skipped)} kinds)": sum(skipped.values())}
