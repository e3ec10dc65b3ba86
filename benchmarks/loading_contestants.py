"""Who reads windows in `loading.py`, in this environment: `python loading_contestants.py NAME FOLDER`.

Each gives shuffled batches of BATCH windows as int64, the type that embeddings and losses take.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turns import serve

from tokenmill_shards import MixtureReader

SEQUENCE_LENGTH, BATCH = 2048, 8


def open_ours(folder: Path) -> MixtureReader:
    """The mixture that `loading_data` wrote."""
    return MixtureReader.open(str(folder / "mixture.json"), SEQUENCE_LENGTH, verify="sizes")


def ours(folder: Path) -> Iterator[NDArray[np.int64]]:
    """Batches of (8, 2049) in the order of the mixture."""
    reader, first = open_ours(folder), 0
    while True:
        yield reader.samples(np.arange(first, first + BATCH)).tokens
        first += BATCH


def ours_loader(folder: Path) -> Iterator[Any]:
    """The same through a PyTorch DataLoader with one worker process: what we do not do, and why."""
    from torch import from_numpy
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(from_numpy, ours(folder))

    yield from DataLoader(Batches(), batch_size=None, num_workers=1)


def numpy_gather(folder: Path) -> Iterator[NDArray[np.int64]]:
    """The same batches by one indexing of the memory map, with all starts computed before."""
    tokens, starts = np.memmap(folder / "shard-00000.bin", np.uint16, "r"), _starts(folder)
    span = np.arange(SEQUENCE_LENGTH + 1)
    for first in range(0, starts.size - BATCH, BATCH):
        yield tokens[starts[first : first + BATCH, None] + span].astype(np.int64)


def numpy_rows(folder: Path) -> Iterator[NDArray[np.int64]]:
    """The same batches by a slice of the memory map for each row, which is as fast as NumPy goes."""
    tokens, starts = np.memmap(folder / "shard-00000.bin", np.uint16, "r"), _starts(folder)
    tokens = np.asarray(tokens)  # slices of a memmap object cost microseconds each
    for first in range(0, starts.size - BATCH, BATCH):
        batch = np.empty((BATCH, SEQUENCE_LENGTH + 1), np.int64)
        for row, start in zip(batch, starts[first : first + BATCH].tolist(), strict=True):
            row[:] = tokens[start : start + SEQUENCE_LENGTH + 1]
        yield batch


def _starts(folder: Path) -> NDArray[np.int64]:
    mixture = open_ours(folder).mixture
    return mixture.locate(np.arange(mixture.num_windows[0])).window * SEQUENCE_LENGTH


def megatron(folder: Path) -> Iterator[Any]:
    """Megatron's GPTDataset through a PyTorch DataLoader without worker processes, as they would only slow it down."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import Split
    from torch.utils.data import DataLoader

    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=SEQUENCE_LENGTH,
        split="1",
        path_to_cache=str(folder / "megatron"),
        tokenizer=_Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    indexed = GPTDataset.build_low_level_dataset(str(folder / "shard-00000"), config)
    documents = np.arange(indexed.document_indices.size - 1, dtype=np.int32)
    dataset = GPTDataset(indexed, str(folder / "shard-00000"), documents, None, Split.train, config)
    for batch in DataLoader(dataset, batch_size=BATCH, drop_last=True):
        yield batch["tokens"]


class _Tokenizer:
    """What GPTDataset asks of a tokenizer."""

    vocab_size, eod, pad, unique_identifiers = 50_000, 0, -1, {"class": "none"}


CONTESTANTS = {
    "ours": ours,
    "ours-loader": ours_loader,
    "numpy-gather": numpy_gather,
    "numpy-rows": numpy_rows,
    "megatron": megatron,
}

if __name__ == "__main__":
    serve(lambda: CONTESTANTS[sys.argv[1]](Path(sys.argv[2])))
