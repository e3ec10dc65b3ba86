"""Curves of any length as a bounded number of points.

    rows ─ add ─▶ the open point ─ full ─▶ points ─ too many ─▶ neighbours joined, points twice as wide

Each point covers the same number of rows and knows the lowest, the highest and the sum of what was in them. So nothing
that stands out is lost, and a run of a million steps needs no more memory than one of some thousands.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 2000

Floats = NDArray[np.float64]
Key = tuple[str, str]
"""Field of a row and, where that holds an object, the name in it; otherwise an empty name."""


@dataclass
class Series:
    """One measure of all points; a point in which it does not occur has a count of 0."""

    counts: Floats
    sums: Floats
    lows: Floats
    highs: Floats

    @classmethod
    def empty(cls, num_points: int) -> "Series":
        """No value in any of `num_points`."""
        return cls(
            counts=np.zeros(num_points),
            sums=np.zeros(num_points),
            lows=np.full(num_points, np.inf),
            highs=np.full(num_points, -np.inf),
        )

    def put(self, point: int, values: list[float]) -> None:
        """Let `values` be what point `point` holds."""
        self.counts[point], self.sums[point] = len(values), sum(values)
        self.lows[point], self.highs[point] = min(values), max(values)

    def means(self) -> Floats:
        """The mean of each point; NaN where there is no value."""
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts

    def joined(self) -> "Series":
        """Neighbours made one; the second half is free again."""
        half = Series.empty(len(self.counts))
        for name, join in (("counts", np.add), ("sums", np.add), ("lows", np.minimum), ("highs", np.maximum)):
            old = getattr(self, name)
            getattr(half, name)[: len(old) // 2] = join(old[::2], old[1::2])
        return half


class Curves:
    """All numbers of the rows it was given, at most `max_points` (an even number) points a series."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._series: dict[Key, Series] = {}
        self._steps: list[tuple[int, int, int, int]] = []  # first step, last step, tokens after it, rows
        self._open: dict[str, list[float]] = defaultdict(list)
        self._open_named: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._open_steps: list[tuple[int, int]] = []
        self.rows_per_point = 1

    def add(self, step: int, tokens: int, row: dict[str, Any]) -> None:
        """The numbers of a row, also those in the objects that it holds; steps must rise."""
        self._open_steps.append((step, tokens))
        for field, value in row.items():
            kind = type(value)  # `isinstance` takes a bool for a number, and this is the innermost loop
            if kind is float or kind is int:
                self._open[field].append(value)
            elif kind is dict:
                named = self._open_named[field]
                for name, number in value.items():
                    if type(number) is float or type(number) is int:
                        named[name].append(number)
        if len(self._open_steps) == self.rows_per_point:
            self._close_point()

    def finish(self) -> None:
        """Close the last point, which may cover fewer rows than the others."""
        if self._open_steps:
            self._close_point(is_last=True)

    def _close_point(self, *, is_last: bool = False) -> None:
        if len(self._steps) == self._max_points:
            self._join_neighbours()
            if not is_last:  # the open point is half as wide as points are from now on
                return
        point = len(self._steps)
        for key, values in self._open_values():
            self._series_of(key).put(point, values)
        (first, _), (last, tokens) = self._open_steps[0], self._open_steps[-1]
        self._steps.append((first, last, tokens, len(self._open_steps)))
        for buffer in (self._open, self._open_named, self._open_steps):
            buffer.clear()

    def _open_values(self) -> Iterator[tuple[Key, list[float]]]:
        yield from (((field, ""), values) for field, values in self._open.items())
        for field, named in self._open_named.items():
            yield from (((field, name), values) for name, values in named.items())

    def _series_of(self, key: Key) -> Series:
        if key not in self._series:
            self._series[key] = Series.empty(self._max_points)
        return self._series[key]

    def _join_neighbours(self) -> None:
        self.rows_per_point *= 2
        pairs = zip(self._steps[::2], self._steps[1::2], strict=True)
        self._steps = [(a[0], b[1], b[2], a[3] + b[3]) for a, b in pairs]
        self._series = {key: series.joined() for key, series in self._series.items()}

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, key: Key) -> bool:
        return key in self._series

    def __getitem__(self, key: Key) -> Series:
        """Series `key`, as long as there are points."""
        whole, end = self._series[key], len(self)
        return Series(whole.counts[:end], whole.sums[:end], whole.lows[:end], whole.highs[:end])

    @property
    def keys(self) -> list[Key]:
        """All series, in the order in which they first occurred."""
        return list(self._series)

    def names(self, field: str) -> list[str]:
        """What `field` holds, where it is an object: names such as those of sources."""
        return [name for key, name in self._series if key == field and name]

    @property
    def first_steps(self) -> list[int]:
        """First step of each point."""
        return [first for first, _, _, _ in self._steps]

    @property
    def last_steps(self) -> list[int]:
        """Last step of each point."""
        return [last for _, last, _, _ in self._steps]

    @property
    def tokens(self) -> list[int]:
        """Tokens consumed after each point."""
        return [tokens for _, _, tokens, _ in self._steps]

    @property
    def num_rows(self) -> list[int]:
        """Rows that each point covers."""
        return [rows for _, _, _, rows in self._steps]
