"""A JSON-lines file with one object a step that stays one curve through kills and resumes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import orjson

from tokenmill_core import storage
from tokenmill_core.errors import InputError


def each_step(path: Path, tell: Callable[[str], None] | None = None) -> Iterator[dict[str, Any]]:
    """The objects of the file one by one, none where it is not there; a last line cut off by a kill is left out.

    Errors: `InputError` at any other line that is no step; with `tell`, it gets the message, and the line is left out.
    """
    if not path.exists():
        return
    cut_off = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if cut_off is not None:
                _refuse(f"{path}, line {cut_off}: not JSON; take the line out, or put a copy of the file back", tell)
                cut_off = None
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                cut_off = number
                continue
            if isinstance(row, dict) and type(row.get("step")) is int:
                yield row
            else:
                _refuse(
                    f"{path}, line {number}: no object with a step, so this is no log of a run; name another file",
                    tell,
                )


def _refuse(problem: str, tell: Callable[[str], None] | None) -> None:
    if tell is None:
        raise InputError(problem)
    tell(problem)


def read_steps(path: Path, last_step: int | None = None) -> list[dict[str, Any]]:
    """The objects of the file up to step `last_step`."""
    return [row for row in each_step(path) if last_step is None or row["step"] <= last_step]


def check_appendable(path: Path, option: str) -> None:
    """A log can be written at `path`, or `InputError`; `option` is what named it."""
    is_new = not path.exists()
    try:
        for _ in each_step(path):
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror}); name another file") from error
    if is_new:
        path.unlink()


class StepLog:
    """Appends to `path`, or to nothing where that is none.

    What the file says of steps after `last_step` belongs to a past that is being run again: dropped.
    """

    def __init__(self, path: Path | None, last_step: int) -> None:
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.forget_after(last_step)

    def forget_after(self, last_step: int) -> None:
        """Drop the steps after `last_step`."""
        self.close()
        if self._path is not None:
            lines = "".join(_line(row) for row in read_steps(self._path, last_step))
            storage.write_atomic(self._path, lines.encode("utf-8"))
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        """Add one step's object; it is in the file when this returns."""
        if self._file is not None:
            self._file.write(_line(row))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"
