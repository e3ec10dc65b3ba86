"""Loading beside a bare NumPy gather, litdata, Megatron and mosaicml-streaming: `make bench`.

    order      samples a second of the order's arithmetic alone
    windows    shuffled windows of 2048 from 200M tokens, one process, batches of 8, int64: by us and by each peer in
               turn, each in a process of its own with one thread; the peers of `--peers PYTHON` in that environment
    waiting    how much of its time a training loop waits for its batch while a thread reads ahead

Prints, and keeps in benchmarks/results/ with date and machine.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from loading_contestants import BATCH, CONTESTANTS, SEQUENCE_LENGTH, open_ours
from loading_data import make_mixture
from turns import summary, take_turns

from tokenmill_shards import SampleOrder
from tokenmill_trainer.batches.data import GlobalBatches, RankSamples

NUM_TOKENS, ROUNDS, STEPS = 200_000_000, 20, 200
PEERS = ("litdata", "litdata-loader", "mosaicml")
HERE = Path(__file__).parent


def bench_order(num_sources: int) -> float:
    """Samples a second, at best, of a mixture of so many sources with uneven weights."""
    order, size = SampleOrder(list(range(1, num_sources + 1))), 1 << 18
    order.locate(np.arange(size))  # compiles
    seconds = []
    for number in range(1, ROUNDS + 1):
        started = time.perf_counter()
        order.locate(np.arange(number * size, (number + 1) * size))
        seconds.append(time.perf_counter() - started)
    return size / min(seconds)


def bench_windows(folder: Path, peers: str | None) -> dict[str, dict[str, float]]:
    """Samples a second of everybody, and how many times theirs ours is."""
    commands = {name: [sys.executable, str(HERE / "loading_contestants.py"), name, str(folder)] for name in CONTESTANTS}
    for name in PEERS if peers else ():
        commands[name] = [str(peers), str(HERE / "loading_peers.py"), name, str(folder)]
    return summary(take_turns(commands, ROUNDS), "ours")


def bench_waiting(folder: Path, step_seconds: float, batch_size: int) -> dict[str, float]:
    """Share of a loop's time that it waits for batches of `batch_size`: by threads that read ahead, none or one.

    A step sleeps, as a host does while an accelerator computes.
    """
    reader = open_ours(folder)
    waited = {}
    for num_workers in (0, 1):
        batches = GlobalBatches(reader, batch_size, num_workers=num_workers).iterate(0, STEPS)
        next(batches)  # starts the thread
        waited[f"{num_workers}_threads"] = _waiting_share(batches, step_seconds)
    return waited


def _waiting_share(batches: Iterator[RankSamples], step_seconds: float) -> float:
    waiting, started = 0.0, time.perf_counter()
    time.sleep(step_seconds)
    while True:
        asked = time.perf_counter()
        if next(batches, None) is None:
            return waiting / (time.perf_counter() - started)
        waiting += time.perf_counter() - asked
        time.sleep(step_seconds)


def run(peers: str | None) -> dict[str, Any]:
    """All three."""
    results: dict[str, Any] = {
        f"order of {number} sources (samples/s)": bench_order(number) for number in (10, 100, 1000)
    }
    with tempfile.TemporaryDirectory() as name:
        make_mixture(Path(name), NUM_TOKENS)
        results[f"windows of {SEQUENCE_LENGTH}, batches of {BATCH} (samples/s)"] = bench_windows(Path(name), peers)
        for step, batch in ((0.002, 8), (0.005, 8), (0.005, 64)):
            what = f"waiting share, steps of {step * 1000:.0f} ms, batches of {batch}"
            results[what] = bench_waiting(Path(name), step, batch)
    return results


def main(arguments: Sequence[str]) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="Loading beside peers.")
    parser.add_argument("--peers", help="Python of an environment with benchmarks/requirements-loading.txt.")
    results = run(parser.parse_args(arguments).peers)
    print(json.dumps(results, indent=2))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = HERE / "results" / "loading.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
