"""Further fields that documents carry along, as text: strings as they are, everything else as compact JSON.

Types may differ between rows and files; as text they are one type. What is missing, null or NaN is null.
"""

import json
from typing import Any

import orjson

from tokenmill_core.documents import Account
from tokenmill_core.readers.repair import repair

_JSON_TYPES = (str, bool, int, float, list, tuple, dict)


def carried_text(value: Any, account: Account, *, surrogates: bool = False) -> str | None:
    """A Python value as text, keys sorted, or none; `surrogates` as for `repair`."""
    if value is None:
        return None
    if not isinstance(value, _JSON_TYPES):
        value = _other(value)
    if isinstance(value, str):
        return repair(value, account, surrogates=surrogates)
    try:
        text = orjson.dumps(value, default=_other, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except (orjson.JSONEncodeError, RecursionError):  # integers past 64 bits, halves of surrogate pairs
        text = json.dumps(value, default=_other, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        text = repair(text, account, surrogates=True)
    return None if text == "null" else text


def _other(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
