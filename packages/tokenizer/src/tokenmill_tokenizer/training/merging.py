"""Byte-pair merges learnt from words and their counts, one after the other, each at the cost of its own occurrences.

    words ─▶ symbols ─▶ pairs, each with its count and its places ─▶ the most frequent one is merged ─┐
                           ▲                                                                          │
                           └── counts of its neighbours, and the pairs that it makes, put right ◀─────┘

The merges are those of `tokenizers`: the pair with the highest count goes first, among equal counts the one with the
smaller left id, then the smaller right id; occurrences in a word are merged from left to right. So they depend on the
counts alone, whatever order the words come in.

A count never rises once its pair was made, for the newer of its two ids is made in one step alone. So what falls below
`min_count` is forgotten, and the heap need only look again at what it takes from its top.
"""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_tokenizer.training.merge_state import (
    HEAP_SIZE,
    NUM_MERGES,
    NUM_PAIRS,
    POOL_USED,
    WANTED,
    State,
    make_room,
)
from tokenmill_tokenizer.training.pair_heap import pop, push, replace
from tokenmill_tokenizer.training.pair_table import COUNT, FIRST, NUM, find, insert, lower, pair_of
from tokenmill_tokenizer.training.symbols import GONE, STOP, Symbols, Words, class_at, count_tokens, lay_out

CHUNK = 256
"""Merges between two looks at the progress bar."""


class Merges(NamedTuple):
    """What training gave."""

    pairs: NDArray[np.int32]
    """Shape (merges, 2): left and right id, in order. Merge m makes the id `first_id + 256 + m`."""
    word_tokens: NDArray[np.int64]
    """Tokens of each word, as the words were given."""


def learn_merges(
    words: Words,
    byte_ids: NDArray[np.int32],
    num_merges: int,
    min_count: int,
    on_progress: Callable[[int], None] = lambda merges: None,
) -> Merges:
    """Learn `num_merges` merges, or fewer where no pair occurs `min_count` times any more.

    `byte_ids`, shape (256,), has the id of each byte: ids in a row, of which the smallest is `first_id`; new ids follow
    them. `on_progress` is told how many merges were just done.
    """
    symbols, first_id, min_count = lay_out(words, byte_ids), int(byte_ids.min()), max(min_count, 1)
    state = _first_state(symbols, first_id, num_merges)
    done = -1
    while done < num_merges and (state.sizes[NUM_MERGES] > done or state.sizes[WANTED]):
        done = int(state.sizes[NUM_MERGES])
        if state.sizes[WANTED]:
            state = make_room(state, min_count)
        _merge(state, first_id, min(done + CHUNK, num_merges), min_count)
        on_progress(int(state.sizes[NUM_MERGES]) - done)
    return Merges(state.merges[: state.sizes[NUM_MERGES]].copy(), count_tokens(symbols, state.lengths))


