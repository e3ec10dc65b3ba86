"""Shares that are never NaN."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """`part / whole`, and 0 where there is no whole."""
    shares = np.zeros(len(part))
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares
