"""What a report says: plain values, the same whether they end up as a table, as JSON or as a page."""

from tokenmill_core.manifest import Frozen

Points = tuple[tuple[float, float], ...]
"""(x, y) of a curve, in the order of x."""


class SourceText(Frozen):
    """The text of one source."""

    name: str
    documents: int
    """Documents in the source."""
    bytes: int
    """UTF-8 bytes of their text."""
    sampled_documents: int
    """Documents that were measured: all of them, or a sample."""
    sampled_bytes: int
    dropped: dict[str, int]
    """Rows that gave no document, by reason."""


class Measure(Frozen):
    """One tokenizer on one text. A share or ratio is none where there is nothing to divide by."""

    tokenizer: str
    source: str | None
    """Name of the source; none: all sources together."""
    group: str | None
    """Value of the `by` column; none: the whole source."""
    documents: int
    bytes: int
    words: int
    tokens: int
    bytes_per_token: float | None
    tokens_per_word: float | None
    used: int
    """Ordinary tokens, those that are not special, that occur."""
    used_share: float | None
    """Their share of all ordinary tokens."""
    single_byte_share: float | None
    """Share of the text's tokens that are one byte long."""
    partial_share: float | None
    """Share of the text's tokens that hold a part of a character."""
    round_trip_failures: int
    """Documents that do not come back when their ids are decoded."""
    first_failure: str | None
    """One of them: `<file>:<row>`."""


class Token(Frozen):
    """One entry of a vocabulary."""

    id: int
    token: str
    """Its text as a Python string literal, or its bytes as a bytes literal where they are no whole characters."""
    bytes: int
    characters: int | None
    """None where the bytes are no whole characters."""
    count: int | None
    """How often it occurs in what was measured; none without any text."""
    detail: str = ""


class Suspicion(Frozen):
    """The tokens that one check points at."""

    reason: str
    meaning: str
    count: int
    tokens: tuple[Token, ...]
    """The first of them."""


class VocabularyReport(Frozen):
    """What one tokenizer holds, and how the measured text uses it."""

    tokenizer: str
    sha256: str
    """sha256 of its tokenizer.json."""
    vocab_size: int
    """Every id is below it."""
    padded_vocab_size: int
    ordinary_tokens: int
    special_tokens: int
    partial_tokens: int
    """Ordinary tokens that are no whole characters, as any byte-level vocabulary has."""
    byte_level: bool
    lengths: tuple[int, ...]
    """Ordinary tokens by bytes: `lengths[n]` of them are n bytes long."""
    lengths_in_text: tuple[int, ...]
    """Tokens of the measured text by their bytes; empty without any text."""
    rank_frequency: Points
    """Rank of a token, from 1 the most frequent, and how often it occurs."""
    coverage: Points
    """Number of the most frequent tokens, and the share of the text's tokens that they are."""
    longest_by_bytes: tuple[Token, ...]
    longest_by_characters: tuple[Token, ...]
    suspicious: tuple[Suspicion, ...]


class Report(Frozen):
    """One tokenizer, and others beside it, on the same texts."""

    sample_bytes: int
    """At most so many bytes of a source were measured; 0: all of it."""
    by: str | None
    """Column whose values are the groups."""
    sources: tuple[SourceText, ...]
    tokenizers: tuple[VocabularyReport, ...]
    """The tokenizer that the report is about, then those it is compared with."""
    measures: tuple[Measure, ...]
    """By source, group and tokenizer in this order; all sources together come first where there are several."""

    @property
    def round_trip_failures(self) -> int:
        """Documents of all sources that the tokenizer reported on does not give back."""
        name = self.tokenizers[0].tokenizer
        whole = [m for m in self.measures if m.tokenizer == name and m.group is None and m.source is not None]
        return sum(measure.round_trip_failures for measure in whole)
