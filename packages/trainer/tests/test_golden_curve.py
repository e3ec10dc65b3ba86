"""Golden curves: 200 steps of a small Llama and of a small mixture of experts, held to numbers that were written once.

    table of successors ─ hash of (sample, place) ─▶ rows ─ initialize, 200 steps ─▶ every 10th (loss, norm) ─ golden/

Other tests compare two ways through today's code; this one compares today's with the day the curve was written. What
gives other numbers on purpose writes them anew, and its commit says why:

    python packages/trainer/tests/test_golden_curve.py --write

Rounding moves a curve by up to 5e-7: start weights that differ by 1e-7 of themselves, other vector instructions, one
thread or two. Changes by one hundredth that were tried move it by 6e-4 or more: those in `CHANGES`, which a test tries
again, and in the code the weight of the gradient beside the loss, and a mean of micro-batches in place of tokens.
"""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.world import start_world

GOLDEN = Path(__file__).parent / "golden"
STEPS, EVERY = 200, 10
VOCABULARY, LENGTH = 64, 32
CHANCES = np.array([7, 5, 3, 1]) / 16
"""Of a token's four successors: the lower of two even draws."""
ENTROPY = float(-(CHANCES * np.log(CHANCES)).sum())
"""Nats a token that are left to whoever knows the table: 1.21; whoever knows the tokens' shares alone is left 4.1."""

Curve = list[tuple[float, float]]
"""(loss, gradient norm) of every `EVERY`-th step."""
TOLERANCE = {"llama": 2e-5, "experts": 2e-4}
"""Of losses and norms. Where two experts are as good, rounding may choose, and moves such a curve further."""
CHANGES: dict[str, dict[str, Any]] = {
    "optimizer": {"lr": 0.0101, "betas": (0.9, 0.9595), "eps": 1.01e-3, "weight_decay": 0.505},
    "training": {"max_grad_norm": 0.505},
    "model": {"rope_theta": 20.2, "norm_eps": 3.03e-3},
    "loss": {"z_loss": 0.0101},
}
"""Settings of `config_of`, each one hundredth larger."""
EXPERTS = {
    "num_experts": 4,
    "experts_per_token": 2,
    "expert_intermediate_size": 32,
    "num_shared_experts": 1,
    "num_dense_layers": 1,
    "router": "sigmoid",
    "aux_loss": 0.01,
    "z_loss": 0.001,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"norm_eps": 0.003},
    "experts": {"moe": EXPERTS, "num_kv_heads": None, "qk_norm": "head"},
}


def config_of(model: str) -> RunConfig:
    """Every setting that a formula of training reads does something: see `CHANGES`."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    return RunConfig.model_validate(
        {
            "model": {**shape, "vocab_size": VOCABULARY, "init_std": 0.2, "rope_theta": 20.0, **MODELS[model]},
            "data": {"sequence_length": LENGTH},
            "optimizer": {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.5},
            "schedule": {"warmup_steps": 20},
            "loss": {"z_loss": 0.01, "chunk_tokens": 48},
            "training": {
                "steps": STEPS,
                "global_batch_size": 8,
                "micro_batch_size": 8 if model == "experts" else 4,
                "max_grad_norm": 0.5,
                "device": "cpu",
            },
        }
    )


def changed(model: str, section: str, name: str, value: Any) -> RunConfig:
    settings = config_of(model).model_dump()
    settings[section][name] = value
    return RunConfig.model_validate(settings)


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser (Vigna): random bits that no version of NumPy changes."""
    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Chains:
    """Rows in which each token is one of four successors of the last one and of whether that two before it is odd.

    Of the first two rows of each eight few labels count, so that micro-batches are unlike.
    """

    successors = (mixed(np.arange(VOCABULARY * 8, dtype=np.uint64)) % np.uint64(VOCABULARY)).reshape(VOCABULARY, 2, 4)

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        bits = mixed(((indices[:, None] + 1) * (1 << 32) + np.arange(LENGTH + 1)).astype(np.uint64))
        choices = np.minimum(bits & np.uint64(3), bits >> np.uint64(62)).astype(np.int64)
        tokens = np.empty((len(indices), LENGTH + 1), np.int64)
        tokens[:, 0] = mixed(indices.astype(np.uint64)) % np.uint64(VOCABULARY)
        for place in range(LENGTH):
            known = tokens[:, place], tokens[:, max(place - 2, 0)] % 2
            tokens[:, place + 1] = self.successors[*known, choices[:, place]]
        counted = (indices[:, None] % 8 > 1) | (np.arange(LENGTH) % 8 == 0)
        return Samples(tokens, counted)


def train(config: RunConfig, rank: int = 0, num_ranks: int = 1) -> Generator[tuple[float, float], None, None]:
    """Every `EVERY`-th step's (loss, gradient norm)."""
    source = GlobalBatches(Chains(), config.training.global_batch_size, rank, num_ranks)
    with initialize(config, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None and report.progress.step % EVERY == 0:
                yield report.loss, report.grad_norm


def golden(model: str) -> Curve:
    return [(row["loss"], row["grad_norm"]) for row in json.loads((GOLDEN / f"{model}.json").read_text())]


def write(model: str) -> None:
    rows = [
        {"step": EVERY * number, "loss": round(loss, 7), "grad_norm": round(norm, 7)}
        for number, (loss, norm) in enumerate(train(config_of(model)), 1)
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    (GOLDEN / f"{model}.json").write_text(f"[\n{lines}\n]\n")


@pytest.mark.parametrize("model", MODELS)
def test_training_gives_the_golden_curve(model: str) -> None:
    curve = list(train(config_of(model)))
    torch.testing.assert_close(curve, golden(model), atol=TOLERANCE[model], rtol=0)


def test_two_ranks_that_share_all_give_it(tmp_path: Path, on_two_ranks: Callable[[str, RunConfig, Path], None]) -> None:
    on_two_ranks("test_golden_curve.py", changed("llama", "training", "zero_stage", 3), tmp_path)
    for rank in range(2):
        curve = [tuple(row) for row in json.loads((tmp_path / f"{rank}.json").read_text())]
        torch.testing.assert_close(curve, golden("llama"), atol=TOLERANCE["llama"], rtol=0)


def test_the_golden_curve_is_of_models_that_learn() -> None:
    for model in MODELS:
        curve = golden(model)
        assert len(curve) == STEPS // EVERY
        assert curve[0][0] > 3
        assert ENTROPY < curve[-1][0] < ENTROPY + 1


@pytest.mark.parametrize(("section", "name"), [(section, name) for section in CHANGES for name in CHANGES[section]])
def test_a_change_of_one_hundredth_leaves_the_curve(section: str, name: str) -> None:
    def leaves(found: tuple[float, float], expected: tuple[float, float]) -> bool:
        return any(abs(a - b) > 2 * TOLERANCE["llama"] for a, b in zip(found, expected, strict=True))

    with closing(train(changed("llama", section, name, CHANGES[section][name]))) as points:
        assert any(map(leaves, points, golden("llama")))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for name in MODELS:
            write(name)
    else:
        settings, out = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
        with start_world() as world:
            curve = list(train(settings, world.rank, world.size))
            (out / f"{world.rank}.json").write_text(json.dumps(curve))
