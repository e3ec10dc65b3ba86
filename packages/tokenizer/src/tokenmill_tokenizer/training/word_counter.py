"""Counting the pieces of documents in bounded memory: a table that is full goes to disk, and a new one begins."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.cutting import open_cutter
from tokenmill_tokenizer.splits import SplitRule
from tokenmill_tokenizer.training.counting import WordTable
from tokenmill_tokenizer.training.word_files import word_file, write_words

MAX_TABLE_BYTES = 256 << 20
"""A table of this size goes to disk."""
CHUNK_BYTES = 1 << 20
"""Documents of about this size are cut and counted at a time, so that their pieces stay in the processor's cache."""


class WordCounter:
    """Counts pieces into the word files of counting task `task`."""

    def __init__(self, rule: SplitRule, folder: Path, task: int) -> None:
        self._cutter, self._folder, self._task = open_cutter(rule), folder, task
        self._table, self._parts = WordTable(), 0

    def add(self, text: TextBuffers) -> None:
        """Count the pieces of these documents."""
        for chunk in _chunks(text):
            self._table.add(chunk.data, int(chunk.offsets[0]), self._cutter.cut(chunk))
            if self._table.num_bytes >= MAX_TABLE_BYTES:
                self._write()

    def close(self) -> None:
        """Write what is counted and not yet on disk."""
        self._write()

    def _write(self) -> None:
        write_words(word_file(self._folder, self._task, self._parts), self._table.words())
        self._table.clear()
        self._parts += 1


def _chunks(text: TextBuffers) -> Iterator[TextBuffers]:
    """Runs of documents of at least `CHUNK_BYTES`, but for the last."""
    first = 0
    while first < len(text):
        last = int(np.searchsorted(text.offsets, text.offsets[first] + CHUNK_BYTES))
        last = min(max(last, first + 1), len(text))
        yield TextBuffers(text.data, text.offsets[first : last + 1])
        first = last
