"""JSON Lines: one object a line, a line ends at `\\n`.

    lines ─▶ runs of lines ─▶ objects ─▶ (id, text, carried) ─▶ batches
      └─ a line that gives no document costs itself, never the file

A run whose lines are all plain is taken whole: with short documents, calls for each line would cost more than parsing.

Reasons: `invalid_json`, `invalid_utf8`, `not_an_object`, `missing_text`, `null_text`, `non_string_text`, `empty_text`,
`blank_text` (white space alone).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.carried import carried_text
from tokenmill_core.readers.formats import split_name
from tokenmill_core.readers.lines import numbered_lines
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair

_MAX_KEYS_SHOWN = 20
_MAX_UINT64 = (1 << 64) - 1
_RUN_LINES, _RUN_BYTES = 256, 1 << 20


def read_jsonl(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a JSON Lines file or a range of its lines; rows are lines, blank ones included.

    Raises:
        InputError: unreadable file, a `.json` file that is one array, no object of a whole file has the text field, or
            `strict`.
    """
    reject = Rejecter(piece, options, account)
    fields = _Fields(options, account)
    builder = BatchBuilder(piece.name, options.carry)
    for rows, lines, num_bytes in _runs(_object_lines(piece, account)):
        plain = fields.of_plain(lines) if builder.fits(num_bytes, len(lines)) else None
        if plain:
            builder.extend(*plain, rows, num_bytes)
            continue
        for row, line in zip(rows, lines, strict=True):
            try:
                id, text, carried = fields.of(line)
            except _BadLineError as bad:
                reject(row, bad.reason, line)
                continue
            # Text never takes more bytes in UTF-8 than its line does in JSON, so the line's length serves as its bound.
            if not builder.has_room(len(line)):
                yield from builder.take()
            builder.add(id=id, text=text, row=row, num_bytes=len(line), carried=carried)
    yield from builder.take()
    if piece.byte_range is None:
        fields.refuse_if_never_seen(piece)


def check_text_field(piece: Piece, options: ReadOptions) -> None:
    """What `read_jsonl` refuses a whole file for, so that ranges of it can be read each on its own.

    Reads as far as the first object that has the text field.

    Raises:
        InputError: as `read_jsonl`, but for `strict`.
    """
    account = Account()
    fields = _Fields(options, account)
    for _, line in _object_lines(piece, account):
        with suppress(_BadLineError):
            fields.of(line)
        if fields.text_seen:
            return
    fields.refuse_if_never_seen(piece)


def _object_lines(piece: Piece, account: Account) -> Iterator[tuple[int, bytes]]:
    lines = numbered_lines(piece, account)
    first = next(lines, None)
    if first is None:
        return iter(())
    if piece.first_row == 1:
        _refuse_array(first[1], piece)
    return chain((first,), lines)


def _runs(numbered: Iterable[tuple[int, bytes]]) -> Iterator[tuple[list[int], list[bytes], int]]:
    """(rows, lines, bytes of these) of neighbours, few enough to be held twice."""
    rows: list[int] = []
    lines: list[bytes] = []
    num_bytes = 0
    for row, line in numbered:
        rows.append(row)
        lines.append(line)
        num_bytes += len(line)
        if num_bytes >= _RUN_BYTES or len(lines) == _RUN_LINES:
            yield rows, lines, num_bytes
            rows, lines, num_bytes = [], [], 0
    if lines:
        yield rows, lines, num_bytes


class _BadLineError(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Fields:
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
            raise _BadLineError("not_an_object")
        self._any_object = True
        text = self._text(value)
        carried = self._carried(value, line, lenient) if self._options.carry else None
        return self._id(value, line, lenient), repair(text, self._account, surrogates=lenient), carried

    def of_plain(self, lines: Sequence[bytes]) -> tuple[list[str | None], list[str]] | None:
        """(ids, texts) of lines of which each holds a document as it is; none where `of` has to look at one."""
        if self._options.carry:
            return None
        try:
            values = list(map(orjson.loads, lines))
            texts = [value[self._options.text_field] for value in values]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        if not all(type(text) is str and text and not text.isspace() and "\0" not in text for text in texts):
            return None
        ids = [value.get(self._options.id_field) for value in values]
        if not all(id is None or type(id) is int or (type(id) is str and "\0" not in id) for id in ids):
            return None
        self.text_seen = self._any_object = True
        return [id if id is None else str(id) for id in ids], texts

    def _text(self, value: dict[str, Any]) -> str:
        name = self._options.text_field
        if name not in value:
            if not self.text_seen and len(self._keys) < _MAX_KEYS_SHOWN:
                self._keys.update(dict.fromkeys(value))
            raise _BadLineError("missing_text")
        self.text_seen = True
        text = value[name]
        if type(text) is str:
            if not text or text.isspace():
                raise _BadLineError("blank_text" if text else "empty_text")
            return text
        raise _BadLineError("null_text" if text is None else "non_string_text")

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
        raise _BadLineError("invalid_utf8") from None
    except (ValueError, RecursionError):
        raise _BadLineError("invalid_json") from None


def _refuse_array(first_line: bytes, piece: Piece) -> None:
    """Raise if the file is one array, where counting every line as bad would hide the one true reason."""
    if split_name(piece.url)[1] == ".json" and first_line.lstrip().startswith(b"["):
        raise InputError(f"{piece.url} holds one JSON array, not one object a line; convert it (jq -c '.[]')")
