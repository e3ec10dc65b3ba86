"""Write the table of characters that the compiled splits read anew: `python docs/make_split_characters.py`.

The installed `tokenizers` is the source. Its version and that of its Unicode belong in the docstring of characters.py.
"""

import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, pre_tokenizers

import tokenmill_tokenizer.cutting.characters as target

SURROGATES = range(0xD800, 0xE000)


def main() -> None:
    """Classify every code point, and keep the runs of equal ones."""
    kinds = np.zeros(0x110000, np.uint8)
    for bit, pattern in target.PATTERNS.items():
        kinds |= np.uint8(bit) * matches(pattern)
    runs = [(len(list(run)), kind) for kind, run in itertools.groupby(kinds.tolist())]
    np.save(Path(target.__file__).with_suffix(".npy"), np.array(runs, np.int32), allow_pickle=False)


def matches(pattern: str) -> NDArray[np.bool_]:
    """For each code point whether it matches; surrogates, which no text holds, do not."""
    codes = np.setdiff1d(np.arange(0x110000), SURROGATES)
    rest = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed").pre_tokenize_str("".join(map(chr, codes)))
    matching = np.ones(len(codes), np.bool_)
    for _, (first, last) in rest:
        matching[first:last] = False
    out = np.zeros(0x110000, np.bool_)
    out[codes] = matching
    return out


if __name__ == "__main__":
    main()
