"""What a training run draws from a mixture, at the level of the reader: enough data or a clear word, and one order."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.errors import InputError
from tokenmill_shards import MixtureReader

Prep = Callable[..., Any]
LENGTH = 64


@pytest.fixture
def tokens(
    prep: Prep, write_lines: Any, word_tokenizer: Callable[..., Path], tmp_path: Path
) -> Callable[[str, int], Path]:
    """tokens("a", 50): a dataset of 50 tokens: one document of 49 words and the end of it."""
    tokenizer = word_tokenizer(10_000)

    def make(name: str, count: int) -> Path:
        raw = write_lines(f"{name}.jsonl", [" ".join(f"w{i}" for i in range(count - 1))] if count else [])
        out = tmp_path / f"{name}-tokens"
        assert prep("tokenize", raw, "--tokenizer", tokenizer, "--out", out, "--workers", 1).code == 0
        return out

    return make


@pytest.fixture
def mix(prep: Prep, tmp_path: Path) -> Callable[..., Path]:
    """mix("a=DIR", …): the mixture file."""

    def make(*sources: str, **options: object) -> Path:
        out = tmp_path / "mixture.json"
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        outcome = prep("mix", *sources, *flags, "--out", out)
        assert outcome.code == 0, outcome.err
        return out

    return make


@pytest.fixture
def reader(tokens: Callable[[str, int], Path], mix: Callable[..., Path]) -> MixtureReader:
    """100 windows of `a` (weight 1) and 40 of `b` (weight 2)."""
    sources = (f"a={tokens('a', 100 * LENGTH + 1)}:1", f"b={tokens('b', 40 * LENGTH + 1)}:2")
    return MixtureReader.open(str(mix(*sources, seed=5)), LENGTH)


# Weights


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        (("0.001", "0.999"), (0.001, 0.999)),
        (("0", "1"), (0.0, 1.0)),
        (("0.3", "0.4"), (3 / 7, 4 / 7)),
        (("10", "20"), (1 / 3, 2 / 3)),
    ],
)
def test_weights_are_normalised_shown_and_drawn(
    prep: Prep, tokens: Any, tmp_path: Path, weights: tuple[str, str], shares: tuple[float, float]
) -> None:
    folders = {name: tokens(name, 10 * LENGTH) for name in ("a", "b")}
    sources = [f"{name}={folders[name]}:{weight}" for name, weight in zip(folders, weights, strict=True)]
    outcome = prep("mix", *sources, "--out", tmp_path / "mixture.json")
    assert outcome.code == 0
    for share in shares:
        assert f"{share:.2%}" in outcome.out
    source = MixtureReader.open(str(tmp_path / "mixture.json"), LENGTH).mixture.locate(np.arange(20_000)).source
    drawn = np.bincount(source, minlength=2) / 20_000
    assert drawn.tolist() == pytest.approx(shares, abs=1 / 20_000)


@pytest.mark.parametrize(
    ("sources", "code", "message"),
    [
        (("a={a}:0", "b={b}:0"), 2, "all weights are 0"),
        (("a={a}:1", "b={b}:-1"), 2, "source 'b': weight '-1' is not a number of 0 or more"),
        (("a={a}:1", "b={b}:nan"), 2, "source 'b': weight 'nan' is not a number of 0 or more"),
        (("a={a}:0.5x", "b={b}:1"), 2, "source 'a': weight '0.5x' is not a number of 0 or more"),
        (("a={a}:1", "b={empty}:1"), 1, "source 'b' has no documents: leave it out, or give it weight 0"),
        (("a={a}:1", "a={b}:1"), 2, "source 'a' is named twice"),
        (("a={a}:1", "twin={a}:1"), 2, "sources 'a' and 'twin' are the same dataset"),
    ],
)
def test_weights_that_mean_nothing_are_refused_by_name(
    prep: Prep, tokens: Any, tmp_path: Path, sources: tuple[str, ...], code: int, message: str
) -> None:
    folders = {"a": tokens("a", 100), "b": tokens("b", 90), "empty": tokens("empty", 0)}
    outcome = prep("mix", *(source.format(**folders) for source in sources), "--out", tmp_path / "mixture.json")
    assert outcome.code == code
    assert message in outcome.err
    assert not (tmp_path / "mixture.json").exists()


# Enough data


@pytest.mark.parametrize("count", [50, 64])
def test_too_little_for_one_sequence_is_said_at_once_with_have_and_need(tokens: Any, mix: Any, count: int) -> None:
    mixture = mix(f"a={tokens('a', count)}")
    message = rf"source a has {count} tokens; sequence length 64 needs at least 65"
    with pytest.raises(InputError, match=message):
        MixtureReader.open(str(mixture), LENGTH)


def test_one_sequence_repeats_every_epoch_for_any_number_of_ranks(tokens: Any, mix: Any) -> None:
    reader = MixtureReader.open(str(mix(f"a={tokens('a', 65)}")), LENGTH)
    windows = reader.samples(np.arange(8)).tokens
    assert (windows == np.array([*range(64), 9_999])).all()
    assert reader.mixture.locate(np.arange(8)).epoch.tolist() == list(range(8))
    # Four ranks of one sample each take samples 0 to 3: the same sequence, in four epochs.
    assert [reader.samples(np.array([rank])).tokens.tolist() for rank in range(4)] == [windows[:1].tolist()] * 4


def test_a_validation_share_of_zero_holds_out_nothing_and_a_tiny_one_is_refused(
    prep: Prep, write_lines: Any, word_tokenizer: Callable[..., Path], mix: Any, tokens: Any, tmp_path: Path
) -> None:
    """50 documents, each of 64 tokens with the end of it."""
    raw = write_lines("many.jsonl", [" ".join(f"w{50 * i + d}" for i in range(63)) for d in range(50)])
    folder = tmp_path / "many"
    assert prep("tokenize", raw, "--tokenizer", word_tokenizer(10_000), "--out", folder, "--workers", 1).code == 0
    whole = MixtureReader.open(str(mix(f"a={folder}", validation_share=0)), LENGTH)
    assert (whole.num_validation("a"), whole.training[0].num_tokens) == (0, 50 * LENGTH)
    refused = prep("mix", f"a={folder}", "--validation-share", 0.0001, "--out", tmp_path / "no.json")
    assert refused.code == 1
    assert "a validation share of 0.0001 holds out 0 of the 50 documents of the sources with weight, but" in refused.err
    # A document alone is too little, but `a` has some held out.
    small = prep(
        "mix", f"a={folder}:1", f"b={tokens('b', 5000)}:1", "--validation-share", 0.1, "--out", tmp_path / "b.json"
    )
    assert small.code == 0
    assert (
        "warning: source 'b': a validation share of 0.1 holds out none of its documents (1), so it has no" in small.out
    )
    some = MixtureReader.open(str(mix(f"a={folder}", validation_share=0.3)), LENGTH)
    held_out = some.held_out[0].num_tokens // LENGTH
    assert 0 < held_out < 50
    assert some.training[0].num_tokens == (50 - held_out) * LENGTH


# One order


def ids(located: Any) -> list[tuple[int, ...]]:
    """(source, epoch, window) of each sample."""
    return list(zip(*(part.tolist() for part in located), strict=True))


def test_stopping_anywhere_and_going_on_gives_the_same_list(reader: MixtureReader, tmp_path: Path) -> None:
    """The number of samples consumed is all that is needed, in the middle of an epoch, in a new process or not."""
    batch = 8
    whole = [ids(reader.mixture.locate(np.arange(step * batch, (step + 1) * batch))) for step in range(20)]
    first = whole[:7]
    fresh = MixtureReader.open(str(tmp_path / "mixture.json"), LENGTH)
    consumed = sum(map(len, first))
    rest = [ids(fresh.mixture.locate(np.arange(at, at + batch))) for at in range(consumed, 20 * batch, batch)]
    assert first + rest == whole
    assert len({sample for step in whole for sample in step}) == 20 * batch, "no window twice in an epoch"


def test_a_new_process_draws_the_same(reader: MixtureReader, tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from tokenmill_shards import MixtureReader\n"
        "print(MixtureReader.open(sys.argv[1], 64).samples(np.arange(50, 90)).tokens.sum(axis=1).tolist())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mixture.json")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "11"},
    )
    assert found.stdout.strip() == str(reader.samples(np.arange(50, 90)).tokens.sum(axis=1).tolist())


@pytest.mark.parametrize(("ranks", "per_rank"), [(2, 4), (1, 8), (4, 2), (8, 1)])
def test_any_split_into_ranks_and_micro_batches_draws_the_same_global_batch(
    reader: MixtureReader, ranks: int, per_rank: int
) -> None:
    expected = reader.samples(np.arange(40)).tokens
    for step in range(5):
        shares = [
            reader.samples(np.arange(step * 8 + rank * per_rank, step * 8 + (rank + 1) * per_rank)).tokens
            for rank in range(ranks)
        ]
        assert (np.concatenate(shares) == expected[step * 8 : step * 8 + 8]).all()


def test_a_changed_batch_goes_on_from_what_was_consumed(reader: MixtureReader) -> None:
    expected = ids(reader.mixture.locate(np.arange(56)))
    eight = [sample for step in range(3) for sample in ids(reader.mixture.locate(np.arange(step * 8, step * 8 + 8)))]
    sixteen = [sample for at in (24, 40) for sample in ids(reader.mixture.locate(np.arange(at, at + 16)))]
    assert eight + sixteen == expected


def test_another_sequence_length_draws_the_sources_alike_and_windows_of_its_own(
    reader: MixtureReader, tmp_path: Path
) -> None:
    longer = MixtureReader.open(str(tmp_path / "mixture.json"), 2 * LENGTH)
    assert longer.mixture.num_windows.tolist() == [50, 20]
    assert (longer.mixture.locate(np.arange(500)).source == reader.mixture.locate(np.arange(500)).source).all()
    assert longer.samples(np.arange(3)).tokens.shape == (3, 129)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_sample_comes_once_an_epoch_for_any_number_of_workers(
    tokens: Any, mix: Any, workers: int, ranks: int
) -> None:
    reader = MixtureReader.open(str(mix(f"a={tokens('a', 100 * LENGTH + 1)}")), LENGTH)
    drawn: dict[int, tuple[int, ...]] = {}
    for rank in range(ranks):
        for worker in range(workers):
            for index in range(rank * workers + worker, 200, ranks * workers):
                (drawn[index],) = ids(reader.mixture.locate(np.array([index])))
    epochs = [[drawn[index][2] for index in range(start, start + 100)] for start in (0, 100)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(100))
    assert epochs[0] != epochs[1]
    assert [drawn[index] for index in range(200)] == ids(reader.mixture.locate(np.arange(200)))
    assert len(drawn) == 200
