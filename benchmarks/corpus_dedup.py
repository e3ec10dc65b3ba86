"""Deduplication beside datatrove and rensa, on one core and the same text: `python benchmarks/corpus_dedup.py FILE...`.

    signatures   text ─▶ MinHash signatures of 112 permutations over runs of 5 words
    pipeline     Parquet ─▶ exact and near-duplicates out ─▶ Parquet
    quality      recall and precision on planted near-duplicates, the truth by plain Python over all pairs

FILE is Parquet or JSON Lines with a column `text`; the standard library's source comes on top. datatrove is slow, so it
has a share of the documents. A rate is per core: bytes of text by the time of the processor that the process took, all
its threads together, so that other work on the machine does not count. Prints, and keeps in benchmarks/results/.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import rensa
from corpus_dedup_peers import (
    NUM_BANDS,
    ROWS_PER_BAND,
    datatrove_config,
    run_datatrove,
    run_ours,
    run_rensa,
    words_shingles,
    write_texts,
)
from corpus_text import best, load_texts, megabytes
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.utils.logging import logger
from planted_duplicates import all_similar_pairs, plain_shingles, plant, quality

from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_corpus.dedup.minhash import band_keys
from tokenmill_corpus.dedup.settings import MinHash

DATATROVE_SHARE = 20
"""datatrove has every 20th document."""
FIRST_RUN = """
import sys, time
from pathlib import Path
from corpus_dedup_peers import run_ours, write_texts
folder = Path(sys.argv[1])
write_texts(["near " * 9 + "duplicates", "near " * 8 + "duplicates"] * 2, folder / "texts.parquet")
started = time.process_time()
run_ours(folder / "texts.parquet", folder / "out")
print(time.process_time() - started)
"""


def bench_signatures(texts: Sequence[str]) -> dict[str, float]:
    """Rates of signatures alone, in MB/s."""
    buffers = text_buffers(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))
    settings = MinHash(num_bands=NUM_BANDS, rows_per_band=ROWS_PER_BAND)
    band_keys(settings, buffers)
    ours = megabytes(texts) / best(lambda: band_keys(settings, buffers))
    some = texts[::DATATROVE_SHARE]

    def with_rensa() -> None:
        rensa.RMinHash.from_token_sets((words_shingles(text) for text in some), NUM_BANDS * ROWS_PER_BAND, 42)

    step = MinhashDedupSignature("unused", datatrove_config())

    def with_datatrove() -> None:
        for text in some:
            if len(shingles := step.get_shingles(text)):
                step.get_signature(shingles)

    return compared(ours, megabytes(some) / best(with_datatrove), megabytes(some) / best(with_rensa))


def compared(ours: float, datatrove: float, rensa_: float) -> dict[str, float]:
    """Rates in MB/s and their ratios."""
    return {
        "ours": ours,
        "datatrove": datatrove,
        "rensa": rensa_,
        "ours_to_datatrove": ours / datatrove,
        "ours_to_rensa": ours / rensa_,
    }


def bench_pipeline(texts: Sequence[str]) -> dict[str, float]:
    """Rates of the whole way from Parquet to Parquet, in MB/s."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, some = folder / "whole.parquet", folder / "some" / "some.parquet"
        write_texts(texts, whole)
        write_texts(texts[::DATATROVE_SHARE], some)
        ours = megabytes(texts) / best(lambda: run_ours(whole, folder / "ours"))
        slow = megabytes(texts[::DATATROVE_SHARE]) / best(lambda: run_datatrove(some.parent, folder / "datatrove"))
        fast = megabytes(texts) / best(lambda: run_rensa(whole, folder / "rensa.parquet"))
    return compared(ours, slow, fast)


def bench_quality(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Recall and precision of all three on the same planted near-duplicates: see `quality`."""
    planted = plant(texts)
    similar = all_similar_pairs([plain_shingles(text) for text in planted], 0.7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "planted" / "planted.parquet"
        write_texts(planted, path)
        kept = {
            "ours": ids_in(run_ours(path, folder / "ours")),
            "ours, 14 x 8": ids_in(
                run_ours(path, folder / "ours-14-8", num_bands=NUM_BANDS, rows_per_band=ROWS_PER_BAND)
            ),
            "datatrove": ids_in(run_datatrove(path.parent, folder / "datatrove")),
            "rensa": ids_in(run_rensa(path, folder / "rensa.parquet")),
        }
    return {tool: quality(ids, similar, len(planted)) for tool, ids in kept.items()}


def ids_in(path: Path) -> set[int]:
    """The numbers of the documents that stay."""
    files = [path] if path.is_file() else path.rglob("*.parquet")
    return {int(number) for file in files for number in pq.read_table(file, columns=["id"])["id"].to_pylist()}


def bench_compilation() -> dict[str, float]:
    """Seconds of a run over four short documents: in the first process ever, and in the next one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(Path(__file__).parent)}
        command = [sys.executable, "-c", FIRST_RUN, folder]
        cold, warm = (float(subprocess.check_output(command, env=environment)) for _ in range(2))
    return {"compiled": cold, "from the cache": warm}


def run(paths: Sequence[str]) -> dict[str, Any]:
    """All three, with what they were run on."""
    logger.disable("datatrove")
    texts = [text for text in dict.fromkeys(load_texts(paths)) if text.strip()]
    return {
        "corpus": {"megabytes": megabytes(texts), "documents": len(texts)},
        "signatures (MB/s)": bench_signatures(texts),
        "pipeline (MB/s)": bench_pipeline(texts),
        "planted near-duplicates": bench_quality(texts),
        "first run (s)": bench_compilation(),
    }


def main() -> None:
    """Measure, print, keep."""
    results = run(sys.argv[1:])
    print(json.dumps(results, indent=2))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).parent / "results" / "corpus_dedup.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
