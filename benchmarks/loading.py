"""Order arithmetic and window reads, beside a bare NumPy gather of the same windows: `make bench`.

Prints rates and their ratio, measured in turn in one process, and keeps the result with its date and machine in
benchmarks/results/.
"""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenmill_core.manifest import MixtureManifest, MixtureSource, StageRef, TokensManifest
from tokenmill_core.manifest_io import input_ref, publish
from tokenmill_shards import MixtureReader, SampleOrder, ShardWriter

NUM_TOKENS, SEQUENCE_LENGTH, ROUNDS, SECONDS = 50_000_000, 2048, 5, 0.5


def make_mixture(folder: Path) -> str:
    """A mixture of one source of random tokens."""
    with ShardWriter(folder / "shard-00000", np.uint16, 50_000) as writer:
        writer.append(np.random.default_rng(0).integers(0, 50_000, NUM_TOKENS), np.array([NUM_TOKENS]))
    common = {"config": {}, "vocab_size": 50_000, "tokenizer_sha256": "0" * 64}
    tokens = publish(
        TokensManifest(
            **common,
            name="random",
            stage=StageRef(name="bench", version=1),
            files=tuple(writer.files),
            dtype="uint16",
            end_of_document_id=None,
            shards=("shard-00000",),
        ),
        str(folder),
    )
    mixture = MixtureManifest(
        **common,
        name="random",
        stage=StageRef(name="bench", version=1),
        inputs=(input_ref(tokens, str(folder)),),
        sources=(MixtureSource(name="random", input=0, weight=1, documents=1, tokens=NUM_TOKENS),),
        denominator=1,
        seed=0,
        end_of_document_id=None,
    )
    return publish(mixture, str(folder), "mixture.json").url


def rate(action: Callable[[int], int]) -> float:
    """Items a second of `action(round)`, which returns how many it did."""
    done, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        done += action(done)
    return done / seconds


def compare(ours: Callable[[int], int], theirs: Callable[[int], int]) -> dict[str, float]:
    """Median rates of both, taken in turn, and the median of their ratios."""
    pairs = [(rate(ours), rate(theirs)) for _ in range(ROUNDS)]
    return {
        "ours_per_second": statistics.median(a for a, _ in pairs),
        "baseline_per_second": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
    }


def bench_windows(folder: Path, batch: int) -> dict[str, float]:
    """Windows in shuffled order through the reader, and by indexing a memory map with the same starts."""
    reader = MixtureReader.open(make_mixture(folder), SEQUENCE_LENGTH, verify="sizes")
    tokens = np.memmap(folder / "shard-00000.bin", np.uint16, "r")
    starts = reader.locate(np.arange(reader.splits[0].num_training)).window * SEQUENCE_LENGTH
    span = np.arange(SEQUENCE_LENGTH + 1)

    def ours(done: int) -> int:
        return len(reader.windows(np.arange(done, done + batch)))

    def gather(done: int) -> int:
        chosen = starts[np.arange(done, done + batch) % starts.size]
        return len(tokens[chosen[:, None] + span].astype(np.int32))

    ours(0)
    return compare(ours, gather)


def bench_order(num_sources: int) -> dict[str, float]:
    """Samples a second of the order alone."""
    order = SampleOrder(list(range(1, num_sources + 1)))

    def ours(done: int) -> int:
        return order.locate(np.arange(done, done + 65_536))[0].size

    ours(0)
    return {"ours_per_second": statistics.median(rate(ours) for _ in range(ROUNDS))}


def main() -> None:
    """Measure, print, keep."""
    results = {f"order, {n} sources (samples/s)": bench_order(n) for n in (10, 1000)}
    for batch in (8, 256):
        with tempfile.TemporaryDirectory() as folder:
            name = f"windows of {SEQUENCE_LENGTH}, batches of {batch}, beside numpy (samples/s)"
            results[name] = bench_windows(Path(folder), batch)
    for name, values in results.items():
        print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in values.items()))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).parent / "results" / "loading.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
