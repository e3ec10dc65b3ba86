"""What is left of a filter task after deduplication, and the account of what is not.

survivors ─▶ without duplicates ─▶ repeated parts cut out ─▶ without those of which nothing is left
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import is_blank
from tokenmill_core.documents import Account
from tokenmill_core.stage import Work
from tokenmill_corpus.config import CleanConfig
from tokenmill_corpus.dedup import RULES, Duplicates, Method, apply_cuts, cuts, duplicates
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.full_ledger import FullLedger
from tokenmill_corpus.survivors import places_of, read_survivors

EMPTIED = "emptied_by_cuts"


class Remaining:
    """The batches of documents that stay, counted as they pass. Iterate once, then read the account."""

    def __init__(self, config: CleanConfig, work: Work, task: int, *, full_ledger: bool) -> None:
        self._work, self._task = work, task
        self._min_jaccard = config.dedup.minhash.min_jaccard
        self._duplicates = duplicates(work, config.dedup, task)
        self._cuts = cuts(work, config.dedup, task)
        self._full_ledger = full_ledger
        self.account = Account()
        """What went. No documents are taken in: the filter task did that."""
        self.rows = FullLedger()
        self.documents = self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in read_survivors(self._work, self._task):
            documents, numbers = self._without_duplicates(Documents(batch), start)
            documents = self._cut(documents, numbers)
            start += len(batch)
            self.documents += len(documents)
            self.bytes += int(documents.text.num_bytes.sum())
            if len(documents):
                yield documents.batch

    def _without_duplicates(self, documents: Documents, start: int) -> tuple[Documents, NDArray[np.int64]]:
        """The documents of a batch that stay, and which of the task's survivors each one is."""
        found = self._duplicates
        first, end = np.searchsorted(found.indices, (start, start + len(documents)))
        here = np.arange(first, end)
        for code in np.unique(found.rules[here]):
            self._drop_duplicates(documents, RULES[code], here[found.rules[here] == code], start)
        keep = np.ones(len(documents), np.bool_)
        keep[found.indices[here] - start] = False
        return documents.filter(pa.array(keep)), start + np.flatnonzero(keep)

    def _drop_duplicates(self, documents: Documents, rule: Method, which: NDArray[np.intp], start: int) -> None:
        """Enter those duplicates that `which` picks into the account and the ledger."""
        drops = np.zeros(len(documents), np.bool_)
        drops[self._duplicates.indices[which] - start] = True
        self.account.drop(rule, len(which), int(documents.text.num_bytes[drops].sum()))
        if self._full_ledger:
            self.rows.dropped.add(
                documents, drops, rule, documents.text.num_bytes, **self._instead(self._duplicates, rule, which)
            )

    def _instead(self, found: Duplicates, rule: Method, which: NDArray[np.intp]) -> dict[str, pa.Array]:
        """Columns of the ledger for duplicates: how similar, and to which document that stays."""
        tasks, indices, values = found.kept_tasks[which], found.kept_indices[which], found.values[which]
        known = tasks >= 0
        # Where nobody knows, a row of nulls: taking at a null index gives null.
        rows = pa.array(np.cumsum(known) - 1, mask=~known)
        places = places_of(self._work, tasks[known], indices[known]).take(rows)
        return {
            "value": pa.array(values, mask=np.isnan(values)),
            **({"threshold": pa.repeat(self._min_jaccard, len(which))} if rule is Method.NEAR else {}),
            **{f"kept_{name}": places.column(name).combine_chunks() for name in places.column_names},
        }

    def _cut(self, documents: Documents, numbers: NDArray[np.int64]) -> Documents:
        """The documents without the parts that are cut out, and without those of which nothing is left."""
        here = self._cuts.of(numbers)
        if not len(here):
            return documents
        text, removed = apply_cuts(documents.text, here)
        emptied = is_blank(text)
        for reason, num_bytes in removed.items():
            taken = np.where(emptied, 0, num_bytes)
            self.account.drop(reason, 0, int(taken.sum()))
            if self._full_ledger:
                self.rows.edit(documents, reason, taken)
        self.account.drop(EMPTIED, int(emptied.sum()), int(documents.text.num_bytes[emptied].sum()))
        if self._full_ledger:
            self.rows.dropped.add(documents, emptied, EMPTIED, documents.text.num_bytes)
        return documents.with_texts(text).filter(pa.array(~emptied))
