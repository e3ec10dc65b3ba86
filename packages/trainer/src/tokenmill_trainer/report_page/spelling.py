"""How figures are written in the tables of the page."""

import json
from typing import Any

NONE = "–"
SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def figure(value: Any, unit: str = "number") -> str:
    """A measured value in one of the units of `charts.Unit`."""
    if value is None:
        return NONE
    match unit:
        case "percent":
            return f"{value:.2%}".replace("%", " %")
        case "bytes":
            return f"{value / 1e9:,.2f} GB"
        case "seconds":
            return f"{value:.4g} s"
        case "count":
            return f"{value:,.0f}"
        case _:
            return f"{value:.4f}" if 0.01 <= abs(value) < 1000 else f"{value:.5g}"


def count(value: int | None) -> str:
    """A whole number."""
    return NONE if value is None else f"{value:,}"


def short(value: float | None) -> str:
    """A large number in few signs, such as 1.24B."""
    if value is None:
        return NONE
    size, letter = next(((size, letter) for size, letter in SIZES if abs(value) >= size), (1, ""))
    return f"{value / size:.4g}{letter}"


def setting(value: Any) -> str:
    """A setting as it would stand in TOML; a dash where it is not set."""
    return NONE if value is None else json.dumps(value, ensure_ascii=False, default=str)
