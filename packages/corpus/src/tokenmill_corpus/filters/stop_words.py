"""Whether a document uses the function words of its language, as prose does and lists of keywords do not.

A document's language is in its column `language`, where there is one (the family `language` writes it), else the
setting's. Upper and lower case differ, as in Gopher's rule: words count as they stand inside of sentences. A document
of a language without a list is taken to have as many as are asked for.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_least
from tokenmill_corpus.filters.stop_word_lists import STOP_WORDS
from tokenmill_corpus.word_lists import MAX_WORDS, WordList

COLUMN = "language"


class StopWords(Family):
    """Drops documents without function words."""

    min_stop_words: int = Field(default=2, ge=0)
    """Fewest different words of the language's list; 0 keeps all."""
    language: str = "en"
    """Language (ISO 639-1) of documents whose language no column tells."""
    words: Mapping[str, tuple[str, ...]] = {}
    """Lists of your own by language, each of at most 64 words; they stand in for those we bring."""

    def apply(self, documents: Documents) -> Outcome:
        """Count the words language by language."""
        values = np.full(len(documents), self.min_stop_words, np.int64)
        languages = self._languages(documents)
        for language, chosen in _groups(languages):
            words = self.words.get(language, STOP_WORDS.get(language, ()))
            if words:
                values[chosen] = WordList(words).count_distinct(documents.words.filter(chosen))
        return Outcome((at_least("min_stop_words", values, self.min_stop_words, detail=languages),))

    def check(self) -> None:
        """There is a list for the setting's language, and no list is too long."""
        if self.language not in self.words and self.language not in STOP_WORDS:
            raise ConfigError(
                f"stop_words.language: there is no list for {self.language!r}; give one in stop_words.words, or name "
                f"one of {', '.join(STOP_WORDS)}"
            )
        for language, words in self.words.items():
            if not 0 < len(words) <= MAX_WORDS:
                raise ConfigError(
                    f"stop_words.words.{language}: {len(words)} words, where 1 to {MAX_WORDS} can be counted; "
                    "keep the most common ones"
                )

    def _languages(self, documents: Documents) -> pa.Array:
        if COLUMN not in documents.batch.schema.names:
            return pa.repeat(pa.scalar(self.language), len(documents))
        return pc.fill_null(pc.cast(documents.batch.column(COLUMN), pa.string()), self.language)


def _groups(languages: pa.Array) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each language, and which documents are in it."""
    for language in languages.unique().to_pylist():
        yield language, pc.equal(languages, language).to_numpy(zero_copy_only=False)
