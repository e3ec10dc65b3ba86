import threading
import time

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer.batches.data import GlobalBatches, tensors_of
from tokenmill_trainer.loss import IGNORED


class Counting:
    """Sample i is i, i, …, so that a batch says which samples it holds; odd batches take longer to read."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        time.sleep(0.004 * (int(indices[0]) // 4 % 2))
        return Samples(np.repeat(indices[:, None], 5, axis=1))


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


def test_labels_are_the_next_tokens_and_nothing_is_copied() -> None:
    tokens = np.arange(6, dtype=np.int64)[None].repeat(2, 0)
    inputs, labels, positions = tensors_of(Samples(tokens))
    assert inputs.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert labels.tolist() == [[1, 2, 3, 4, 5]] * 2
    assert positions is None
    assert inputs.data_ptr() == tokens.ctypes.data
    assert labels.data_ptr() == tokens.ctypes.data + tokens.itemsize


def test_labels_that_do_not_count_are_ignored_and_stay_inputs() -> None:
    tokens = np.arange(6, dtype=np.int64)[None].repeat(2, 0)
    counted = np.array([[True, False, True, True, False], [False] * 5])
    positions = np.array([[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]], np.int32)
    inputs, labels, places = tensors_of(Samples(tokens, counted, np.array([0, 3, 5, 10], np.int32), positions))
    assert inputs.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert labels.tolist() == [[1, IGNORED, 3, 4, IGNORED], [IGNORED] * 5]
    assert places is not None
    assert torch.equal(places, torch.from_numpy(positions))


def test_an_error_while_reading_ahead_reaches_the_loop_and_ends_the_threads() -> None:
    class Broken:
        def samples(self, indices: NDArray[np.int64]) -> Samples:
            if indices[0] >= 8:
                raise OSError("the disk is gone")
            return Samples(np.zeros((len(indices), 3), np.int64))

    batches = GlobalBatches(Broken(), 4, num_workers=2).iterate(0, 10)
    with pytest.raises(OSError, match="the disk is gone"):
        list(batches)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tokenmill-data")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a GPU's driver")
def test_pinned_batches_hold_the_same_and_are_contiguous() -> None:
    plain, pinned = GlobalBatches(Counting(), 4).read(8), GlobalBatches(Counting(), 4, pin_memory=True).read(8)
    assert torch.equal(plain.labels, pinned.labels)
    assert pinned.inputs.is_pinned()
    assert pinned.inputs.is_contiguous()


def test_an_id_beyond_the_vocabulary_is_named_before_the_model_meets_it() -> None:
    class Damaged:
        def samples(self, indices: NDArray[np.int64]) -> Samples:
            tokens = np.zeros((indices.size, 5), np.int64)
            tokens[indices == 6, 2] = 300
            return Samples(tokens)

    batches = GlobalBatches(Damaged(), 4, vocab_size=300)
    assert batches.read(0).inputs.shape == (4, 4)
    with pytest.raises(VerificationError, match=r"sample 6 holds the id 300, but the vocabulary ends at 299"):
        batches.read(4)