def _first_state(symbols: Symbols, first_id: int, num_merges: int) -> State:
    num_ids, num_places = first_id + 256 + num_merges, len(symbols.row)
    # Two bytes make 65,536 pairs at most.
    slots = 1 << max(18, (num_places // 16).bit_length())
    state = State(
        symbols=symbols.row,
        class_ends=symbols.class_ends,
        class_counts=symbols.class_counts,
        lengths=np.ones(num_ids, np.int32),
        merges=np.zeros((num_merges, 2), np.int32),
        pairs=np.zeros((slots, 4), np.int64),
        heap=np.zeros((slots // 2, 2), np.int64),
        pool=np.zeros(num_places + num_places // 4, np.int32),
        made=np.zeros((4, num_ids), np.int64),
        found=np.zeros((num_places // 4, 2), np.int32),
        sizes=np.zeros(5, np.int64),
    )
    _find_byte_pairs(state, first_id)
    return state


@numba.njit(cache=True, nogil=True)
def _find_byte_pairs(state: State, first_id: int) -> None:
    """Fill pool, table and heap with the pairs of bytes."""
    symbols = state.symbols
    counts, sizes = np.zeros(1 << 16, np.int64), np.zeros(1 << 16, np.int64)
    c = 0
    for p in range(1, len(symbols) - 1):
        if symbols[p] != STOP and symbols[p + 1] != STOP:
            while state.class_ends[c] <= p:
                c += 1
            pair = (symbols[p] - first_id) << 8 | (symbols[p + 1] - first_id)
            counts[pair] += state.class_counts[c]
            sizes[pair] += 1
    places = np.zeros(1 << 16, np.int64)
    used = 0
    for pair in range(1 << 16):
        places[pair] = used
        if sizes[pair]:
            left, right = first_id + (pair >> 8), first_id + (pair & 0xFF)
            _add_pair(state, pair_of(left, right), counts[pair], used, sizes[pair])
            used += sizes[pair]
    state.sizes[POOL_USED] = used
    for p in range(1, len(symbols) - 1):
        if symbols[p] != STOP and symbols[p + 1] != STOP:
            pair = (symbols[p] - first_id) << 8 | (symbols[p + 1] - first_id)
            state.pool[places[pair]] = p
            places[pair] += 1


@numba.njit(cache=True, nogil=True)
def _merge(state: State, first_id: int, target: int, min_count: int) -> bool:
    """Merge until there are `target` merges; false if it stopped before: for want of pairs, or of room (`WANTED`)."""
    sizes = state.sizes
    sizes[WANTED] = 0
    while sizes[NUM_MERGES] < target:
        slot = _most_frequent(state, min_count)
        if slot < 0:
            return False
        positions = state.pairs[slot, NUM]
        if not _has_room(state, positions):
            sizes[WANTED] = positions
            return False
        pair = state.heap[0, 1]
        _pop(state)
        left, right = pair >> 32, pair & 0xFFFFFFFF
        merge = sizes[NUM_MERGES]
        new = first_id + 256 + merge
        state.merges[merge, 0], state.merges[merge, 1] = left, right
        state.lengths[new] = state.lengths[left] + state.lengths[right]
        num_found = _merge_everywhere(state, slot, left, right, new)
        state.pairs[slot, COUNT] = 0
        _add_made_pairs(state, new, num_found, min_count)
        sizes[NUM_MERGES] += 1
    return True


@kernel
def _most_frequent(state: State, min_count: int) -> int:
    """The slot of the pair to merge next, which then is the heap's top; -1 if there is none."""
    heap, sizes = state.heap, state.sizes
    while sizes[HEAP_SIZE] > 0:
        slot = find(state.pairs, heap[0, 1])
        count = int(state.pairs[slot, COUNT]) if slot >= 0 else 0
        if count < min_count:
            _pop(state)
        elif count < heap[0, 0]:
            replace(heap, sizes[HEAP_SIZE], 0, count, heap[0, 1])
        else:
            return slot
    return -1


@kernel
def _pop(state: State) -> None:
    pop(state.heap, state.sizes[HEAP_SIZE])
    state.sizes[HEAP_SIZE] -= 1


@kernel
def _has_room(state: State, positions: int) -> bool:
    """Whether a pair with so many positions can be merged within the arrays as they are."""
    new_pairs = min(2 * positions, 2 * len(state.lengths))
    return bool(
        state.sizes[POOL_USED] + 2 * positions <= len(state.pool)
        and 2 * positions <= len(state.found)
        and 2 * (state.sizes[NUM_PAIRS] + new_pairs) <= len(state.pairs)
        and state.sizes[HEAP_SIZE] + new_pairs <= len(state.heap)
    )


@kernel
def _merge_everywhere(state: State, slot: int, left: int, right: int, new: int) -> int:
    """Merge all occurrences of a pair, and note the pairs that come of it in `made` and `found`; how many it found."""
    symbols, lengths, made, found = state.symbols, state.lengths, state.made, state.found
    first, c, num = state.pairs[slot, FIRST], 0, 0
    left_length, new_length = lengths[left], lengths[new]
    for k in range(first, first + state.pairs[slot, NUM]):
        p = at(state.pool, k)
        if at(symbols, p) != left or at(symbols, p + left_length) != right:
            continue
        c = class_at(state.class_ends, c, p)
        count = at(state.class_counts, c)
        before, after = at(symbols, p - 1), at(symbols, p + new_length)
        symbols[p + left_length] = GONE
        symbols[p] = symbols[p + new_length - 1] = new
        if before == new:  # the one just made, whose right neighbour was taken for `left`
            made[1, left] -= count
        elif before != STOP:
            lower(state.pairs, pair_of(before, left), count)
        if before != STOP:
            made[0, before] += count
            made[2, before] += 1
            found[num, 0], found[num, 1] = -1 - before, p - lengths[before]
            num += 1
        if after != STOP:
            lower(state.pairs, pair_of(right, after), count)
            made[1, after] += count
            made[3, after] += 1
            found[num, 0], found[num, 1] = after, p
            num += 1
    return num


@kernel
def _add_made_pairs(state: State, new: int, num_found: int, min_count: int) -> None:
    """Put the pairs noted in `made` and `found` into pool, table and heap, and clear `made`."""
    made, found, used = state.made, state.found, state.sizes[POOL_USED]
    for k in range(num_found):
        side, other = int(found[k, 0] >= 0), max(found[k, 0], -1 - found[k, 0])
        num = made[2 + side, other]
        if num > 0:  # the first time that it is met: from here on `made` holds where its next position goes, below 0
            made[2 + side, other] = -1
            if made[side, other] >= min_count:
                pair = pair_of(other, new) if side == 0 else pair_of(new, other)
                _add_pair(state, pair, made[side, other], used, num)
                made[2 + side, other] = -2 - used
                used += num
        place = -2 - made[2 + side, other]
        if place >= 0:
            state.pool[place] = found[k, 1]
            made[2 + side, other] -= 1
    for k in range(num_found):
        side, other = int(found[k, 0] >= 0), max(found[k, 0], -1 - found[k, 0])
        made[side, other] = made[2 + side, other] = 0
    state.sizes[POOL_USED] = used


@kernel
def _add_pair(state: State, pair: int, count: int, first: int, num: int) -> None:
    """Put a new pair into the table and the heap, which have room for it."""
    insert(state.pairs, pair, count, first, num)
    push(state.heap, state.sizes[HEAP_SIZE], count, pair)
    state.sizes[NUM_PAIRS] += 1
    state.sizes[HEAP_SIZE] += 1
