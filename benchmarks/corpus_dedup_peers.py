"""Deduplication from Parquet to Parquet by us, by datatrove and by rensa, each as its users would run it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import rensa
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_corpus import STAGE, CleanConfig

NUM_BANDS, ROWS_PER_BAND, NGRAM = 14, 8, 5
"""FineWeb's, and so those of both peers."""


def words_shingles(text: str) -> set[str]:
    """Runs of words, as a user of rensa would make them."""
    words = text.lower().split()
    return {" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}


def write_texts(texts: Sequence[str], path: Path) -> None:
    """Write the texts as Parquet, with their numbers as ids."""
    path.parent.mkdir(exist_ok=True)
    ids = pa.array([str(i) for i in range(len(texts))])
    table = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
    pq.write_table(table, path, compression="zstd", row_group_size=2000)


def run_ours(path: Path, out: Path, **minhash: Any) -> Path:
    """Our `clean` stage: no filter, exact and near-duplicates by default settings, zstd at the level of the peers."""
    shutil.rmtree(out, ignore_errors=True)
    settings = {"profile": "none", "compression_level": 1, "dedup": {"minhash": {"enabled": True, **minhash}}}
    config = CleanConfig.model_validate(settings)
    build_stage(STAGE.build(config, [str(path)], None), str(out), LocalExecutor(1))
    return out


def datatrove_config() -> MinhashConfig:
    """The configuration of FineWeb."""
    return MinhashConfig(n_grams=NGRAM, num_buckets=NUM_BANDS, hashes_per_bucket=ROWS_PER_BAND)


def run_datatrove(folder: Path, out: Path) -> Path:
    """The four steps of datatrove."""
    shutil.rmtree(out, ignore_errors=True)
    config, work = datatrove_config(), [str(out / step) for step in ("signatures", "buckets", "ids")]
    reader, writer = ParquetReader(str(folder)), ParquetWriter(str(out / "kept"), compression="zstd")
    steps = [
        ([reader, MinhashDedupSignature(work[0], config)], 1),
        ([MinhashDedupBuckets(work[0], work[1], config=config)], NUM_BANDS),
        ([MinhashDedupCluster(work[1], work[2], config=config)], 1),
        ([reader, MinhashDedupFilter(work[2]), writer], 1),
    ]
    for number, (pipeline, tasks) in enumerate(steps):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(out / f"log{number}")).run()
    return out / "kept"


def run_rensa(path: Path, out: Path) -> Path:
    """Shingles, RMinHash, RMinHashLSH: a document stays if the index has nothing like it yet."""
    lsh = rensa.RMinHashLSH(0.75, NUM_BANDS * ROWS_PER_BAND, NUM_BANDS)
    table = pq.read_table(path)
    keep = []
    for start in range(0, table.num_rows, 1000):
        texts = table["text"].slice(start, 1000).to_pylist()
        sketches = rensa.RMinHash.from_token_sets(map(words_shingles, texts), NUM_BANDS * ROWS_PER_BAND, 42)
        for number, sketch in enumerate(sketches, start):
            keep.append(not lsh.query(sketch))
            if keep[-1]:
                lsh.insert(number, sketch)
    pq.write_table(table.filter(pa.array(keep)), out, compression="zstd")
    return out
