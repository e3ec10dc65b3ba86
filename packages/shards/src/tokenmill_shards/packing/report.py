"""What packing came to: how full the sequences are, and what each source gave."""

from dataclasses import dataclass

from tokenmill_core.mixture_manifest import PackedManifest


@dataclass(frozen=True)
class PackedSource:
    """What one source gave."""

    name: str
    tokens: int
    """Labels."""
    share: float
    """Of all labels, 0 to 1."""
    epochs: float
    """Labels over those of one epoch."""


def packed_sources(manifest: PackedManifest) -> list[PackedSource]:
    """A row a source."""
    tokens = [sum(column) for column in zip(*manifest.shard_source_tokens, strict=True)]
    total = max(1, sum(tokens))
    rows = zip(manifest.sources, tokens, manifest.epoch_tokens, strict=True)
    return [PackedSource(name, labels, labels / total, labels / max(1, epoch)) for name, labels, epoch in rows]


AMOUNTS = {
    "sequences": "sequences",
    "documents": "documents drawn",
    "pieces": "pieces",
    "documents_cut_that_fit": "documents cut though they fit",
    "documents_cut_too_long": "documents cut because too long",
    "drawn_tokens": "tokens drawn",
    "overlapping_tokens": "tokens overlapping",
    "padding_tokens": "tokens of padding",
    "lost_tokens": "tokens lost",
}
"""The manifest's notes, in the order and words in which they are shown."""


def amounts(manifest: PackedManifest) -> list[tuple[str, str]]:
    """What was packed, and what became of it, as (what, how much)."""
    rows = [(words, f"{manifest.notes[note]:,}") for note, words in AMOUNTS.items()]
    return [*rows, ("fill rate", f"{fill_rate(manifest):.4%}")]


def fill_rate(manifest: PackedManifest) -> float:
    """Share of the stored tokens that is no padding."""
    return 1 - manifest.notes["padding_tokens"] / manifest.counts.tokens
