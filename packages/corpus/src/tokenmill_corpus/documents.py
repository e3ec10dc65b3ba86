"""A batch of documents under judgement, and what was found out about it so far."""

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from tokenmill_core.compiled.text_buffers import TextBuffers, text_buffers, with_texts
from tokenmill_core.errors import InputError
from tokenmill_corpus.character_counts import CharacterCounts, count_characters
from tokenmill_corpus.lines import Duplicates, Lines, find_duplicates, find_lines
from tokenmill_corpus.words import Words, find_words


class Documents:
    """A record batch of documents. What several rules need is found when first asked for, and kept."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def text(self) -> TextBuffers:
        """The texts."""
        return text_buffers(self.batch)

    @cached_property
    def words(self) -> Words:
        """Words and symbols of the texts."""
        return find_words(self.text)

    @cached_property
    def lines(self) -> Lines:
        """The lines that are not blank."""
        return find_lines(self.text)

    @cached_property
    def duplicates(self) -> Duplicates:
        """How much lines and paragraphs repeat earlier ones of their document."""
        return find_duplicates(self.lines)

    @cached_property
    def characters(self) -> CharacterCounts:
        """Characters of the texts, by kind."""
        return count_characters(self.text)

    def filter(self, keep: pa.Array) -> "Documents":
        """Those documents for which `keep`, a boolean array, holds, with what was found of them."""
        documents = Documents(self.batch.filter(keep))
        mask = keep.to_numpy(zero_copy_only=False)
        for name in ("words", "lines", "characters"):
            if name in self.__dict__:
                documents.__dict__[name] = self.__dict__[name].filter(mask)
        return documents

    def with_texts(self, text: TextBuffers) -> "Documents":
        """The same documents with other texts."""
        return Documents(with_texts(self.batch, text))

    def with_columns(self, columns: Mapping[str, pa.Array]) -> "Documents":
        """The same documents with columns added.

        Raises:
            InputError: there is a column of that name, which was carried from the raw data.
        """
        batch = self.batch
        for name, values in columns.items():
            if name in batch.schema.names:
                raise InputError(
                    f"--carry {name}: a rule writes a column of this name; leave it out, or rename it in the raw data"
                )
            batch = batch.append_column(name, values)
        documents = Documents(batch)
        documents.__dict__.update({name: value for name, value in self.__dict__.items() if name != "batch"})
        return documents
