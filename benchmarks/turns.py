"""Contestants that take turns: each is a process that reads batches for a while whenever it is told to.

So they share the machine's minutes, fast or slow, and none meets another's threads or imports.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

SECONDS = 0.3
"""One turn: short, so that among many some meet no other work on the machine."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def serve(batches: Callable[[], Iterator[Sequence[Any]]]) -> None:
    """In a contestant: at each line of standard input, read batches for a turn and print samples a second.

    A contestant whose `batches` end goes through them again: what that costs is part of its rate.
    """
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print
    stream = _endless(batches)
    next(stream)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        done, started = 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < SECONDS:
            done += len(next(stream))
        print(done / seconds, file=answers, flush=True)


def _endless(batches: Callable[[], Iterator[Sequence[Any]]]) -> Iterator[Sequence[Any]]:
    while True:
        yield from batches()


def take_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """Samples a second of each contestant in each round; `commands` start them."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name, command in commands.items():
            running[name] = stack.enter_context(_started(command))
            _answer(name, running[name])  # one after another: two may share files that the first one makes
        rates: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(rounds):
            for name, process in running.items():
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                rates[name].append(float(_answer(name, process)))
        return rates


@contextlib.contextmanager
def _started(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, **ONE_THREAD}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _answer(name: str, process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{name} ended with code {process.wait()}; run its command by hand to see why")
    return line


def summary(rates: Mapping[str, Sequence[float]], ours: str) -> dict[str, dict[str, float]]:
    """The best rate of each contestant, and how many times that is the best of `ours`."""
    best = {name: max(own) for name, own in rates.items()}
    return {name: {"per_second": rate, "ours_over_it": best[ours] / rate} for name, rate in best.items()}
