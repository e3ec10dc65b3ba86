"""What packing did with every token: stored = drawn + overlapping + padding."""

import numpy as np
from numpy.typing import NDArray

from tokenmill_shards.packing.pieces import PADDING, Pieces


def labels_of_sources(pieces: Pieces, num_sources: int) -> NDArray[np.int64]:
    """Labels that each source gives, shape (num_sources,): all its tokens but those that `first_is_label` rules out."""
    held = pieces.source != PADDING
    labels = pieces.num_tokens - ~pieces.first_is_label
    return np.bincount(pieces.source[held], labels[held], num_sources).astype(np.int64)


def account(pieces: Pieces, sequence_length: int, num_overlapping: int, *, windows: bool) -> dict[str, int]:
    """Counts for the manifest's notes.

    `num_overlapping`: tokens that begin a sequence or a piece, and are the last of another one. With `windows` a
    document that begins with the last token of one sequence begins again in the next, and is counted there.
    """
    held = pieces.take(pieces.source != PADDING)
    begins = held.first_token == 0
    if windows:
        ends = np.cumsum(pieces.num_tokens)[pieces.source != PADDING]
        begins &= (ends - held.num_tokens) % (sequence_length + 1) < sequence_length
    too_long = held.document_tokens > sequence_length + 1
    stored = int(held.num_tokens.sum())
    return {
        "sequences": int(pieces.sequence[-1]) + 1 if pieces.sequence.size else 0,
        "pieces": int(held.source.size),
        "documents": int(begins.sum()),
        "documents_cut_too_long": int((begins & too_long).sum()),
        "documents_cut_that_fit": int((begins & ~too_long & (held.num_tokens < held.document_tokens)).sum()),
        "drawn_tokens": stored - num_overlapping,
        "overlapping_tokens": num_overlapping,
        "padding_tokens": int(pieces.num_tokens.sum()) - stored,
    }
