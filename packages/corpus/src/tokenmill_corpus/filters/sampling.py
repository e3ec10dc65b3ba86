"""Sampling: a share of the documents, each chosen by a hash of itself and a seed.

The same document meets the same fate in any order, in any company, and with any number of workers, so a corpus that
grows keeps its sample. Shares nest: what 1 % keeps, 10 % keeps too under the same seed. Copies of a text go together.

The score, `draw`, is even over [0, 1); a document stays whose draw is below its share. This is the one threshold that
is not kept itself: a share of 0 keeps nothing.
"""

from enum import StrEnum
from typing import Annotated

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, Rule

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class DrawBy(StrEnum):
    """What of a document is hashed."""

    TEXT = "text"
    ID = "id"


class Sampling(Family):
    """Keep a share of the documents."""

    share: Share = 1.0
    """Share of documents to keep."""
    by: DrawBy = DrawBy.TEXT
    """`text`, or `id` for documents whose text may change; one without an id is drawn by its text."""
    seed: int = Field(default=0, ge=0)
    """Another seed, another sample."""
    column: str | None = None
    """A column of the raw data with the group of each document, such as its source, for `rates`."""
    rates: dict[str, Share] = Field(default_factory=dict)
    """Shares of single groups, in place of `share`."""

    def apply(self, documents: Documents) -> Outcome:
        """Rules `share` and `rates.<group>`."""
        draw = self._draw(documents)
        rest = np.ones(len(documents), np.bool_)
        rules = []
        if self.rates:
            groups = _strings(documents.batch, str(self.column))
            for group, rate in self.rates.items():
                of_group = np.array([value == group for value in groups.to_pylist()], np.bool_)
                rest &= ~of_group
                rules.append(_below(f"rates.{group}", draw, rate, of_group))
        return Outcome(rules=[_below("share", draw, self.share, rest), *rules])

    def check(self) -> None:
        """Rates need a column."""
        if self.rates and not self.column:
            raise ConfigError("sampling.column: rates are given, but not the column that names each document's group")

    def columns_read(self) -> tuple[str, ...]:
        """The groups."""
        return (self.column,) if self.column and self.rates else ()

    def _draw(self, documents: Documents) -> NDArray[np.float64]:
        text = documents.text
        draw = _draws(text.data, np.ascontiguousarray(text.offsets), self.seed)
        if self.by is DrawBy.ID:
            ids = documents.batch.column("id")
            buffers = column_buffers(ids.fill_null("").cast(pa.large_string()))
            by_id = _draws(buffers.data, np.ascontiguousarray(buffers.offsets), self.seed)
            draw = np.where(ids.is_null().to_numpy(zero_copy_only=False), draw, by_id)
        return draw


def _strings(batch: pa.RecordBatch, column: str) -> pa.Array:
    if column not in batch.schema.names:
        names = ", ".join(batch.schema.names)
        raise ConfigError(f"sampling.column: the documents have no column {column!r}; they have {names}")
    return batch.column(column).cast(pa.string())


def _below(setting: str, draw: NDArray[np.float64], share: float, group: NDArray[np.bool_]) -> Rule:
    return Rule(setting, "draw" if setting == "share" else setting, draw, share, (draw >= share) & group)


@numba.njit(cache=True)
def _draws(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each document."""
    draws = np.empty(len(offsets) - 1)
    salt = mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15))
    for d in range(len(draws)):
        # FNV-1a, and not the hash that others share: were that one made faster, every sample would be another.
        h = np.uint64(0xCBF29CE484222325)
        for i in range(offsets[d], offsets[d + 1]):
            h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
        draws[d] = np.float64(mix(h ^ salt) >> np.uint64(11)) * 2.0**-53
    return draws
