"""Shingles, minima and bands, checked against their definitions in plain Python."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_corpus.dedup.minhash import band_keys, find_minima, permutations
from tokenmill_corpus.dedup.normal_form import normal_form_table
from tokenmill_corpus.dedup.settings import MinHash
from tokenmill_corpus.dedup.shingles import hash_shingles


def buffers(texts: list[str]) -> TextBuffers:
    return column_buffers(pa.array(texts, pa.large_string()))


def shingles_of(text: str, ngram: int, by_character: bool = False) -> list[int]:
    data = np.frombuffer(text.encode(), np.uint8)
    found = np.zeros(len(data), np.uint64)
    count = hash_shingles(data, 0, len(data), normal_form_table(), by_character, ngram, found)
    return found[:count].tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(1, 6))
def test_two_places_have_equal_shingles_where_the_runs_of_words_are_equal(words: list[str], ngram: int) -> None:
    found = shingles_of(" ".join(words), ngram)
    runs = [tuple(words[i : i + ngram]) for i in range(max(1, len(words) - ngram + 1))]
    assert len(found) == len(runs)
    assert [found.index(shingle) for shingle in found] == [runs.index(run) for run in runs]


def test_a_short_document_is_one_shingle_and_one_without_words_has_none() -> None:
    assert len(shingles_of("cat", 5)) == 1
    assert shingles_of("cat", 5) == shingles_of("Cat!", 5)
    assert shingles_of("cat", 5) != shingles_of("dog", 5)
    assert shingles_of("cat cat", 5) != shingles_of("cat", 5)
    assert shingles_of("!!!", 5) == []
    assert len(shingles_of("a cat", 3, by_character=True)) == 3


@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_minima_are_those_of_the_definition(bits: int, count: int) -> None:
    a, b = permutations(MinHash(num_bands=3, rows_per_band=5, bits=bits))
    width = 64 if bits > 32 else 32
    shingles = np.array([random.Random(i).getrandbits(64) for i in range(count)], np.uint64)
    minima = np.zeros(15, a.dtype)
    find_minima(shingles, a, b, minima)
    for j in range(15):
        values = [(int(a[j]) * int(x) + int(b[j])) % (1 << width) for x in shingles]
        assert int(minima[j]) == min(values, default=(1 << width) - 1)


def test_permutations_are_bijections_and_depend_on_the_seed() -> None:
    (a, b), (other, _) = permutations(MinHash()), permutations(MinHash(seed=1))
    assert (a % 2 == 1).all()
    assert len(set(a.tolist())) == len(a) == len(set(b.tolist())) == 112
    assert not np.array_equal(a, other)


def test_minima_agree_as_often_as_the_sets_overlap() -> None:
    a, b = permutations(MinHash(num_bands=500, rows_per_band=8))
    rng = random.Random(5)
    for overlap in (0.1, 0.5, 0.9):
        sets = [[rng.getrandbits(64) for _ in range(1000)] for _ in range(3)]
        common = round(1000 * 2 * overlap / (1 + overlap))
        one, other = sets[2][:common] + sets[0][common:], sets[2][:common] + sets[1][common:]
        minima = np.zeros((2, 4000), np.uint32)
        find_minima(np.array(one, np.uint64), a, b, minima[0])
        find_minima(np.array(other, np.uint64), a, b, minima[1])
        assert np.mean(minima[0] == minima[1]) == pytest.approx(overlap, abs=0.03)


def test_documents_share_band_keys_as_their_similarity_says() -> None:
    same, keys = "one two three four five six seven", MinHash(num_bands=20, rows_per_band=2)
    texts = [same, same.upper() + "!", "completely other words are here instead now", "..."]
    found, has_any = band_keys(keys, buffers(texts))
    assert found.shape == (4, 20)
    assert has_any.tolist() == [True, True, True, False]
    assert (found[0] == found[1]).all()
    assert not (found[0] == found[2]).any()
    assert len(set(found[0].tolist())) == 20


@pytest.mark.parametrize("bits", [1, 8, 16, 32, 64])
def test_fewer_bits_join_more(bits: int) -> None:
    rng = random.Random(1)
    texts = [" ".join(str(rng.random()) for _ in range(20)) for _ in range(40)]
    found, _ = band_keys(MinHash(num_bands=40, rows_per_band=2, bits=bits), buffers(texts))
    pairs = [(found[i] == found[j]).mean() for i in range(40) for j in range(i)]
    assert np.mean(pairs) == pytest.approx(0.25**bits, abs=0.02)


def test_keys_do_not_depend_on_the_batch() -> None:
    texts = [f"word {i} and more of them {i * i}" for i in range(7)]
    whole, _ = band_keys(MinHash(), buffers(texts))
    single = [band_keys(MinHash(), buffers([text]))[0][0] for text in texts]
    assert np.array_equal(whole, np.array(single))
    sliced, _ = band_keys(MinHash(), column_buffers(pa.array(texts, pa.large_string()).slice(3)))
    assert np.array_equal(sliced, whole[3:])
