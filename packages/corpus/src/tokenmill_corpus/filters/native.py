"""The native profile: length and repetition, on the measures of `measures.py`. All thresholds are inclusive."""

from pydantic import Field

from tokenmill_core.manifest import Frozen
from tokenmill_corpus.filters.rules import Verdict, apply_rules
from tokenmill_corpus.measures import Measures


class NativeFilter(Frozen):
    """A document is kept when each measure lies within its threshold, the threshold itself included."""

    min_words: int = Field(default=10, ge=0)
    """Fewest words."""
    max_words: int = Field(default=1_000_000, ge=1)
    """Most words."""
    max_duplicate_line_ratio: float = Field(default=0.30, ge=0, le=1)
    """Largest share of lines that repeat an earlier line."""
    max_duplicate_line_byte_ratio: float = Field(default=0.20, ge=0, le=1)
    """Largest share of the lines' bytes in lines that repeat an earlier line."""
    max_duplicate_paragraph_ratio: float = Field(default=0.30, ge=0, le=1)
    """Largest share of paragraphs that repeat an earlier paragraph."""

    def judge(self, measures: Measures) -> Verdict:
        """Apply the rules in the order of the settings."""
        broken = {"min_words": measures.num_words < self.min_words, "max_words": measures.num_words > self.max_words}
        for measure in ("duplicate_line_ratio", "duplicate_line_byte_ratio", "duplicate_paragraph_ratio"):
            broken[f"max_{measure}"] = getattr(measures, measure) > getattr(self, f"max_{measure}")
        return apply_rules(broken, len(measures.num_words))
