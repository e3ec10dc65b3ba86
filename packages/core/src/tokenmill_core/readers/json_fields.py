"""Single objects of JSON Lines as documents, whatever they are.

Reasons of a `BadLineError`: `invalid_json`, `invalid_utf8`, `not_an_object`, `missing_text`, `null_text`,
`non_string_text`, `empty_text`, `blank_text` (white space alone).
"""

import json
from typing import Any

import orjson

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.carried import carried_text
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.repair import repair

_MAX_KEYS_SHOWN = 20
_MAX_UINT64 = (1 << 64) - 1


class BadLineError(Exception):
    """A line holds no document, for `reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Fields:
    """Takes id, text and carried fields out of objects, and remembers which keys it met before any text field."""

    def __init__(self, options: ReadOptions, account: Account) -> None:
        self._options = options
        self._account = account
        self.text_seen = False
        """Whether an object had the text field."""
        self._any_object = False
        self._keys: dict[str, None] = {}

    def of(self, line: bytes) -> tuple[str | None, str, list[str | None] | None]:
        """(id, text, carried) of a line that holds a document."""
        value, lenient = _parse(line)
        if not isinstance(value, dict):
            raise BadLineError("not_an_object")
        self._any_object = True
        text = self._text(value)
        carried = self._carried(value, line, lenient) if self._options.carry else None
        return self._id(value, line, lenient), repair(text, self._account, surrogates=lenient), carried

    def _text(self, value: dict[str, Any]) -> str:
        name = self._options.text_field
        if name not in value:
            if not self.text_seen and len(self._keys) < _MAX_KEYS_SHOWN:
                self._keys.update(dict.fromkeys(value))
            raise BadLineError("missing_text")
        self.text_seen = True
        text = value[name]
        if type(text) is str:
            if not text or text.isspace():
                raise BadLineError("blank_text" if text else "empty_text")
            return text
        raise BadLineError("null_text" if text is None else "non_string_text")

    def _id(self, value: dict[str, Any], line: bytes, lenient: bool) -> str | None:
        id = value.get(self._options.id_field)
        if type(id) is float:
            id = _exact(id, self._options.id_field, line)
        if type(id) is str:
            return repair(id, self._account, surrogates=lenient)
        return str(id) if type(id) is int else None

    def _carried(self, value: dict[str, Any], line: bytes, lenient: bool) -> list[str | None]:
        fields = (_exact(value.get(name), name, line) for name in self._options.carry)
        return [carried_text(field, self._account, surrogates=lenient) for field in fields]

    def refuse_if_never_seen(self, piece: Piece) -> None:
        """Raise if the file held objects and none had the text field: the setting is wrong, not the rows."""
        if self.text_seen or not self._any_object:
            return
        keys = ", ".join(repr(key) for key in list(self._keys)[:_MAX_KEYS_SHOWN]) or "none"
        raise InputError(
            f"{piece.url}: no object has the text field {self._options.text_field!r}; "
            f"the keys seen are {keys}: "
            "name the one to read with --text-field, or leave the file out by a glob or --format"
        )


def _exact(field: Any, name: str, line: bytes) -> Any:
    """The field `name` of a line. orjson reads an integer past 64 bits as a float; two such ids must not become one."""
    if type(field) is float and not -_MAX_UINT64 < 2 * field < 2 * _MAX_UINT64:
        return _parse_leniently(line)[name]
    return field


def _parse(line: bytes) -> tuple[Any, bool]:
    """(value, whether it was parsed leniently, so that its strings may hold halves of surrogate pairs)."""
    try:
        return orjson.loads(line), False
    except orjson.JSONDecodeError:
        return _parse_leniently(line), True


def _parse_leniently(line: bytes) -> Any:
    """What orjson refuses and people write all the same: NaN, Infinity, and escapes of half a surrogate pair."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadLineError("invalid_utf8") from None
    except (ValueError, RecursionError):
        raise BadLineError("invalid_json") from None
