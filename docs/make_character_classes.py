"""Write the table of character classes anew: `python docs/make_character_classes.py`.

The `regex` package (not needed to run Tokenmill) is the source of Unicode's properties. Its version of Unicode belongs
in the docstring of character_classes.py.
"""

import itertools
from pathlib import Path

import numpy as np
import regex

import tokenmill_corpus.character_classes as target
from tokenmill_core.compiled.utf8 import is_space, is_unspaced

PROPERTIES = {
    target.LETTER: r"\p{L}",
    target.DIGIT: r"\p{Nd}",
    target.SYMBOL: r"[\p{P}\p{Sm}\p{Sc}\p{Sk}--\p{Emoji_Modifier}]",
    target.UPPER: r"[\p{Lu}\p{Lt}]",
    target.TERMINAL: r"\p{Sentence_Terminal}",
    target.QUOTE: r"\p{Quotation_Mark}",
}


def main() -> None:
    """Classify every code point, and keep the runs of equal ones."""
    patterns = {bit: regex.compile(pattern, regex.V1) for bit, pattern in PROPERTIES.items()}

    def classes_of(code: int) -> int:
        named = sum(bit for bit, pattern in patterns.items() if pattern.match(chr(code)))
        unspaced = is_unspaced(code) and not named & target.SYMBOL
        return named | is_space(code) * target.SPACE | unspaced * target.UNSPACED

    runs = [(len(list(run)), classes) for classes, run in itertools.groupby(map(classes_of, range(0x110000)))]
    np.save(Path(target.__file__).with_suffix(".npy"), np.array(runs, np.int32), allow_pickle=False)


if __name__ == "__main__":
    main()
