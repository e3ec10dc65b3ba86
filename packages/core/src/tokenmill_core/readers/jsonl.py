"""JSON Lines: one object a line, a line ends at `\\n`.

    chunks ─▶ lines ─▶ objects ─▶ (id, text) ─▶ batches
                └─ a line that gives no document costs itself, never the file

Reasons: `invalid_json`, `invalid_utf8`, `not_an_object`, `missing_text`, `null_text`, `non_string_text`, `empty_text`,
`blank_text` (white space alone).
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.compression import BOM, read_chunks
from tokenmill_core.readers.formats import split_name
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair

_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_MAX_KEYS_SHOWN = 20
_MAX_UINT64 = (1 << 64) - 1


def read_jsonl(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a JSON Lines file; rows are lines, counted from 1, blank ones included.

    Raises:
        InputError: unreadable file, a `.json` file that is one array, no object has the text field, or `strict`.
    """
    reject = Rejecter(piece, options, account)
    fields = _Fields(options, account)
    builder = BatchBuilder(piece.name)
    lines = _checked(_without_marks(_lines(read_chunks(piece.url, account)), account), piece)
    for row, line in enumerate(lines, piece.first_row):
        if not line or line.isspace():
            account.note("blank_lines")
            continue
        try:
            id, text = fields.of(line)
        except _BadLineError as bad:
            reject(row, bad.reason, line)
            continue
        # Text never takes more bytes in UTF-8 than its line does in JSON, so the line's length serves as its bound.
        if not builder.has_room(len(line)):
            yield from builder.take()
        builder.add(id=id, text=text, row=row, num_bytes=len(line))
    yield from builder.take()
    fields.refuse_if_never_seen(piece)


class _BadLineError(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Fields:
    """Takes id and text out of objects, and remembers which keys it met while the text field was not among them."""

    def __init__(self, options: ReadOptions, account: Account) -> None:
        self._options = options
        self._account = account
        self._text_seen = False
        self._any_object = False
        self._keys: dict[str, None] = {}

    def of(self, line: bytes) -> tuple[str | None, str]:
        """(id, text) of a line that holds a document."""
        value, lenient = _parse(line)
        if not isinstance(value, dict):
            raise _BadLineError("not_an_object")
        self._any_object = True
        text = self._text(value)
        return self._id(value, line, lenient), repair(text, self._account, surrogates=lenient)

    def _text(self, value: dict[str, Any]) -> str:
        name = self._options.text_field
        if name not in value:
            if not self._text_seen and len(self._keys) < _MAX_KEYS_SHOWN:
                self._keys.update(dict.fromkeys(value))
            raise _BadLineError("missing_text")
        self._text_seen = True
        text = value[name]
        if type(text) is str:
            if not text or text.isspace():
                raise _BadLineError("blank_text" if text else "empty_text")
            return text
        raise _BadLineError("null_text" if text is None else "non_string_text")

    def _id(self, value: dict[str, Any], line: bytes, lenient: bool) -> str | None:
        id = value.get(self._options.id_field)
        if type(id) is float and not -_MAX_UINT64 < 2 * id < 2 * _MAX_UINT64:
            # orjson reads an integer past 64 bits as a float; two such ids must not become one.
            id = _parse_leniently(line)[self._options.id_field]
        if type(id) is str:
            return repair(id, self._account, surrogates=lenient)
        return str(id) if type(id) is int else None

    def refuse_if_never_seen(self, piece: Piece) -> None:
        """Raise if the file held objects and none had the text field: the setting is wrong, not the rows."""
        if self._text_seen or not self._any_object:
            return
        keys = ", ".join(repr(key) for key in list(self._keys)[:_MAX_KEYS_SHOWN]) or "none"
        raise InputError(
            f"{piece.url}: no object has the text field {self._options.text_field!r}; "
            f"the keys seen are {keys}: "
            "name the one to read with --text-field, or leave the file out by a glob or --format"
        )


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


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends, `\\n` or `\\r\\n`. A line is copied twice at most, however many chunks it spans."""
    open_line: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        open_line.append(first)
        if others:
            yield b"".join(open_line).removesuffix(b"\r")
            for line in others[:-1]:
                yield line.removesuffix(b"\r")
            open_line = [others[-1]]
    if last := b"".join(open_line):
        yield last.removesuffix(b"\r")


def _without_marks(lines: Iterable[bytes], account: Account) -> Iterator[bytes]:
    """Lines without UTF-8 byte order marks. They stand mid-file too, where files were concatenated."""
    for line in lines:
        rest = line
        while rest.startswith(BOM):
            rest = rest.removeprefix(BOM)
            account.note("byte_order_marks")
        yield rest


def _checked(lines: Iterator[bytes], piece: Piece) -> Iterator[bytes]:
    """The same lines, once the first that is not blank has been looked at."""
    for line in lines:
        if line and not line.isspace():
            _refuse_other_kinds(line, piece)
            yield line
            break
        yield line
    yield from lines


def _refuse_other_kinds(first_line: bytes, piece: Piece) -> None:
    """Raise if the file is no JSON Lines at all, where counting every line as bad would hide the one true reason."""
    if first_line.startswith(_UTF16_BOMS):
        raise InputError(f"{piece.url} is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if split_name(piece.url)[1] == ".json" and first_line.lstrip().startswith(b"["):
        raise InputError(f"{piece.url} holds one JSON array, not one object a line; convert it (jq -c '.[]')")
