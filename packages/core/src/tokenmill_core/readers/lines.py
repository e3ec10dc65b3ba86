"""A byte stream cut into lines, or at another separator, in bounded memory however its chunks fall.

chunks ─▶ parts ─▶ without byte order marks ─▶ numbered ─▶ blank ones noted and left out
"""

from collections.abc import Iterable, Iterator

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.compression import BOM, read_chunks
from tokenmill_core.readers.piece import Piece

# UTF-32 first: in little-endian order its mark begins with that of UTF-16.
_OTHER_BOMS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def numbered_lines(piece: Piece, account: Account) -> Iterator[tuple[int, bytes]]:
    """(row, line) of the lines of a piece that are not blank; a line ends at `\\n` or `\\r\\n`, which it lacks here.

    Raises:
        InputError: the file is unreadable, or in UTF-16 or UTF-32.
    """
    lines = split(read_chunks(piece.url, account, piece.byte_range), b"\n")
    return _numbered(lines, piece, account, end=b"\r", blank="blank_lines")


def numbered_parts(piece: Piece, account: Account, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """(row, part) of what stands between separators and is not blank, counted from 1, blank parts included.

    Raises:
        InputError: as `numbered_lines`.
    """
    return _numbered(split(read_chunks(piece.url, account), separator), piece, account, end=b"", blank="blank_parts")


def split(chunks: Iterable[bytes], separator: bytes) -> Iterator[bytes]:
    """What `b"".join(chunks).split(separator)` gives, less an empty end. A part is copied twice at most."""
    open_part: list[bytes] = []
    held = b""
    for chunk in chunks:
        *whole, rest = (held + chunk).split(separator)
        for part in whole:
            if open_part:
                part = b"".join((*open_part, part))
                open_part = []
            yield part
        # A separator may begin in one chunk and end in the next.
        cut = max(0, len(rest) - len(separator) + 1)
        if cut:
            open_part.append(rest[:cut])
        held = rest[cut:]
    if last := b"".join((*open_part, held)):
        yield last


def without_marks(line: bytes, account: Account) -> bytes:
    """`line` without the UTF-8 byte order marks it begins with. They stand mid-file too, where files were joined."""
    while line.startswith(BOM):
        line = line.removeprefix(BOM)
        account.note("byte_order_marks")
    return line


def refuse_other_encodings(first_line: bytes, url: str) -> None:
    """Raise if the file is no UTF-8 at all, where counting every row as bad would hide the one true reason."""
    for mark, name in _OTHER_BOMS.items():
        if first_line.startswith(mark):
            raise InputError(f"{url} is {name}; convert it to UTF-8 (iconv -f {name} -t UTF-8)")


class LineCleaner:
    """Takes off lines, or other parts of a piece, what does not belong to them; blank ones it notes and leaves out."""

    def __init__(self, piece: Piece, account: Account, *, end: bytes, blank: str) -> None:
        self._piece, self._account, self._end, self._blank = piece, account, end, blank
        self.begun = piece.first_row > 1
        """Whether a line of the file was seen that is not blank."""

    def __call__(self, line: bytes) -> bytes | None:
        """`line` without the end it may have left and byte order marks; none if it is blank.

        Raises:
            InputError: the file is in UTF-16 or UTF-32.
        """
        line = line.removesuffix(self._end)
        if line.startswith(BOM):
            line = without_marks(line, self._account)
        if not line or line.isspace():
            self._account.note(self._blank)
            return None
        if not self.begun:
            refuse_other_encodings(line, self._piece.url)
            self.begun = True
        return line


def _numbered(
    parts: Iterable[bytes], piece: Piece, account: Account, *, end: bytes, blank: str
) -> Iterator[tuple[int, bytes]]:
    clean = LineCleaner(piece, account, end=end, blank=blank)
    for row, part in enumerate(parts, piece.first_row):
        line = clean(part)
        if line is not None:
            yield row, line
