"""Documents that were read and give no tokens all the same: dropped, counted by reason, kept in `rejects.jsonl`."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenmill_core.documents import MAX_RAW_BYTES, Account, Reject
from tokenmill_core.errors import InputError


@dataclass(frozen=True)
class Rejecter:
    """Takes documents out of batches and puts them on the account, or with `strict` stops at the first."""

    account: Account
    strict: bool

    def __call__(self, batch: pa.RecordBatch, reasons: Mapping[int, str], column: str = "text") -> pa.RecordBatch:
        """`batch` without the rows of `reasons` (row in the batch ─▶ why); `column` is what is shown of them.

        Raises:
            InputError: with `strict`, naming file, row and reason.
        """
        if not reasons:
            return batch
        for index, reason in reasons.items():
            self._reject(batch, index, reason, (batch.column(column)[index].as_py() or "").encode())
        keep = np.ones(batch.num_rows, np.bool_)
        keep[list(reasons)] = False
        return batch.filter(pa.array(keep))

    def _reject(self, batch: pa.RecordBatch, index: int, reason: str, raw: bytes) -> None:
        file, row = (batch.column(name)[index].as_py() for name in ("file", "row"))
        if self.strict:
            raise InputError(
                f"{file}:{row}: {reason}, at {raw[:80]!r}; "
                "mend it, or leave out --strict to drop such documents and count them"
            )
        num_bytes = len(batch.column("text")[index].as_py().encode())
        # It was taken in when it was read.
        self.account.drop(reason, 1, num_bytes)
        if self.account.on_reject:
            self.account.on_reject(Reject(file, row, reason, raw[:MAX_RAW_BYTES], num_bytes))
