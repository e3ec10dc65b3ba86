"""Sorting by fingerprints of 128 bits, several times faster than a sort by two columns."""

import numba
import numpy as np
from numpy.typing import NDArray


def fingerprint_order(keys: NDArray[np.uint64], checks: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Indices that sort by key and check; equal fingerprints stay in the order they came in."""
    order = np.argsort(keys)
    _sort_ties(order, keys[order], checks)
    return order


@numba.njit(cache=True)
def _sort_ties(order: NDArray[np.intp], ordered: NDArray[np.uint64], checks: NDArray[np.uint64]) -> None:
    """NumPy's fastest sort of one column leaves equal keys in any order; their checks hardly ever differ."""
    start = 0
    for end in range(1, len(order) + 1):
        if end < len(order) and ordered[end] == ordered[start]:
            continue
        if end - start > 1:
            ties = order[start:end]
            if end - start > 2:
                ties.sort()
            elif ties[0] > ties[1]:
                ties[0], ties[1] = ties[1], ties[0]
            for i in range(1, len(ties)):
                if checks[ties[i]] != checks[ties[0]]:
                    ties[:] = ties[np.argsort(checks[ties], kind="mergesort")]
                    break
        start = end
