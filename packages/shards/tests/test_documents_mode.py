"""Documents apart, filling in the middle and loss masks, as `MixtureReader` puts them together."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tokenmill_core.mixture_manifest import FimTokens
from tokenmill_shards import MixtureReader
from tokenmill_shards.reading.samples import Samples

PREFIX, MIDDLE, SUFFIX = 50_000, 50_001, 50_002
LENGTH = 16
Make = Callable[..., Any]


def parts(samples: Samples, row: int) -> list[list[int]]:
    """The inputs of one row, document by document."""
    assert samples.cu_seqlens is not None
    bounds = [int(place) - row * LENGTH for place in samples.cu_seqlens]
    inputs = samples.tokens[row, :LENGTH].tolist()
    return [inputs[first:stop] for first, stop in pairwise(bounds) if 0 <= first < LENGTH]


@pytest.fixture
def fim_mixture(make_tokens: Make, make_mixture: Make) -> str:
    """`code`, always rearranged, and `prose`, never; some of both held out."""
    code = make_tokens("code", [[7, 20, 9, 4, 30, 160], [24, 243, 1]])
    prose = make_tokens("prose", [[300, 15, 5, 50], [10, 20, 150, 50, 7, 49]])
    tokens = FimTokens(prefix=PREFIX, middle=MIDDLE, suffix=SUFFIX)
    return str(
        make_mixture(
            {"code": (code, 1), "prose": (prose, 1)},
            validation_share=0.3,
            sources={"code": {"fim_rate": 1.0}},
            fim=tokens,
        ).url
    )


def test_documents_are_rearranged_where_they_lie(fim_mixture: str) -> None:
    reader = MixtureReader.open(fim_mixture, LENGTH, documents=True)
    plain = MixtureReader(
        reader.manifest.model_copy(
            update={"sources": tuple(s.model_copy(update={"fim_rate": 0.0}) for s in reader.manifest.sources)}
        ),
        [stream.store for stream in reader.training],
        LENGTH,
        documents=True,
    )
    indices = np.arange(200)
    old, new = plain.samples(indices), reader.samples(indices)
    for before, after in ((old.cu_seqlens, new.cu_seqlens), (old.positions, new.positions), (old.counted, new.counted)):
        assert np.array_equal(before, after)
    source = reader.mixture.locate(indices).source
    assert np.array_equal(new.tokens[source == 1], old.tokens[source == 1])
    for row in np.flatnonzero(source == 0).tolist():
        for before, after in zip(parts(old, row)[:-1], parts(new, row)[:-1], strict=True):  # the last goes on past L
            assert (after[0] == PREFIX) == (len(before) > 3)
            texts = [token for token in after if token not in (PREFIX, MIDDLE, SUFFIX)]
            assert sorted(texts) == (before[:-3] if len(before) > 3 else before)


@pytest.mark.parametrize("documents", [False, True])
def test_a_sample_is_the_same_alone_and_in_any_batch(fim_mixture: str, documents: bool) -> None:
    reader = MixtureReader.open(fim_mixture, LENGTH, documents=documents)
    indices = np.random.default_rng(0).permutation(60)
    together = reader.samples(indices)
    assert (together.tokens == PREFIX).any()
    for row, index in enumerate(indices.tolist()):
        alone = reader.samples(np.array([index]))
        assert np.array_equal(alone.tokens[0], together.tokens[row])
        if documents:
            assert together.positions is not None
            assert alone.positions is not None
            assert np.array_equal(alone.positions[0], together.positions[row])
            assert parts(alone, 0) == parts(together, row)


def test_validation_is_never_rearranged(fim_mixture: str) -> None:
    samples = MixtureReader.open(fim_mixture, LENGTH).validation("code")
    assert samples.tokens.size
    assert not np.isin(samples.tokens, (PREFIX, MIDDLE, SUFFIX)).any()


@pytest.fixture
def masked(tokenize: Make, make_mixture: Make) -> str:
    """Documents whose every other word counts."""
    rows = []
    for number in range(12):
        words = [f"word{number}x{i} " for i in range(20)]
        starts = np.cumsum([0, *map(len, words)]).tolist()
        spans = [[starts[i], starts[i + 1]] for i in range(0, 20, 2)]
        rows.append({"id": str(number), "text": "".join(words), "mask": spans})
    tokens = tokenize("masked", rows, loss_mask="mask")
    return str(make_mixture({"masked": (tokens, 1)}).url)


def stored_mask(reader: MixtureReader) -> NDArray[np.uint8]:
    """The loss mask of all tokens, straight from the file."""
    store = reader.training[0].store
    folder = Path(store.load().url).parent
    return np.concatenate([np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.loss_mask.bin"))])


@pytest.mark.parametrize("documents", [False, True])
def test_labels_count_as_the_dataset_says(masked: str, documents: bool) -> None:
    reader = MixtureReader.open(masked, LENGTH, documents=documents)
    mask = stored_mask(reader)
    assert 0 < mask.sum() < mask.size
    begins = np.zeros(mask.size, np.bool_)
    begins[reader.training[0].starts(0, mask.size)] = True
    indices = np.arange(int(reader.mixture.num_windows[0]))
    counted = reader.samples(indices).counted
    assert counted is not None
    for row, window in enumerate(reader.mixture.locate(indices).window.tolist()):
        labels = slice(window * LENGTH + 1, window * LENGTH + LENGTH + 1)
        expected = mask[labels] == 1
        assert np.array_equal(counted[row], expected & ~begins[labels] if documents else expected)
