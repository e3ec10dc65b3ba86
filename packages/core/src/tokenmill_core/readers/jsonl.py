"""JSON Lines: one object a line, a line ends at `\\n`.

    blocks of lines ─▶ plain lines ─ json_scan ─▶ documents of a block ─▶ batches
        └─ odd lines ─ json_fields, one by one ─────────┘
              └─ a line that gives no document costs itself, never the file

Reasons: those of `json_fields`.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

import numpy as np
import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import BatchBuilder, Sized, by_row, gather, make_batch
from tokenmill_core.readers.compression import read_chunks
from tokenmill_core.readers.formats import split_name
from tokenmill_core.readers.json_fields import BadLineError, Fields
from tokenmill_core.readers.line_blocks import LineBlock, line_blocks
from tokenmill_core.readers.lines import LineCleaner, numbered_lines
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter

_SCAN = "tokenmill_core.readers.json_scan"
_MIN_SCANNED_BYTES, _MAX_SCANNED_BYTES = 256 << 10, 1 << 31
"""Loading the compiled scan takes longer than reading a small block without; its columns have offsets of 32 bits."""


def read_jsonl(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a JSON Lines file or a range of its lines; rows are lines, blank ones included.

    Raises:
        InputError: unreadable file, a `.json` file that is one array, no object of a whole file has the text field, or
            `strict`.
    """
    blocks = _Blocks(piece, options, account)
    yield from gather(blocks.documents())
    if piece.byte_range is None:
        blocks.fields.refuse_if_never_seen(piece)


def check_text_field(piece: Piece, options: ReadOptions) -> None:
    """What `read_jsonl` refuses a whole file for, so that ranges of it can be read each on its own.

    Reads as far as the first object that has the text field.

    Raises:
        InputError: as `read_jsonl`, but for `strict`.
    """
    account = Account()
    fields = Fields(options, account)
    lines = numbered_lines(piece, account)
    first = next(lines, None)
    if first is None:
        return
    _refuse_array(first[1], piece)
    for _, line in chain((first,), lines):
        with suppress(BadLineError):
            fields.of(line)
        if fields.text_seen:
            return
    fields.refuse_if_never_seen(piece)


class _Blocks:
    """The documents of a piece, a block of lines at a time."""

    def __init__(self, piece: Piece, options: ReadOptions, account: Account) -> None:
        self.fields = Fields(options, account)
        self._piece, self._options, self._account = piece, options, account
        self._names = (options.text_field, options.id_field, *options.carry)
        self._reject = Rejecter(piece, options, account)
        self._clean = LineCleaner(piece, account, end=b"\r", blank="blank_lines")
        self._row = piece.first_row

    def documents(self) -> Iterator[Sized]:
        """The documents of each block."""
        for block in line_blocks(read_chunks(self._piece.url, self._account, self._piece.byte_range)):
            if self._can_scan(block):
                yield from self._scanned(block)
            else:
                lines = block.lines()
                yield from self._one_by_one(enumerate(lines, self._row))
                self._row += len(lines)

    def _can_scan(self, block: LineBlock) -> bool:
        # Nothing but the first line that is not blank may say things about the file, and it is not scanned.
        if not self._clean.begun or len(set(self._names)) < len(self._names):
            return False
        num_bytes = len(block.data)
        return num_bytes < _MAX_SCANNED_BYTES and (num_bytes >= _MIN_SCANNED_BYTES or _SCAN in sys.modules)

    def _scanned(self, block: LineBlock) -> Iterator[Sized]:
        from tokenmill_core.readers.json_scan import scan  # imports numba

        found = scan(block, self._names)
        parts = []
        if len(found.plain):
            self.fields.text_seen = True
            text, id, *carried = found.columns
            others = dict(zip(self._options.carry, carried, strict=True))
            rows = pa.array(found.plain[:, 0] + self._row)
            batch = make_batch(ids=id, texts=text, file=self._piece.name, rows=rows, carried=others)
            parts.append(Sized(batch, found.plain[:, 1]))
        parts += self._one_by_one((self._row + line, block.data[i:end]) for line, i, end in found.odd.tolist())
        self._row += len(found.plain) + len(found.odd)
        if parts:
            yield by_row(parts)

    def _one_by_one(self, numbered: Iterable[tuple[int, bytes]]) -> Iterator[Sized]:
        builder = BatchBuilder(self._piece.name, self._options.carry)
        sizes = []
        for row, raw in numbered:
            begun = self._clean.begun
            line = self._clean(raw)
            if line is None:
                continue
            if not begun:
                _refuse_array(line, self._piece)
            try:
                id, text, carried = self.fields.of(line)
            except BadLineError as bad:
                self._reject(row, bad.reason, line)
                continue
            # Text never takes more bytes in UTF-8 than its line does in JSON, so the line's length serves as its bound.
            builder.add(id=id, text=text, row=row, num_bytes=len(line), carried=carried)
            sizes.append(len(line))
        for batch in builder.take():
            yield Sized(batch, np.array(sizes, np.int64))


def _refuse_array(first_line: bytes, piece: Piece) -> None:
    """Raise if the file is one array, where counting every line as bad would hide the one true reason."""
    if piece.first_row == 1 and split_name(piece.url)[1] == ".json" and first_line.lstrip().startswith(b"["):
        raise InputError(f"{piece.url} holds one JSON array, not one object a line; convert it (jq -c '.[]')")
