"""Phrases against Python's own search, wherever in the text they stand."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.phrases import find_phrases, make_phrases

PHRASES = ("use cookies", "uses cookies", "cookie policy", "aaaaaaa", "aaaa")
SETS = [make_phrases(PHRASES), make_phrases(PHRASES[:3])]
PARTS = st.sampled_from(
    [*PHRASES, *map(str.upper, PHRASES), "Use Cookie Policy", "cookies", "use ", "aaa", "\u0141ses "]
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(PARTS | st.text("acekiopsu y_\u00e9", max_size=9), max_size=5).map("".join), st.integers(0, 40), st.data()
)
def test_phrases_are_found_where_python_finds_them(text: str, first: int, data: st.DataObject) -> None:
    encoded = text.encode()
    first = min(first, len(encoded))
    last = data.draw(st.integers(first, len(encoded)))
    for phrases, words in zip(SETS, (PHRASES, PHRASES[:3]), strict=True):
        found = find_phrases(np.frombuffer(encoded, np.uint8), first, last, phrases)
        part = encoded[first:last].lower()  # bytes.lower changes ASCII alone
        assert [bool(found >> p & 1) for p in range(len(words))] == [word.encode() in part for word in words]
