"""Characters that no later stage should meet: U+0000, and surrogates that are half of a pair. Each becomes U+FFFD."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill_core.documents import Account

REPLACEMENT = "\ufffd"
_UNWANTED = re.compile("[\0\ud800-\udfff]")


def repair(text: str, account: Account, *, surrogates: bool = False) -> str:
    """`text` fit to be stored; what was replaced is noted as `repaired_characters`.

    `surrogates` says whether `text` may hold any. Strictly decoded text cannot, and looking for them is slow.
    """
    if not surrogates and "\0" not in text:
        return text
    repaired, count = _UNWANTED.subn(REPLACEMENT, text)
    account.note("repaired_characters", count)
    return repaired


def repair_array(texts: pa.Array, account: Account) -> pa.Array:
    """The same for a string array of valid UTF-8, which cannot hold surrogates."""
    count = pc.sum(pc.count_substring(texts, pattern="\0")).as_py() or 0
    if not count:
        return texts
    account.note("repaired_characters", count)
    return pc.replace_substring(texts, pattern="\0", replacement=REPLACEMENT)
