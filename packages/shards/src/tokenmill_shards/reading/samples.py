"""What a reader of samples hands over, and what all such readers offer: mixtures and packed datasets alike."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.manifest import SourceUse


class Samples(NamedTuple):
    """A batch of B samples of L inputs and L labels: label t of a row is its token t + 1."""

    tokens: NDArray[np.int64]
    """(B, L + 1) token ids."""
    counted: NDArray[np.bool_] | None = None
    """(B, L): whether the label counts for the loss; none: every one does."""
    cu_seqlens: NDArray[np.int32] | None = None
    """(D + 1,): where each document begins in the B·L inputs, row after row, and B·L at last. None where documents are
    not kept apart. A document is never in two rows."""
    positions: NDArray[np.int32] | None = None
    """(B, L): place of each input in its document, as far as the row holds it; none where documents are not kept
    apart."""
    sources: NDArray[np.int32] | None = None
    """(B,) number of the source that a sample is of, or (B, L) of the one that each label is of; it counts the reader's
    `source_names`. What no source has given, padding, never counts. None: not known."""


def apart(tokens: NDArray[np.int64], counted: NDArray[np.uint8], begins: NDArray[np.bool_]) -> Samples:
    """Samples whose documents begin where `begins` says: none sees another, nor is asked to predict its first token.

    All are (B, L + 1): `counted`, whether a token counts as the label of the one before it, is changed.
    """
    counted[begins] = 0
    inputs = begins[:, :-1].copy()
    inputs[:, :1] = True
    flat = np.flatnonzero(inputs)
    positions = np.arange(inputs.size) - np.repeat(flat, np.diff(flat, append=inputs.size))
    cu_seqlens = np.append(flat, inputs.size).astype(np.int32)
    return Samples(
        tokens, counted[:, 1:].astype(np.bool_), cu_seqlens, positions.astype(np.int32).reshape(inputs.shape)
    )


class SampleReader(Protocol):
    """Samples by global index: any of them, in any order, by any rank, thread or later run."""

    @property
    def sequence_length(self) -> int:
        """L."""
        ...

    @property
    def num_samples(self) -> int | None:
        """How many there are; none: endless, epoch after epoch."""
        ...

    @property
    def source_names(self) -> tuple[str, ...]:
        """The sources, in the order in which samples number them."""
        ...

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        """The samples `indices` (B,), in any order."""
        ...

    def use(self, num_samples: int) -> tuple[SourceUse, ...]:
        """What the first `num_samples` draw from each source."""
        ...
