"""Cutting inputs into pieces and tasks, by the data alone: never by the number of workers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.inputs import RawFile, RawGroup
from tokenmill_core.manifest import FileEntry
from tokenmill_core.readers.formats import Format, format_of
from tokenmill_core.readers.jsonl import check_text_field
from tokenmill_core.readers.line_ranges import is_compressed, line_ranges
from tokenmill_core.readers.options import ReadOptions, TextUnit
from tokenmill_core.readers.parquet import row_group_bytes
from tokenmill_core.readers.piece import Piece

__all__ = ["TARGET_BYTES", "Piece", "group_pieces", "plan_documents", "plan_pieces"]

TARGET_BYTES = 64 << 20
"""Bytes on disk that make up a task: small enough to lose, large enough to be worth a process."""


def plan_pieces(groups: Sequence[RawGroup], options: ReadOptions, target_bytes: int = TARGET_BYTES) -> list[Piece]:
    """All files of `groups`, in order; those larger than `target_bytes` cut if they can be.

    Parquet is cut between row groups; uncompressed JSON Lines, and plain text with a document a line, between lines.

    Raises:
        InputError: a file whose suffix says no format; of a file to be cut, what reading it whole would raise.
    """
    return [
        piece
        for group in groups
        for file in group.files
        for piece in _cut(_piece_of(group, file, options), options, target_bytes)
    ]


def plan_documents(folder: str, files: Sequence[FileEntry], target_bytes: int = TARGET_BYTES) -> list[Piece]:
    """The files of a documents manifest in `folder` that hold documents, in order, cut as `plan_pieces` does.

    Raises:
        VerificationError: a file leads out of the folder.
        InputError: a footer cannot be read.
    """
    return [
        piece
        for entry in files
        if entry.documents is not None
        for piece in _cut_parquet(_piece_of_entry(folder, entry), target_bytes)
    ]


def group_pieces(pieces: Sequence[Piece], target_bytes: int = TARGET_BYTES) -> list[list[Piece]]:
    """Tasks: neighbouring pieces share one until it would pass `target_bytes`."""
    return [[pieces[index] for index in run] for run in _runs([piece.bytes for piece in pieces], target_bytes)]


def _piece_of(group: RawGroup, file: RawFile, options: ReadOptions) -> Piece:
    format = options.format or format_of(file.name)
    if format is None:
        raise InputError(f"{file.url}: its suffix says no format; give --format")
    return Piece(url=file.url, name=f"{group.name}/{file.name}", format=format, bytes=file.bytes)


def _piece_of_entry(folder: str, entry: FileEntry) -> Piece:
    url = storage.inside(folder, entry.path)
    return Piece(url=url, name=entry.path, format=Format.PARQUET, bytes=entry.bytes, documents=True)


def _cut(piece: Piece, options: ReadOptions, target_bytes: int) -> Iterator[Piece]:
    if piece.format is Format.PARQUET:
        yield from _cut_parquet(piece, target_bytes)
    elif piece.bytes > target_bytes and _has_lines(piece, options) and not is_compressed(piece.url):
        yield from _cut_lines(piece, options, target_bytes)
    else:
        yield piece


def _has_lines(piece: Piece, options: ReadOptions) -> bool:
    """Whether each line stands for itself."""
    by_line = options.text_unit is TextUnit.LINE
    return piece.format is Format.JSONL or (piece.format is Format.TEXT and by_line)


def _cut_lines(piece: Piece, options: ReadOptions, target_bytes: int) -> Iterator[Piece]:
    if piece.format is Format.JSONL:
        # Whether no object of the file has the field, no range of it can tell.
        check_text_field(piece, options)
    for lines in line_ranges(piece.url, target_bytes):
        size = lines.stop - lines.start
        yield replace(piece, bytes=size, byte_range=(lines.start, lines.stop), first_row=lines.first_row)


def _cut_parquet(piece: Piece, target_bytes: int) -> Iterator[Piece]:
    """`piece` itself, or runs of its row groups of about `target_bytes` each."""
    if piece.bytes <= target_bytes:
        yield piece
        return
    row_groups = row_group_bytes(piece.url)
    first_row = piece.first_row
    for run in _runs([num_bytes for num_bytes, _ in row_groups], target_bytes):
        share = sum(row_groups[index][0] for index in run)
        yield replace(piece, bytes=share, row_groups=tuple(run), first_row=first_row)
        first_row += sum(row_groups[index][1] for index in run)


def _runs(sizes: Sequence[int], target_bytes: int) -> list[list[int]]:
    """Indices of `sizes` in runs, each as long as its sum stays within `target_bytes`; a larger one stands alone."""
    runs: list[list[int]] = []
    filled = 0
    for index, size in enumerate(sizes):
        if not runs or filled + size > target_bytes:
            runs.append([])
            filled = 0
        runs[-1].append(index)
        filled += size
    return runs
