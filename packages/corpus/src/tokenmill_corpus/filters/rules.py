"""Rules over measures. A rule's name is the setting that sets its threshold, and says its direction."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Verdict:
    """Which documents stay, and why the others go."""

    keep: NDArray[np.bool_]
    reason: NDArray[np.int64]
    """Index into `reasons` of the first rule each document broke; -1 where it broke none."""
    reasons: tuple[str, ...]


def apply_rules(broken: Mapping[str, NDArray[np.bool_]], num_documents: int) -> Verdict:
    """The verdict, given for each rule in order which documents break it."""
    reason = np.full(num_documents, -1, np.int64)
    for index, breaks in enumerate(broken.values()):
        reason[breaks & (reason < 0)] = index
    return Verdict(keep=reason < 0, reason=reason, reasons=tuple(broken))
