import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.data import GlobalBatches
from tokenmill_trainer.loss import IGNORED
from tokenmill_trainer.validation import rank_batches, validate


class Counting:
    """Window i is i, i, …, so that a batch says which samples it holds; odd batches take longer to read."""

    def windows(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        time.sleep(0.004 * (int(indices[0]) // 4 % 2))
        return np.repeat(indices[:, None], 5, axis=1).astype(np.int32)


def samples(batches: GlobalBatches, consumed: int, steps: int) -> list[list[int]]:
    return [batch.inputs[:, 0].tolist() for batch in batches.iterate(consumed, steps)]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_order_is_the_same_for_any_number_of_threads(num_workers: int) -> None:
    got = samples(GlobalBatches(Counting(), 4, num_workers=num_workers), 0, 9)
    assert got == [list(range(4 * step, 4 * step + 4)) for step in range(9)]


def test_ranks_take_contiguous_slices_of_the_same_global_batch() -> None:
    parts = [samples(GlobalBatches(Counting(), 8, rank, 2), 16, 2) for rank in (0, 1)]
    assert parts == [[[16, 17, 18, 19], [24, 25, 26, 27]], [[20, 21, 22, 23], [28, 29, 30, 31]]]


def test_a_changed_batch_goes_on_from_the_samples_consumed() -> None:
    first = samples(GlobalBatches(Counting(), 4), 0, 3)
    rest = samples(GlobalBatches(Counting(), 6), 12, 2)
    assert [i for batch in first + rest for i in batch] == list(range(24))


def test_labels_are_the_next_tokens() -> None:
    class Ascending:
        def windows(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
            return np.arange(6, dtype=np.int32)[None].repeat(len(indices), 0)

    batch = GlobalBatches(Ascending(), 2).read(0)
    assert batch.inputs.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert batch.labels.tolist() == [[1, 2, 3, 4, 5]] * 2
    assert batch.inputs.dtype == batch.labels.dtype == torch.int64


def test_an_error_while_reading_ahead_reaches_the_loop_and_ends_the_threads() -> None:
    class Broken:
        def windows(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
            if indices[0] >= 8:
                raise OSError("the disk is gone")
            return np.zeros((len(indices), 3), np.int32)

    batches = GlobalBatches(Broken(), 4, num_workers=2).iterate(0, 10)
    with pytest.raises(OSError, match="the disk is gone"):
        list(batches)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tokenmill-data")]


def test_every_rank_validates_the_same_number_of_batches_and_each_window_counts_once() -> None:
    windows = np.arange(1, 6, dtype=np.int32)[:, None].repeat(4, 1)
    ranks = [list(rank_batches(windows, rank, 2, micro_batch_size=2)) for rank in (0, 1)]
    assert [len(batches) for batches in ranks] == [2, 2]
    counted = [int(label[0]) for batches in ranks for _, labels in batches for label in labels if label[0] != IGNORED]
    assert counted == [1, 2, 3, 4, 5]
    assert {inputs.shape for batches in ranks for inputs, _ in batches} == {(2, 3)}


def test_validation_does_not_depend_on_the_micro_batch(mixture: Path, make_config: Callable[..., RunConfig]) -> None:
    config = make_config(
        model={"vocab_size": 400}, data={"mixture": str(mixture), "sequence_length": 32}, validation={"samples": 7}
    )
    with initialize(config) as engine:
        assert engine.reader is not None
        results = [validate(engine.model, engine.world, engine.reader, config.validation, n) for n in (1, 3, 8)]
    assert set(results[0]["val_loss_by_source"]) == {"trainer", "core"}
    for other in results[1:]:
        assert other["val_loss"] == pytest.approx(results[0]["val_loss"], abs=1e-6)
