"""Further fields that documents carry along, as text: strings as they are, everything else as compact JSON.

Types may differ between rows and files; as text they are one type. What is missing, null or NaN is null.
"""

import json
from typing import Any

import orjson

from tokenmill_core.documents import Account
from tokenmill_core.readers.repair import repair

_JSON_TYPES = (str, bool, int, float, list, tuple, dict)

_MAX_DEPTH = 500
"""How deep a value may be nested. How deep `json` could go depends on the stack it is called from."""


def carried_text(value: Any, account: Account, *, surrogates: bool = False) -> str | None:
    """A Python value as text, keys sorted, or none; `surrogates` as for `repair`.

    What is nested too deep to be written is none, and noted.
    """
    if value is None:
        return None
    if not isinstance(value, _JSON_TYPES):
        value = _other(value)
    if isinstance(value, str):
        return repair(value, account, surrogates=surrogates)
    try:
        text = orjson.dumps(value, default=_other, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except orjson.JSONEncodeError:  # integers past 64 bits, halves of surrogate pairs, more than 254 levels
        if _too_deep(value):
            account.note("unreadable_carried_values")
            return None
        text = json.dumps(value, default=_other, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        text = repair(text, account, surrogates=True)
    return None if text == "null" else text


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        parents = [value for value in level if isinstance(value, list | tuple | dict)]
        level = [child for parent in parents for child in (parent.values() if isinstance(parent, dict) else parent)]
    return any(isinstance(value, list | tuple | dict) for value in level)


def _other(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
