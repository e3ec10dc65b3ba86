"""The items of a benchmark file: JSON Lines, compressed or not, an object an item."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import Field

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Frozen
from tokenmill_core.readers import Format, Piece
from tokenmill_core.readers.lines import numbered_lines


class Benchmark(Frozen):
    """A benchmark that documents are compared with."""

    name: str = Field(min_length=1)
    """What the report calls it."""
    path: str = Field(min_length=1)
    """File or URL of JSON Lines: an object an item."""
    fields: tuple[str, ...] = Field(default=("prompt", "answer"), min_length=1)
    """Which values of an item are looked for: strings, or lists of strings such as choices. `a.b` is `b` inside `a`."""


@dataclass(frozen=True)
class Item:
    """One item. Its texts are looked for one by one: no n-gram reaches from one into the next."""

    row: int
    """Line of the file, from 1."""
    texts: tuple[str, ...]


def read_items(benchmark: Benchmark) -> Iterator[Item]:
    """All items, in order. A field that is null has no text.

    Errors: `InputError` naming file, line and field: unreadable, no object, a field that is missing or holds no text.
    """
    piece = Piece(url=benchmark.path, name=benchmark.name, format=Format.JSONL, bytes=0)
    found = False
    for row, line in numbered_lines(piece, Account()):
        where = f"benchmark {benchmark.name!r}: {benchmark.path} line {row}"
        item = _parse(line, where)
        texts = tuple(text for field in benchmark.fields for text in _texts(_value(item, field, where), field, where))
        yield Item(row, texts)
        found = True
    if not found:
        raise InputError(f"benchmark {benchmark.name!r}: {benchmark.path} holds no items; name another file")


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        item = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error}); mend or remove it") from error
    if not isinstance(item, dict):
        raise InputError(f"{where} is {type(item).__name__}, not an object; write one object a line")
    return item


def _value(item: dict[str, Any], field: str, where: str) -> Any:
    """The value of `field`, which may lead into objects."""
    value: Any = item
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise InputError(f"{where} has no field {field!r}; set the benchmark's `fields` to some of {sorted(item)}")
        value = value[name]
    return value


def _texts(value: Any, field: str, where: str) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    for text in values:
        if not isinstance(text, str | int | float):
            kind = type(text).__name__
            raise InputError(
                f"{where}: {field!r} holds {kind}, not text; set the benchmark's `fields` to fields of text"
            )
    return [str(text) for text in values]
