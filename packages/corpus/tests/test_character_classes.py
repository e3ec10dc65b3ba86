"""The packaged table of character classes, against the Unicode database of the running Python."""

import unicodedata

import numpy as np
import pytest

from tokenmill_core.compiled.utf8 import is_space, is_unspaced
from tokenmill_corpus.character_classes import (
    DIGIT,
    LETTER,
    QUOTE,
    SPACE,
    SYMBOL,
    TERMINAL,
    UNSPACED,
    UPPER,
    character_classes,
)

SKIN_TONES = range(0x1F3FB, 0x1F400)


def expected(character: str) -> int:
    category = unicodedata.category(character)
    symbol = category[0] == "P" or (category in ("Sm", "Sc", "Sk") and ord(character) not in SKIN_TONES)
    return (
        LETTER * character.isalpha()
        | DIGIT * character.isdecimal()
        | SYMBOL * symbol
        | UPPER * (category in ("Lu", "Lt"))
        | SPACE * character.isspace()
    )


def test_every_character_that_this_python_knows_is_of_the_classes_it_says() -> None:
    classes = character_classes()
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) != "Cn"]
    assert len(known) > 280_000
    checked = LETTER | DIGIT | SYMBOL | UPPER | SPACE
    assert [c for c in known if classes[ord(c)] & checked != expected(c)] == []


def test_the_table_says_what_the_functions_say() -> None:
    classes = character_classes()
    assert len(classes) == 0x110000
    assert [code for code in range(0x110000) if bool(classes[code] & SPACE) != is_space(code)] == []
    words = [code for code in range(0x110000) if not classes[code] & SYMBOL]
    assert [code for code in words if bool(classes[code] & UNSPACED) != is_unspaced(code)] == []
    assert not np.any(classes & (SYMBOL | UNSPACED) == SYMBOL | UNSPACED)


@pytest.mark.parametrize(
    ("characters", "kind"), [(".!?。！？؟।။", TERMINAL), ("\"'“”‘’«»「」『』", QUOTE), ("…,;:-([)]#@", SYMBOL)]
)
def test_ends_of_sentences_and_quotation_marks(characters: str, kind: int) -> None:
    for character in characters:
        assert character_classes()[ord(character)] & (TERMINAL | QUOTE) == kind & (TERMINAL | QUOTE), character
        assert character_classes()[ord(character)] & SYMBOL, character
