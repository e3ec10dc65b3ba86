"""Profiles: named sets of rules to start from. Each is what its settings differ in from the defaults."""

from enum import StrEnum
from typing import Any


class Profile(StrEnum):
    """Names of profiles."""

    NONE = "none"
    """No rules."""
    NATIVE = "native"
    """For any language: not too short, and not saying too much again."""
    GOPHER = "gopher"
    """Gopher's rules of quality and repetition, for English."""
    C4 = "c4"
    """C4's rules, for English."""
    FINEWEB = "fineweb"
    """FineWeb's whole recipe for English web pages, with near-duplicates verified."""
    CODE = "code"
    """For source files: written by people, and not data."""
    DATATROVE = "datatrove"
    """FineWeb's filters as datatrove itself runs them."""


_ON = {"enabled": True}
_NO_TOP_NGRAMS = {f"max_top_{n}gram_character_ratio": 10.0 for n in (2, 3, 4)}
"""In a text of two sentences a phrase that is said twice makes up a fifth: only longer runs tell repetition there."""

PROFILES: dict[str, dict[str, Any]] = {
    Profile.NATIVE: {"filter": {"length": _ON, "gopher_repetition": _ON | _NO_TOP_NGRAMS}},
    Profile.GOPHER: {"filter": {"gopher_repetition": _ON, "gopher_quality": _ON}},
    Profile.C4: {"filter": {"c4": _ON}},
    Profile.FINEWEB: {
        "filter": {
            "language": _ON | {"keep": ["en"], "min_score": 0.65},
            "gopher_repetition": _ON,
            "gopher_quality": _ON,
            "c4": _ON | {"require_terminal_punctuation": False},
            "fineweb": _ON,
            "pii": _ON | {"secret": "keep", "card": "keep", "phone": "keep"},
        },
        "dedup": {"minhash": _ON | {"num_bands": 14, "rows_per_band": 8}},
    },
    Profile.DATATROVE: {"filter": {"datatrove": _ON}},
    Profile.CODE: {"filter": {"length": _ON, "code": _ON}},
}
"""Profile ─▶ settings of `prep clean` on top of which a user's come."""
