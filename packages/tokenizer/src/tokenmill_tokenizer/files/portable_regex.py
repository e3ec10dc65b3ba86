"""Where the regular expressions of `tokenizers` (Oniguruma) and of tiktoken (fancy-regex) part ways.

Properties such as `\\p{L}`, `\\s` and `\\d` hold for the same characters in both, all of Unicode through.
"""

import re

from tokenizers import Regex
from tokenizers.normalizers import Replace

from tokenmill_core.errors import InputError

_CHARACTERS = [chr(code) for code in range(1, 0x180)]
_WORDS = r"write [\p{L}\p{M}\p{Nd}\p{Pc}] for word characters"
_SPELL_OUT = "spell out the characters meant"
_ANYWHERE = {
    r"\\[wWbB]": _WORDS,
    r"\\[hHZGKRX<>]": _SPELL_OUT,
    r"\[:\^?\w+:\]": r"write a property such as \p{L}",
    r"\\[0-9gkQE]": _SPELL_OUT,
}
_OUTSIDE_SETS = {
    r"\{\d*,?\d*\}\+": "write (?>X{1,3}) for X{1,3}+",
    r"[\^$]": r"write \A or \z, or (?<![^\n]) or (?![^\n])",
    r"\(\?(?![:=!>]|<[=!]|i:)": "of groups write (?: (?= (?! (?<= (?<! (?> and (?i: alone",
}


def check_portable(pattern: str) -> None:
    """Refuse what the two read differently or one of them does not know: `InputError` with how to say it instead."""
    # A character is matched or it is not; anything else comes of a match beside it.
    replace = Replace(Regex(pattern), "\ue000")
    if any(replace.normalize_str(character) not in (character, "\ue000") for character in _CHARACTERS):
        raise InputError(f"pattern: {pattern!r} matches where there is nothing, which tiktoken cannot use; use + for *")
    # An escaped backslash escapes nothing.
    whole = pattern.replace(r"\\", "")
    outside = re.sub(r"\[\^?\]?[^\]]*\]", "", re.sub(r"\\.", "", whole))
    for text, table in ((whole, _ANYWHERE), (outside, _OUTSIDE_SETS)):
        for construct, remedy in table.items():
            found = re.search(construct, text)
            if found:
                raise InputError(
                    f"pattern: {found.group()!r} in {pattern!r} means one thing to tokenizers and another to tiktoken; "
                    f"{remedy}"
                )
