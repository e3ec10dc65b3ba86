"""`prep tokenize` beside gigatoken, Megatron's loop and datatrove: `python benchmarks/tokenizer_encode.py FILE...`.

FILE is Parquet or JSON Lines with a column `text`; source code comes on top. All sides have two processes or threads
and the same 32k tokenizer, trained here.

- ours: the whole command, from compressed JSON Lines to shards and a manifest with checksums, its start included;
- gigatoken: its encoder alone on the same texts, in memory, fresh, on two threads; nothing is read or written;
- megatron: the loop of its `preprocess_data`, two processes with `tokenizers`, into its own index files, on a share;
- datatrove: its reader and `DocumentTokenizer`, two tasks in two processes, on a share.

Rates are bytes of text by the clock, the best of several rounds taken in turn. For the share of each part of ours, one
process is looked at from inside. Prints and keeps in benchmarks/results/.
"""

import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from corpus_text import megabytes
from tokenizer_text import Run, gather, run, write_files

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_shards.writing import encoded, shard_files, tokenize
from tokenmill_tokenizer import Encoder

ROUNDS = 3
SHARE = 12
"""The slow sides get one text of so many."""
GIGATOKEN = """
import sys, time
from pathlib import Path
import gigatoken, orjson, zstandard
texts = []
for path in sys.argv[2].split(","):
    data = zstandard.ZstdDecompressor().stream_reader(open(path, "rb")).read()
    texts += [orjson.loads(line)["text"].encode() for line in data.splitlines()]
tokenizer = gigatoken.Tokenizer(sys.argv[1])
started = time.perf_counter()
tokenizer.encode_batch(gigatoken.BytesSource(texts), parallel=True)
Path(sys.argv[3]).write_text(str(time.perf_counter() - started))
"""
MEGATRON = """
import multiprocessing, sys, time
from pathlib import Path
import numpy, orjson, tokenizers
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

def start(path):
    global tokenizer
    tokenizer = tokenizers.Tokenizer.from_file(path)

def encode(line):
    text = orjson.loads(line)["text"]
    return tokenizer.encode(text).ids + [0], len(line)

if __name__ == "__main__":
    started = time.perf_counter()
    builder = IndexedDatasetBuilder(sys.argv[3] + ".bin", dtype=numpy.uint16)
    with multiprocessing.Pool(2, start, [sys.argv[1]]) as pool:
        for path in sys.argv[2].split(","):
            with open(path, "rb") as file:
                for ids, _ in pool.imap(encode, file, 32):
                    builder.add_document(ids, [len(ids)])
    builder.finalize(sys.argv[3] + ".idx")
    Path(sys.argv[3]).write_text(str(time.perf_counter() - started))
"""
DATATROVE = """
import sys, time
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.utils.logging import logger
logger.remove()
if __name__ == "__main__":
    started = time.perf_counter()
    steps = [JsonlReader(sys.argv[2]), DocumentTokenizer(sys.argv[3] + "-tokens", tokenizer_name_or_path=sys.argv[1],
             eos_token="<|endoftext|>", shuffle_documents=False)]
    LocalPipelineExecutor(steps, tasks=2, workers=2, logging_dir=sys.argv[3] + "-logs").run()
    Path(sys.argv[3]).write_text(str(time.perf_counter() - started))
"""


def time_peer(code: str, tokenizer: Path, texts: str, out: Path, **environment: str) -> float:
    """Seconds that a peer says it took, in a process of its own."""
    script = out.with_suffix(".py")
    script.write_text(code)
    run([sys.executable, str(script), str(tokenizer), texts, str(out)], **environment)
    return float(out.read_text())


def prep(*arguments: str) -> Run:
    """A `prep` command, from start to end."""
    return run([str(Path(sys.executable).with_name("prep")), *arguments])


def where_time_goes(tokenizer: Path, paths: Iterable[Path], out: Path) -> dict[str, float]:
    """Seconds of the processor that each part of the stage takes, in one process, without its start."""
    spent: Counter[str] = Counter()

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments)
            finally:
                spent[name] += time.process_time() - started

        return call

    def timed_batches(batches: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def call(*arguments: Any) -> Iterator[Any]:
            step = timed("read", iter(batches(*arguments)).__next__)
            while True:
                try:
                    batch = step()
                except StopIteration:
                    return
                yield batch

        return call

    parts = {
        "encode": (Encoder, "encode"),
        "prove": (Encoder, "prove_on"),
        "open tokenizer": (Encoder, "__init__"),
        "boundaries": (encoded.Boundaries, "surround"),
        "write, hash, check": (shard_files.ShardSeries, "append"),
        "whole": (tokenize.TokenizeStage, "run"),
    }
    originals = {(owner, name): getattr(owner, name) for owner, name in parts.values()}
    read_task = tokenize.read_task
    try:
        for part, (owner, name) in parts.items():
            setattr(owner, name, timed(part, getattr(owner, name)))
        tokenize.read_task = timed_batches(read_task)
        config = tokenize.TokenizeConfig(tokenizer=str(tokenizer))
        build_stage(tokenize.STAGE.build(config, [*map(str, paths)], None), str(out), LocalExecutor(1))
    finally:
        tokenize.read_task = read_task
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
    rest = spent["whole"] - sum(seconds for part, seconds in spent.items() if part != "whole")
    return {part: round(seconds, 2) for part, seconds in [*spent.items(), ("rest", rest)]}


def main() -> None:
    """Measure all sides in turn, several times over, and keep each side's best."""
    texts = gather(sys.argv[1:])
    size = megabytes(texts)
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", "gigatoken", "megatron", "datatrove")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = write_files(texts, folder)
        (folder / "share").mkdir()
        shared = texts[::SHARE]
        plain = write_files(shared, folder / "share", compress=False)
        prep("train-tokenizer", *map(str, paths), "--split", "gpt2", "--vocab-size", "32000", "--out", f"{folder}/bpe")
        tokenizer = folder / "bpe" / "tokenizer.json"
        command = ["tokenize", *map(str, paths), "--tokenizer", f"{folder}/bpe", "--workers", "2", "--force"]
        prep(*command, "--out", f"{folder}/warm")  # compiles, once for each machine
        for _ in range(ROUNDS):
            seconds["ours"].append(prep(*command, "--out", f"{folder}/ours").seconds)
            everything, share = ",".join(map(str, paths)), ",".join(map(str, plain))
            seconds["gigatoken"].append(time_peer(GIGATOKEN, tokenizer, everything, folder / "of-gigatoken"))
        quiet = {"TOKENIZERS_PARALLELISM": "false"}
        seconds["megatron"].append(time_peer(MEGATRON, tokenizer, share, folder / "of-megatron", **quiet))
        seconds["datatrove"].append(
            time_peer(DATATROVE, tokenizer, f"{folder}/share", folder / "of-datatrove", **quiet)
        )
        parts = where_time_goes(folder / "bpe", paths, folder / "parts")
    sizes = {"ours": size, "gigatoken": size, "megatron": megabytes(shared), "datatrove": megabytes(shared)}
    rates = {name: sizes[name] / min(of) for name, of in seconds.items()}
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("gigatoken", "tokenizers", "megatron-core", "datatrove")},
        "megabytes": round(size, 1),
        "MB/s": {name: round(rate, 2) for name, rate in rates.items()},
        "ours, times as fast as": {name: round(rates["ours"] / rates[name], 2) for name in rates if name != "ours"},
        "where our time goes, s of one process": parts,
    }
    target = Path(__file__).parent / "results" / "tokenizer_encode.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
