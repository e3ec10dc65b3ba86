"""The text that benchmarks of the corpus package run on, and how they take time."""

import json
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_core.documents import MAX_BATCH_BYTES


def load_texts(paths: Sequence[str]) -> list[str]:
    """The texts of all files (Parquet or JSON Lines, column `text`) and the standard library's source files."""
    texts: list[str] = []
    for path in paths:
        if path.endswith(".parquet"):
            texts += pq.read_table(path, columns=["text"])["text"].to_pylist()
        else:
            with pa.input_stream(path, compression="detect") as file:
                texts += [json.loads(line)["text"] for line in file.read().splitlines()]
    for source in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in source.parts:
            texts.append(source.read_text(errors="replace"))
    return texts


def megabytes(texts: Sequence[str]) -> float:
    """Size of the texts in UTF-8, in 10^6 bytes."""
    return sum(len(text.encode()) for text in texts) / 1e6


def batches(texts: Sequence[str], target_bytes: int = MAX_BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The texts as record batches of about this size."""
    start, size = 0, 0
    for end, text in enumerate(texts, 1):
        size += len(text.encode())
        if size >= target_bytes or end == len(texts):
            yield pa.RecordBatch.from_arrays([pa.array(texts[start:end], pa.large_string())], names=["text"])
            start, size = end, 0


def best(action: Callable[[], Any], rounds: int = 3) -> float:
    """Seconds of the processor that `action` takes, in all threads together, the best of several."""
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        action()
        seconds.append(time.process_time() - started)
    return min(seconds)
