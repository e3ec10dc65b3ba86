"""Settings of the passes that cut repeated parts out of documents."""

from enum import StrEnum

from pydantic import Field

from tokenmill_core.manifest import Frozen


class Compare(StrEnum):
    """When two lines, or paragraphs, are the same."""

    NORMALISED = "normalised"
    EXACT = "exact"


class UnitDedup(Frozen):
    """Cut lines, or paragraphs, that an earlier document has, or the same one further up."""

    enabled: bool = False
    """Look for them."""
    compare: Compare = Compare.NORMALISED
    """`normalised`: the same words, whatever the case, white space and punctuation, and all digits are alike; `exact`:
    the same bytes, apart from white space at the ends."""
    min_characters: int = Field(default=20, ge=0, le=2**31 - 1)
    """Shorter ones are left alone, such as closing brackets and headings."""
    max_copies: int = Field(default=1, ge=1, le=2**31 - 1)
    """What occurs no more often than this in the corpus is left alone; of what does, only the first one stays."""


class SubstringDedup(Frozen):
    """Cut runs of bytes that stand earlier in the corpus, in any document."""

    enabled: bool = False
    """Look for them."""
    min_bytes: int = Field(default=200, ge=32, le=2**31 - 1)
    """Shortest run that is looked for; 200 bytes are about 50 tokens of English, the length of Lee et al."""
