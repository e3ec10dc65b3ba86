"""1B and 8B Llamas on GPUs, bf16 over fp32 masters: tokens a second, model-FLOPs utilisation, peak memory.

    python benchmarks/trainer_gpu.py                                        one GPU
    torchrun --standalone --nproc-per-node 8 benchmarks/trainer_gpu.py      all of a node

Masters, gradients and both moments are fp32, 16 bytes a parameter shared out over the GPUs, and each has 2 more for the
bf16 copy: 145 GB for 8B on one GPU, which none of 141 GB holds. There as many layers are trained as fit, at the full
width, and the table says how many: utilisation is a matter of the width, and hardly of the depth. FLOPs are the
model's: causal attention once, nothing recomputed.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tokenmill_core.errors import TokenmillError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import RankSamples
from tokenmill_trainer.model import ModelConfig, build_on_meta
from tokenmill_trainer.model.decoder import num_parameters
from tokenmill_trainer.model.flops import flops_per_token

PEAK_FLOPS = 989.4e12
"""Dense bf16 of an H100 or H200 (SXM), the vendor's figure."""
PRESETS, LENGTH = ("llama-3.2-1b", "llama-3.1-8b"), 4096
SHARED_BYTES, OWN_BYTES = 16, 2
"""A parameter: fp32 master, gradient, two moments; and the bf16 copy."""
ACTIVATION_BYTES = 60
"""A token, layer and hidden unit, without recomputing: an upper estimate for Llamas whose feed-forward is 4 wide."""
USABLE = 0.9
"""Share of a GPU's memory to plan with."""
WARM_UP, MEASURED = 3, 5
MICRO_BATCHES = 8
"""A step: so that the optimizer has the share of it that it has in pretraining."""
TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
}


@dataclass(frozen=True)
class Plan:
    """What of a model is trained here."""

    name: str
    model: ModelConfig
    all_layers: int
    length: int
    micro_batch_size: int

    @property
    def title(self) -> str:
        """Name, and how many of its layers where not all fit."""
        layers = self.model.num_layers
        return self.name if layers == self.all_layers else f"{self.name}, {layers} of {self.all_layers} layers"


@dataclass(frozen=True)
class RandomTokens:
    """This rank's part of global batches of random ids."""

    vocabulary: int
    length: int
    share: int
    world_size: int

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """The steps; every rank draws its own ids."""
        for step in range(num_steps):
            tokens = torch.randint(0, self.vocabulary, (self.share, self.length + 1))
            first = consumed_samples + step * self.share * self.world_size
            yield RankSamples(first, tokens[:, :-1], tokens[:, 1:])


def plan(name: str, settings: dict[str, Any], length: int, memory: float, world_size: int) -> Plan:
    """As many layers as `memory` bytes a GPU hold, then as large a micro-batch."""
    whole = ModelConfig.model_validate(settings)
    for layers in range(whole.num_layers, 0, -1):
        model = whole.model_copy(update={"num_layers": layers})
        states = num_parameters(build_on_meta(model)) * (SHARED_BYTES / world_size + OWN_BYTES)
        a_sample = ACTIVATION_BYTES * length * layers * model.hidden_size
        for micro_batch_size in (16, 8, 4, 2, 1):
            if states + micro_batch_size * a_sample <= USABLE * memory:
                return Plan(name, model, whole.num_layers, length, micro_batch_size)
    raise SystemExit(f"{name}: not one of its layers fits into {memory / 1e9:.0f} GB; use more or larger GPUs")


def measure(planned: Plan, world_size: int, compile_blocks: bool) -> dict[str, float]:
    """Tokens a second over all GPUs, at the median step, and the peak of this rank's memory in bytes."""
    size = planned.micro_batch_size
    share = size * MICRO_BATCHES
    config = RunConfig.model_validate(
        {
            "model": planned.model.model_dump(exclude_unset=True) | {"preset": None},
            "data": {"sequence_length": planned.length},
            "schedule": {"warmup_steps": 1},
            "training": {
                "steps": WARM_UP + MEASURED,
                "global_batch_size": share * world_size,
                "micro_batch_size": size,
                "precision": "bf16",
                "zero_stage": 2,
                "compile": compile_blocks,
            },
        }
    )
    source = RandomTokens(planned.model.vocabulary, planned.length, share, world_size)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    with initialize(config, source) as engine:
        started = time.perf_counter()
        for batch in engine.batches():
            engine.backward(engine(batch))
            if engine.step() is not None:  # which waits for the loss, so all before it has been computed
                seconds.append(time.perf_counter() - started)
                started = time.perf_counter()
    tokens = share * world_size * planned.length
    return {
        "tokens_per_second": tokens / statistics.median(seconds[WARM_UP:]),
        "peak_memory": float(torch.cuda.max_memory_allocated()) if on_gpu else 0.0,
    }


def row(planned: Plan, measured: dict[str, float], world_size: int) -> str:
    """One line of the table."""
    rate = measured["tokens_per_second"]
    share = rate * flops_per_token(planned.model, planned.length) / (world_size * PEAK_FLOPS)
    return (
        f"| {planned.title} | {world_size} | {planned.micro_batch_size} x {planned.length} | {rate:,.0f} "
        f"| {share:.1%} | {measured['peak_memory'] / 1e9:.1f} GB |"
    )


def main(arguments: Sequence[str]) -> None:
    """Measure what fits, and print a table."""
    parser = argparse.ArgumentParser(description="Training steps of 1B and 8B Llamas on GPUs.")
    parser.add_argument("--tiny", action="store_true", help="A tiny model, on a CPU too: to try this script.")
    parser.add_argument("--no-compile", action="store_true", help="Without torch.compile.")
    given = parser.parse_args(arguments)
    world_size, is_main = int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("RANK", "0") == "0"
    if given.tiny:
        plans = [plan("tiny", TINY, 64, 10e6, world_size)]
    elif not torch.cuda.is_available():
        raise SystemExit("this needs an NVIDIA GPU, and PyTorch finds none here; --tiny tries the script on a CPU")
    else:
        memory = torch.cuda.get_device_properties(0).total_memory
        plans = [plan(name, {"preset": name}, LENGTH, memory, world_size) for name in PRESETS]
        if is_main:
            print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, of {PEAK_FLOPS / 1e12} TFLOP/s")
    if is_main:
        print("| model | GPUs | micro-batch | tokens/s | MFU | peak memory |\n|---|---|---|---|---|---|", flush=True)
    for planned in plans:
        try:
            measured = measure(planned, world_size, compile_blocks=not (given.tiny or given.no_compile))
        except torch.OutOfMemoryError as error:
            raise SystemExit(f"{planned.title}: {error}; lower USABLE, or name fewer PRESETS") from error
        except TokenmillError as error:
            raise SystemExit(str(error)) from error
        if is_main:
            print(row(planned, measured, world_size), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
