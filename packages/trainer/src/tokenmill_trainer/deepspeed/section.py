"""One object of a DeepSpeed config, emptied key by key: what nothing has asked for in the end is refused by name."""

import difflib
import math
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from tokenmill_core.errors import ConfigError

AUTO = "auto"
"""What transformers' Trainer fills in: here, what the run's own settings say."""


class Section:
    """The keys of one object, at `path` of the file `where`."""

    def __init__(self, where: str, path: str, values: Any, hints: list[str] | None = None) -> None:
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: {path or 'the file'}: expected an object, got {values!r}")
        self._where, self._path = where, path
        self._left = dict(values)
        self._known: set[str] = set()
        self.hints: list[str] = [] if hints is None else hints
        """Keys that were there and have nothing to set here, by their full names; one list for the whole file."""

    def name(self, key: str) -> str:
        """The key with the path to it, as in messages."""
        return f"{self._path}.{key}" if self._path else key

    def error(self, key: str, problem: str) -> ConfigError:
        """An error about `key`."""
        return ConfigError(f"{self._where}: {self.name(key)}: {problem}")

    def section(self, key: str) -> "Section | None":
        """The object at `key`, or none where it is not there."""
        values = self._pop(key)
        return None if values is None else Section(self._where, self.name(key), values, self.hints)

    def default(self, **values: Any) -> None:
        """DeepSpeed's own values of keys that are not there at all: what is "auto" stays the run's."""
        self._left = {**values, **self._left}

    def is_auto(self, key: str) -> bool:
        """Whether the value at `key` is left to the run."""
        return self._left.get(key) == AUTO

    def peek(self, key: str) -> Any:
        """The value at `key`, as it is, left there."""
        return self._left.get(key)

    def text(self, key: str) -> str | None:
        """A string."""
        value = self._pop(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"expected a string, got {value!r}")
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self._pop(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"expected true or false, got {value!r}")
        return value

    def number(self, key: str) -> float | None:
        """A finite number."""
        value = self._pop(key)
        return None if value is None else self._finite(key, value)

    def count(self, key: str) -> int | None:
        """A whole number, also written as 2e8."""
        value = self.number(key)
        if value is not None and (value != int(value) or abs(value) >= 1 << 63):
            raise self.error(key, f"expected a whole number of 64 bits, got {value!r}")
        return None if value is None else int(value)

    def numbers(self, key: str) -> list[float] | None:
        """A list of numbers."""
        values = self._pop(key)
        if values is None:
            return None
        if not isinstance(values, list):
            raise self.error(key, f"expected a list of numbers, got {values!r}")
        return [self._finite(key, value) for value in values]

    def hint(self, *keys: str) -> None:
        """Keys that change how DeepSpeed does a thing and not what comes out."""
        self.hints += [self.name(key) for key in keys if self._pop(key) is not None]

    def only(self, key: str, allowed: Collection[Any], remedy: str) -> None:
        """A key that may be there with these values alone."""
        value = self._pop(key)
        if value is not None and value not in allowed:
            raise self.error(key, f"{value!r} is not supported; {remedy}")

    def off(self, key: str, remedy: str) -> None:
        """A part of DeepSpeed that is not here: its object may be there, switched off."""
        section = self.section(key)
        if section is None:
            return
        if section.flag("enabled") in (None, True):
            raise self.error(key, f"not supported; {remedy}")

    def finish(self) -> None:
        """Refuse the keys that nothing has asked for."""
        unknown = [key for key, value in self._left.items() if value is not None]
        if unknown:
            close = difflib.get_close_matches(unknown[0], self._known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else "take it out"
            raise self.error(unknown[0], f"not supported; {advice}")

    def _finite(self, key: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):  # a whole number of hundreds of digits
                if math.isfinite(number := float(value)):
                    return number
        raise self.error(key, f"expected a number, got {value!r}")

    def _pop(self, key: str) -> Any:
        self._known.add(key)
        value = self._left.pop(key, None)
        return None if value == AUTO else value
