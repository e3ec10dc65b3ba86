"""How long a document is.

Words are those of `words.py`: symbols do not count, and in scripts written without spaces each character does, so that
Chinese, Japanese or Thai text is not too short. Both thresholds are inclusive.
"""

from pydantic import Field

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_least, at_most


class Length(Family):
    """Drops documents of too few or too many words."""

    min_words: int = Field(default=10, ge=0)
    """Fewest words; 0 keeps even empty documents."""
    max_words: int = Field(default=1_000_000, ge=1)
    """Most words."""

    def apply(self, documents: Documents) -> Outcome:
        """Count words."""
        num_words = documents.words.num_words
        return Outcome(
            (at_least("min_words", num_words, self.min_words), at_most("max_words", num_words, self.max_words))
        )
