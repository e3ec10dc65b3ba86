"""Deduplication in plain Python, to check the compiled one against."""

import re
from collections.abc import Sequence

WORD = re.compile(r"\w+")


def shingles(text: str, ngram: int = 5) -> set[tuple[str, ...]]:
    """Runs of words of a text in a spaced script, by what `re` takes for words."""
    words = WORD.findall(text.lower())
    return {tuple(words[i : i + ngram]) for i in range(max(1, len(words) - ngram + 1))} if words else set()


def jaccard(one: set, other: set) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


def pair_rule(sets: Sequence[set], min_jaccard: float) -> list[int]:
    """For each set, from the first on, the first one that stays and is as similar: or itself."""
    kept: list[int] = []
    for i, mine in enumerate(sets):
        stays = (j for j in range(i) if kept[j] == j)
        kept.append(next((j for j in stays if jaccard(mine, sets[j]) >= min_jaccard), i))
    return kept


def component_rule(sets: Sequence[set], min_jaccard: float) -> list[int]:
    """For each set the first one that pairs of similar sets lead to."""
    kept = list(range(len(sets)))
    for i in range(len(sets)):
        for j in range(i):
            if jaccard(sets[i], sets[j]) >= min_jaccard and kept[i] != kept[j]:
                low, high = sorted((kept[i], kept[j]))
                kept = [low if root == high else root for root in kept]
    return kept
