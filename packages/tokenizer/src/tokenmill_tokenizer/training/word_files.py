"""Word counts on disk, between the tasks that count and the one that learns: Arrow files of `word` and `count`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill_core.storage import HashingWriter
from tokenmill_tokenizer.training.symbols import Words

_SCHEMA = pa.schema([pa.field("word", pa.large_binary(), False), pa.field("count", pa.int64(), False)])


def write_words(path: Path, words: Words) -> None:
    """Write a file; it takes its name when it is whole."""
    buffers = [None, pa.py_buffer(words.offsets), pa.py_buffer(words.data)]
    column = pa.Array.from_buffers(pa.large_binary(), len(words.counts), buffers)
    batch = pa.record_batch([column, pa.array(words.counts)], schema=_SCHEMA)
    with HashingWriter(path) as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(batch)


def read_words(path: Path) -> Words:
    """The words of a file, on the file itself: nothing is copied."""
    with pa.memory_map(str(path)) as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    _, offsets, data = batch.column("word").buffers()
    return Words(
        data=np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8),
        offsets=np.frombuffer(offsets, np.int64)[: len(batch) + 1],
        counts=np.asarray(batch.column("count")),
    )


def word_files(folder: Path, task: int) -> Sequence[Path]:
    """The files of a counting task, in order."""
    return sorted(folder.glob(f"words-{task:06d}-*.arrow"))


def word_file(folder: Path, task: int, part: int) -> Path:
    """Where a part of a task's counts lies."""
    return folder / f"words-{task:06d}-{part:06d}.arrow"
