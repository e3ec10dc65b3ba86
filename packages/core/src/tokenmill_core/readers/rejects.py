"""Rows that give no document."""

from dataclasses import dataclass

from tokenmill_core.documents import MAX_RAW_BYTES, Account, Reject
from tokenmill_core.errors import InputError
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece


@dataclass(frozen=True)
class Rejecter:
    """Puts the rejected rows of one piece on the account, or with `strict` stops at the first."""

    piece: Piece
    options: ReadOptions
    account: Account

    def __call__(self, row: int, reason: str, raw: bytes) -> None:
        """Reject `row`, which reads `raw` without its line end.

        Raises:
            InputError: with `strict`, naming file, row and reason.
        """
        if self.options.strict:
            raise InputError(
                f"{self.piece.url}:{row}: {reason}, the row begins {raw[:80]!r}; "
                "mend it, or leave out --strict to drop such rows and count them"
            )
        self.account.reject(
            Reject(file=self.piece.name, row=row, reason=reason, bytes=len(raw), raw=raw[:MAX_RAW_BYTES])
        )
