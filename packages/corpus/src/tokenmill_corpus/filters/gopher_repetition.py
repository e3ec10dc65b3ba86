"""Gopher's rules against repetition (Rae et al. 2021, table A1), with its thresholds; all of them are inclusive.

Lines, paragraphs and duplicates of them are those of `lines.py`, tokens and characters those of `words.py`, and what an
n-gram covers is said in `ngrams.py`. Shares of lines' and paragraphs' characters are of the lines' characters, shares
of n-grams' of the document's. A ratio of 1.0 switches a rule off, save for the top n-grams: those can overlap
themselves (`a a a a`), so that only a larger number does.
"""

from pydantic import Field

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_most
from tokenmill_corpus.ngrams import TOP_NGRAMS, repeated_characters
from tokenmill_corpus.ratios import ratio


class GopherRepetition(Family):
    """Drops documents that say too much again."""

    max_duplicate_line_ratio: float = Field(default=0.30, ge=0)
    """Largest share of lines that repeat an earlier line."""
    max_duplicate_line_character_ratio: float = Field(default=0.20, ge=0)
    """Largest share of the lines' characters in lines that repeat an earlier line."""
    max_duplicate_paragraph_ratio: float = Field(default=0.30, ge=0)
    """Largest share of paragraphs that repeat an earlier paragraph."""
    max_duplicate_paragraph_character_ratio: float = Field(default=0.20, ge=0)
    """Largest share of the lines' characters in paragraphs that repeat an earlier paragraph."""
    max_top_2gram_character_ratio: float = Field(default=0.20, ge=0)
    """Largest share of characters in the most frequent run of 2 tokens, if it occurs more than once."""
    max_top_3gram_character_ratio: float = Field(default=0.18, ge=0)
    """The same for 3 tokens."""
    max_top_4gram_character_ratio: float = Field(default=0.16, ge=0)
    """The same for 4 tokens."""
    max_duplicate_5gram_character_ratio: float = Field(default=0.15, ge=0)
    """Largest share of characters in runs of 5 tokens that repeat an earlier one, none counted twice."""
    max_duplicate_6gram_character_ratio: float = Field(default=0.14, ge=0)
    """The same for 6 tokens."""
    max_duplicate_7gram_character_ratio: float = Field(default=0.13, ge=0)
    """The same for 7 tokens."""
    max_duplicate_8gram_character_ratio: float = Field(default=0.12, ge=0)
    """The same for 8 tokens."""
    max_duplicate_9gram_character_ratio: float = Field(default=0.11, ge=0)
    """The same for 9 tokens."""
    max_duplicate_10gram_character_ratio: float = Field(default=0.10, ge=0)
    """The same for 10 tokens."""

    def apply(self, documents: Documents) -> Outcome:
        """Lines and paragraphs first, then n-grams."""
        duplicates, words = documents.duplicates, documents.words
        values = {
            "max_duplicate_line_ratio": duplicates.line_ratio,
            "max_duplicate_line_character_ratio": duplicates.line_character_ratio,
            "max_duplicate_paragraph_ratio": duplicates.paragraph_ratio,
            "max_duplicate_paragraph_character_ratio": duplicates.paragraph_character_ratio,
        }
        for n, characters in repeated_characters(words).items():
            kind = "top" if n in TOP_NGRAMS else "duplicate"
            values[f"max_{kind}_{n}gram_character_ratio"] = ratio(characters, words.num_characters)
        return Outcome([at_most(setting, value, getattr(self, setting)) for setting, value in values.items()])
