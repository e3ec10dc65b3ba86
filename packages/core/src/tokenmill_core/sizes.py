"""Amounts of bytes as people write them."""

import re
from decimal import Decimal

from tokenmill_core.errors import ConfigError

_UNITS = {"": 1, **{f"{prefix}B": 1000**n for n, prefix in enumerate(("", "k", "M", "G", "T"))}}
_UNITS |= {f"{prefix}iB": 1024**n for n, prefix in enumerate(("", "K", "M", "G", "T")) if n} | {"KB": 1000}
_MAX_BYTES = 10**18


def parse_bytes(text: str, option: str) -> int:
    """A number of bytes such as `256MB`, `1.5GiB` or `4096`, rounded to a whole one.

    Raises:
        ConfigError: it is none, or not from 1 to 10^18; `option` is what the message calls it.
    """
    match = re.fullmatch(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?) ?([kKMGT]?i?B|)", text.strip(), re.ASCII)
    if not match or match[2] not in _UNITS:
        raise ConfigError(f"{option} {text!r}: expected a number of bytes such as 64MB, 256MB or 1GiB")
    size = int((Decimal(match[1]) * _UNITS[match[2]]).to_integral_value())
    if not 1 <= size <= _MAX_BYTES:
        raise ConfigError(f"{option} {text!r}: expected at least 1 and at most 10^18 bytes")
    return size
