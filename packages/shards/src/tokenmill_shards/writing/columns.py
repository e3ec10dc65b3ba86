"""Columns beside the text: whether they are there at all, as a name that is mistyped would change nothing unseen."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill_core.errors import InputError

_LOG = logging.getLogger("tokenmill")


def count_filled(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], filled: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """The same batches, while `filled` counts the values of each of `columns` that are not null."""
    for batch in batches:
        for name in columns:
            filled[name] += batch.num_rows - batch.column(name).null_count
        yield batch


def refuse_empty(counts: Iterable[dict[str, Any]], loss_mask: str | None) -> None:
    """Raise if the column `loss_mask` is null in all documents; warn of others that are, which are only carried.

    `counts` is what `count_filled` counted in each task.

    Raises:
        InputError: there are documents, and none has a loss mask.
    """
    filled: Counter[str] = Counter()
    for count in counts:
        filled.update(count)
    for name in sorted(name for name, count in filled.items() if not count):
        if name == loss_mask:
            raise InputError(
                f"--loss-mask {name}: no document has a value there; name the column that holds it, or leave it out"
            )
        _LOG.warning("--carry %s: no document has a value there", name)
