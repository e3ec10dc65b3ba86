"""A training step beside a plain loop over the Llamas of `transformers`, torchtitan and litgpt: `make bench-trainer`.

    eager, compiled   tokens a second of forward, backward, clip and AdamW: by us and by each peer in turn, each in a
                      process of its own, with the same weights and batches; the peers of `--peers PYTHON` in that
                      environment
    matmul            the machine's own speed at matrix products, with the same threads, in the same turns

A step's FLOPs are those of `flops_per_token` for everybody. Prints the ratio of medians, and keeps it in
benchmarks/results/ with date and machine.
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trainer_loop import Job
from turns import take_turns

from tokenmill_trainer.model import ModelConfig, build_on_meta
from tokenmill_trainer.model.flops import flops_per_token
from tokenmill_trainer.model.init import initial_weight

HERE = Path(__file__).parent
HERE_PEERS, OTHER_PEERS = ("ours", "transformers", "matmul"), ("torchtitan", "litgpt")
TOKENS, BATCHES, SEED = 2048, 4, 0
SHAPES = {
    "30M": {
        "vocab_size": 16_384,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_layers": 10,
        "num_heads": 6,
        "num_kv_heads": 6,
    },
    "120M": {
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_layers": 11,
        "num_heads": 12,
        "num_kv_heads": 4,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
}
"""Parameters: 30,285,696; 118,375,680; the last is to try the benchmark itself."""
LOSSES_AGREE = {"fp32": 2e-5, "bf16": 2e-3}
"""Relative difference of the first step's losses that still is the same work."""


def prepare(job: Job) -> None:
    """Write what every contestant reads: the job, start weights and batches."""
    config = ModelConfig.model_validate(job.shape)
    shapes = {name: parameter.shape for name, parameter in build_on_meta(config).named_parameters()}
    torch.save(
        {name: initial_weight(config, SEED, name, shape) for name, shape in shapes.items()}, job.folder / "weights.pt"
    )
    generator = torch.Generator().manual_seed(SEED)
    size = (BATCHES, job.rows, job.length + 1)
    torch.save(torch.randint(0, config.vocabulary, size, generator=generator), job.folder / "tokens.pt")
    settings = {name: value for name, value in dataclasses.asdict(job).items() if name != "folder"}
    (job.folder / "job.json").write_text(json.dumps(settings))


def measure(job: Job, peers: str | None, rounds: int) -> dict[str, Any]:
    """Rates of all contestants, and how many times theirs ours is."""
    prepare(job)
    commands = {name: [sys.executable, str(HERE / "trainer_contestants.py"), name] for name in HERE_PEERS}
    commands["ours"] = ["env", "OMP_WAIT_POLICY=PASSIVE", *commands["ours"]]  # as `pretrain` has it
    for name in OTHER_PEERS if peers else ():
        commands[name] = [str(peers), str(HERE / "trainer_peers.py"), name]
    rates = take_turns({name: [*command, str(job.folder)] for name, command in commands.items()}, rounds)
    check_losses(job)
    return summary(job, rates)


def check_losses(job: Job) -> None:
    """The same weights and batch give everybody the same loss, or they do not do the same work."""
    losses = {path.stem: float(path.read_text()) for path in sorted(job.folder.glob("*.loss"))}
    apart = {
        name: loss for name, loss in losses.items() if abs(loss / losses["ours"] - 1) > LOSSES_AGREE[job.precision]
    }
    if apart:
        raise SystemExit(f"first losses differ: ours {losses['ours']}, {apart}")


def summary(job: Job, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Median and range of each one's rates; of ours also the share of the matrix products' speed."""
    median = {name: statistics.median(own) for name, own in rates.items()}
    flops = flops_per_token(ModelConfig.model_validate(job.shape), job.length)
    result: dict[str, Any] = {
        name: {
            "tokens_per_second": round(median[name]),
            "range": [round(min(own)), round(max(own))],
            "ours_over_it": round(median["ours"] / median[name], 3),
        }
        for name, own in rates.items()
        if name != "matmul"
    }
    result["matmul_gflops"] = round(median["matmul"] / 1e9, 1)
    result["ours_of_matmul"] = round(median["ours"] * flops / median["matmul"], 3)
    return result


def keep(path: Path, results: Mapping[str, Any]) -> None:
    """Write `results` with date and machine."""
    machine = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    path.write_text(json.dumps({**machine, **results}, indent=2) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="Training steps beside peers.")
    parser.add_argument("--peers", help="Python of an environment with benchmarks/requirements-trainer.txt.")
    parser.add_argument("--rounds", type=int, default=9, help="Turns of each contestant.")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="Threads of each contestant.")
    parser.add_argument("--shapes", nargs="+", default=["30M", "120M"], choices=SHAPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=LOSSES_AGREE)
    parser.add_argument("--modes", nargs="+", default=["eager", "compiled"], choices=["eager", "compiled"])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "trainer.json")
    given = parser.parse_args(arguments)
    results = {}
    for shape in given.shapes:
        for length, precision, mode in (
            (length, precision, mode)
            for length in given.lengths
            for precision in given.precisions
            for mode in given.modes
        ):
            with tempfile.TemporaryDirectory() as name:
                job = Job(
                    Path(name), SHAPES[shape], length, TOKENS // length, precision, mode == "compiled", given.threads
                )
                what = f"{shape}, {length} tokens, {precision}, {mode}"
                results[what] = measure(job, given.peers, given.rounds)
                print(what, json.dumps(results[what], indent=2), flush=True)
    keep(given.out, {"threads": given.threads, "results": results})


if __name__ == "__main__":
    main(sys.argv[1:])
