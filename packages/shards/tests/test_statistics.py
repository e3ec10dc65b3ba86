"""Yardsticks of a mixture."""

import numpy as np
import pytest

from tokenmill_core.errors import InputError
from tokenmill_shards import MixtureReader
from tokenmill_shards.statistics import unigram_entropy


def test_unigram_entropy_of_equally_frequent_tokens_is_the_logarithm_of_their_number(make_tokens, make_mixture):
    # Token i of the fixture has the id i mod 8, so every id is equally frequent.
    tokens = make_tokens("even", [[8 * 64 + 1]], vocab_size=8)
    assert unigram_entropy(_reader(make_mixture, tokens), 8) == pytest.approx(np.log(8), abs=1e-12)


def test_unigram_entropy_of_one_token_is_zero(make_tokens, make_mixture):
    tokens = make_tokens("same", [[200]], vocab_size=1)
    assert unigram_entropy(_reader(make_mixture, tokens), 3) == 0.0


def test_unigram_entropy_needs_samples(make_tokens, make_mixture):
    with pytest.raises(InputError, match="num_samples"):
        unigram_entropy(_reader(make_mixture, make_tokens("some", [[200]])), 0)


def _reader(make_mixture, tokens):
    return MixtureReader.open(make_mixture({"one": (tokens, 1)}).url, 16)
