"""Merges: those of `tokenizers` for the same words, whatever their order; and a long word costs what its bytes do."""

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from tokenmill_tokenizer.training import Merges, Words, learn_merges
from tokenmill_tokenizer.training.learn import byte_ids
from tokenmill_tokenizer.training.merging import CHUNK


@pytest.fixture(scope="module")
def babble() -> list[str]:
    """Words of two to five syllables, some far more frequent than others."""
    random = np.random.default_rng(1)
    syllables = np.array([a + b for a in "bdfgklmnprst" for b in ("a", "e", "io", "u", "ö")])
    ranks = np.minimum(random.zipf(1.3, 4000), 2000)
    words = ["".join(random.choice(syllables, n)) for n in random.integers(2, 6, 2001)]
    return [" ".join(words[rank] for rank in ranks[i : i + 40]) for i in range(0, len(ranks), 40)]


def words_of(counts: dict[bytes, int]) -> Words:
    lengths = [len(word) for word in counts]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    return Words(np.frombuffer(b"".join(counts), np.uint8), offsets, np.array(list(counts.values()), np.int64))


def learn(counts: dict[bytes, int], num_merges: int, min_count: int = 1) -> Merges:
    return learn_merges(words_of(counts), byte_ids(0), num_merges, min_count)


def learn_with_tokenizers(texts: Sequence[str], num_merges: int, min_count: int = 1) -> list[list[int]]:
    """The merges that `tokenizers` learns from texts whose words are cut by GPT-2's rule."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=256 + num_merges, min_frequency=min_count, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = orjson.loads(tokenizer.to_str())["model"]
    return [[model["vocab"][token] for token in pair] for pair in model["merges"]]


def words_in(texts: Sequence[str]) -> Counter[bytes]:
    cut = ByteLevel(add_prefix_space=False)
    return Counter(text[first:last].encode() for text in texts for _, (first, last) in cut.pre_tokenize_str(text))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aAbé字 \n\u0301!1", max_size=40), min_size=1, max_size=12), st.integers(1, 3))
def test_merges_are_those_of_tokenizers(texts: list[str], min_count: int) -> None:
    counts = words_in(texts)
    if counts:
        assert learn(counts, 60, min_count).pairs.tolist() == learn_with_tokenizers(texts, 60, min_count)


def test_merges_of_many_words_are_those_of_tokenizers(babble: list[str]) -> None:
    expected = learn_with_tokenizers(babble, 9 * CHUNK, 2)
    assert learn(words_in(babble), 9 * CHUNK, 2).pairs.tolist() == expected
    assert CHUNK < len(expected) < 9 * CHUNK, "more than one chunk, and an end for want of pairs"


def test_arrays_that_are_full_are_made_larger() -> None:
    """Tens of thousands of pairs from random words, more than the arrays begin with have room for."""
    random = np.random.default_rng(3)
    letters = random.integers(0x4E00, 0x5E00, 150_000).astype(np.uint32)
    text = "".join(map(chr, letters))
    texts = [" ".join(text[i : i + 6] for i in range(0, len(text), 6))] * 2
    assert learn(words_in(texts), 4000).pairs.tolist() == learn_with_tokenizers(texts, 4000)


def test_the_order_of_the_words_does_not_count(babble: list[str]) -> None:
    counts = words_in(babble)
    backwards = dict(reversed(counts.items()))
    assert (learn(counts, 200).pairs == learn(backwards, 200).pairs).all()


def test_tokens_of_each_word_are_counted() -> None:
    merges = learn({b"abab": 2, b"zz": 5, b"abz": 3, b"q": 1}, 2)
    assert merges.pairs.tolist()[0] == [byte_ids(0)[ord("a")], byte_ids(0)[ord("b")]]
    # ab (7 times), then zz (5) before ab + z (3) and ab + ab (2).
    assert merges.word_tokens.tolist() == [2, 1, 2, 1]


def test_counts_beyond_32_bits_are_counted() -> None:
    merges = learn({b"ab": 3 << 31, b"cd": (3 << 31) + 1}, 2)
    assert merges.pairs[0].tolist() == [byte_ids(0)[ord("c")], byte_ids(0)[ord("d")]]


def test_words_of_one_byte_give_no_merges() -> None:
    assert learn({b"a": 5, b"b": 3}, 10).pairs.shape == (0, 2)


def test_progress_adds_up(babble: list[str]) -> None:
    done: list[int] = []
    merges = learn_merges(words_of(words_in(babble)), byte_ids(1), 300, 1, done.append)
    assert sum(done) == len(merges.pairs) == 300
    assert merges.pairs.min() >= 1


@pytest.mark.parametrize("unit", ["a", "ab", "字符", "random"])
def test_a_long_word_takes_time_in_proportion(unit: str) -> None:
    """Twice the length is nowhere near four times the work."""

    def seconds(length: int) -> float:
        random = np.random.default_rng(0)
        data = random.integers(97, 123, length).astype(np.uint8).tobytes()
        word = data if unit == "random" else (unit.encode() * length)[:length]
        began = time.process_time()
        merges = learn({word: 1, b"x": 1}, 300, 2)
        assert len(merges.pairs) > 5
        return time.process_time() - began

    seconds(1000)  # compiles
    assert min(seconds(1_000_000) for _ in range(2)) < 3 * min(seconds(500_000) for _ in range(2)) + 0.2
