"""Settings of deduplication."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from tokenmill_core.manifest import Frozen
from tokenmill_corpus.dedup.cut_settings import SubstringDedup, UnitDedup
from tokenmill_corpus.dedup.shingles import Unit


class Exact(StrEnum):
    """Which documents count as copies of one another."""

    NONE = "none"
    DOCUMENT = "document"
    NORMALISED = "normalised"


class Keep(StrEnum):
    """Which of several duplicates stays."""

    FIRST = "first"
    LONGEST = "longest"
    PRIORITY = "priority"
    SCORE = "score"


class ClusterRule(StrEnum):
    """What makes a document a duplicate of another one that stays."""

    PAIR = "pair"
    COMPONENT = "component"


class Bloom(Frozen):
    """Copies found by a Bloom filter, at the price of a stated share of documents that go and are copies of nothing."""

    enabled: bool = False
    """Find the copies that `exact` defines by a Bloom filter rather than by sorting. Only with `keep = "first"`."""
    false_positive_rate: float = Field(default=1e-6, gt=0, lt=1)
    """The chance that the last document is dropped by accident; for those before it is lower."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Another seed errs on other documents."""


class MinHash(Frozen):
    """Near-duplicates: candidates by MinHash and bands, verified by their true Jaccard similarity."""

    enabled: bool = False
    """Look for near-duplicates."""
    unit: Unit = Unit.WORD
    """What documents are compared as sets of runs of: `word` or `character`."""
    ngram: int = Field(default=5, ge=1, le=1000)
    """Length of these runs, in units."""
    num_bands: int = Field(default=28, ge=1, le=1000)
    """Keys of each document: two documents that share one are candidates."""
    rows_per_band: int = Field(default=4, ge=1, le=100)
    """Documents of similarity s become candidates with probability 1 − (1 − s^rows_per_band)^num_bands."""
    bits: int = Field(default=32, ge=1, le=64)
    """Bits of each minimum that enter a band's key. Over 32, minima are of 64 bits, which takes a little longer."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Another seed draws other permutations."""
    verify: bool = True
    """Compare candidates themselves; without, each pair of candidates counts as near-duplicates."""
    min_jaccard: float = Field(default=0.75, gt=0, le=1)
    """Jaccard similarity from which on, itself included, two documents are near-duplicates."""
    cluster_rule: ClusterRule = ClusterRule.PAIR
    """`pair`: a document goes if it is a near-duplicate of one that stays; `component`: if near-duplicates lead from it
    to one that stays, however many."""
    max_cluster: int = Field(default=1000, ge=2, le=2**31 - 1)
    """A component of more documents than this is taken apart by the rule `pair`."""
    max_leaders: int = Field(default=64, ge=1, le=2**31 - 1)
    """Documents of a bucket that later ones are compared with: those that came first and, by the rule `pair`, stay."""


class DedupSettings(Frozen):
    """Which duplicates are looked for, and which of them stay."""

    exact: Exact = Exact.DOCUMENT
    """`document`: copies are equal byte for byte; `normalised`: they have the same words, whatever the case, the white
    space and the punctuation; `none`: copies stay."""
    bloom: Bloom = Bloom()
    url: bool = False
    """Of documents of one URL one stays."""
    url_column: str = "url"
    """Column of the raw data with each document's URL."""
    minhash: MinHash = MinHash()
    keep: Keep = Keep.FIRST
    """Of duplicates stays the `first`, the `longest` in bytes, the one of the first input in `priority`, or that of the
    highest `score`; where these are equal, the first."""
    priority: tuple[str, ...] = ()
    """Names of inputs, best first. Those not named come last."""
    score_column: str = ""
    """Numbers that `keep = "score"` goes by. Documents without one come last."""
    lines: UnitDedup = UnitDedup()
    """Lines that stand elsewhere in the corpus are cut out."""
    paragraphs: UnitDedup = UnitDedup()
    """The same for paragraphs, once lines are done."""
    substring: SubstringDedup = SubstringDedup()
    """Runs of bytes that stand elsewhere are cut out, once paragraphs are done."""
    memory_bytes: int = Field(default=2 << 30, ge=1 << 20, le=2**63 - 1)
    """Memory that a task may use for keys, and for the texts it compares. Nothing that is found depends on it."""

    def columns_read(self) -> tuple[str, ...]:
        """Columns of the raw data that are looked at, beside the text."""
        wanted = ((self.url, self.url_column), (self.keep is Keep.SCORE, self.score_column))
        return tuple(column for needed, column in wanted if needed)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.bloom.enabled and self.exact is Exact.NONE:
            raise ValueError("bloom.enabled: set exact to document or normalised, which say what a copy is")
        if self.bloom.enabled and self.keep is not Keep.FIRST:
            raise ValueError(f"keep = {self.keep.value!r}: a Bloom filter keeps the first; set bloom.enabled = false")
        if (self.keep is Keep.PRIORITY) != bool(self.priority):
            raise ValueError('priority: give names of inputs with keep = "priority", and only then')
        if (self.keep is Keep.SCORE) != bool(self.score_column):
            raise ValueError('score_column: give the name of a column with keep = "score", and only then')
        return self
