"""Planted near-duplicates, and the truth about them in plain Python: nothing here is ours to test."""

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

NGRAM = 5
NUM_ORIGINALS = 3000
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def plant(texts: Sequence[str]) -> list[str]:
    """Documents of up to 400 words, and a copy of each with 0 to 20 % of its words replaced.

    They are in scripts with spaces between words, as the three tools disagree on what a word is in others.
    """
    rng = random.Random(1)
    spaced = (text for text in texts if not _UNSPACED.search(text))
    long_enough = [words[:400] for text in spaced if len(words := text.split()) >= 50]
    originals = rng.sample(long_enough, min(NUM_ORIGINALS, len(long_enough)))
    vocabulary = [word for words in originals for word in words]
    copies = []
    for words in originals:
        share = rng.uniform(0, 0.2)
        copies.append([rng.choice(vocabulary) if rng.random() < share else word for word in words])
    return [" ".join(words) for words in (*originals, *copies)]


class _Spaced(dict[int, str]):
    """Character ─▶ what stands for it once everything but words is white space, by Python's own Unicode."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        stays = category[0] in "LMN" or category == "So"
        self[code] = chr(code) if stays else "" if category == "Cf" else " "
        return self[code]


_SPACED = _Spaced()


def plain_shingles(text: str) -> set[tuple[str, ...]]:
    """Runs of words in plain Python."""
    words = text.lower().translate(_SPACED).split()
    return {tuple(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}


def all_similar_pairs(sets: Sequence[set[Any]], least: float) -> dict[tuple[int, int], float]:
    """Every pair of sets with a Jaccard similarity of `least` or more, found without any hashing of our own."""
    holders: dict[Any, list[int]] = defaultdict(list)
    pairs = {}
    for i, mine in enumerate(sets):
        shared: dict[int, int] = defaultdict(int)
        for shingle in mine:
            for j in holders[shingle]:
                shared[j] += 1
            holders[shingle].append(i)
        for j, count in shared.items():
            similarity = count / (len(mine) + len(sets[j]) - count)
            if similarity >= least:
                pairs[j, i] = similarity
    return pairs


def quality(kept: set[int], similar: dict[tuple[int, int], float], num_documents: int) -> dict[str, float]:
    """Recall and precision of a tool after which the documents of these numbers are `kept`.

    Recall: of the pairs of Jaccard similarity 0.8 or more, how many no longer both stay. Precision: of the documents
    that went, how many have a document of similarity 0.7 or more: all pairs in `similar`.
    """
    near = [pair for pair, similarity in similar.items() if similarity >= 0.8]
    have_similar = {number for pair in similar for number in pair}
    gone = set(range(num_documents)) - kept
    return {
        "recall": sum(not set(pair) <= kept for pair in near) / len(near),
        "precision": len(gone & have_similar) / len(gone),
        "pairs": len(near),
        "gone": len(gone),
    }
