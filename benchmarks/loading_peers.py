"""litdata and mosaicml-streaming in `loading.py`: `python loading_peers.py NAME FOLDER`.

They have an environment of their own, for they want another NumPy than we do. Each first writes the tokens of
FOLDER/shard-00000.bin in its own format.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from turns import serve

SEQUENCE_LENGTH, BATCH, CHUNK_WINDOWS = 2048, 8, 16_384


def _windows(folder: Path) -> np.ndarray[Any, Any]:
    tokens = np.fromfile(folder / "shard-00000.bin", np.uint16)
    return tokens[: tokens.size // (SEQUENCE_LENGTH + 1) * (SEQUENCE_LENGTH + 1)].reshape(-1, SEQUENCE_LENGTH + 1)


def _litdata(folder: Path) -> Any:
    """Its dataset for tokens, in chunks of 64 MB, as its documentation makes them; one of uint16 tensors."""
    from litdata import StreamingDataset, TokensLoader
    from litdata.streaming.cache import Cache

    out = folder / "litdata"
    if not out.exists():
        cache = Cache(
            str(out), chunk_size=CHUNK_WINDOWS * (SEQUENCE_LENGTH + 1), item_loader=TokensLoader(SEQUENCE_LENGTH + 1)
        )
        for number, window in enumerate(_windows(folder)):
            cache[number] = torch.from_numpy(window)
        cache.done()
        cache.merge()
    return StreamingDataset(str(out), item_loader=TokensLoader(SEQUENCE_LENGTH + 1), shuffle=True, drop_last=True)


def litdata(folder: Path) -> Iterator[Any]:
    """Its dataset iterated in this process, stacked by hand: the fastest way there is."""
    items = []
    for item in _litdata(folder):
        items.append(item)
        if len(items) == BATCH:
            yield torch.stack(items).long()
            items = []


def litdata_loader(folder: Path) -> Iterator[Any]:
    """Its DataLoader with one worker process, as its users have it."""
    from litdata import StreamingDataLoader

    for batch in StreamingDataLoader(_litdata(folder), batch_size=BATCH, num_workers=1):
        yield batch.long()


def mosaicml(folder: Path) -> Iterator[Any]:
    """Its dataset through a PyTorch DataLoader without worker processes."""
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    out = folder / "mosaicml"
    if not out.exists():
        with MDSWriter(out=str(out), columns={"tokens": f"ndarray:uint16:{SEQUENCE_LENGTH + 1}"}) as writer:
            for window in _windows(folder):
                writer.write({"tokens": window})
    dataset = StreamingDataset(local=str(out), shuffle=True, batch_size=BATCH)
    for batch in DataLoader(dataset, batch_size=BATCH, drop_last=True):
        yield batch["tokens"].long()


CONTESTANTS = {"litdata": litdata, "litdata-loader": litdata_loader, "mosaicml": mosaicml}

if __name__ == "__main__":
    serve(lambda: CONTESTANTS[sys.argv[1]](Path(sys.argv[2])))
