"""Ours, `transformers` and the bare matrix product in `trainer.py`: `python trainer_contestants.py NAME FOLDER`."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainer_loop import BETAS, EPS, LR, MAX_NORM, WEIGHT_DECAY, Job, load, plain_steps
from turns import serve

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import RankSamples
from tokenmill_trainer.model.cpu import onednn

SIZES = (1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True)
class JobSamples:
    """The job's batches as the engine takes them."""

    job: Job

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """Steps without end."""
        for step, tokens in enumerate(self.job.batches()):
            yield RankSamples(consumed_samples + step * self.job.rows, tokens[:, :-1], tokens[:, 1:])


def ours(job: Job) -> Iterator[Sequence[Any]]:
    """The engine, as `pretrain run` uses it; its start weights are the job's, by their seed."""
    config = RunConfig.model_validate(
        {
            "model": job.shape,
            "data": {"sequence_length": job.length},
            "optimizer": {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY},
            "schedule": {"kind": "constant", "warmup_steps": 0},
            "training": {
                "steps": 1_000_000,
                "global_batch_size": job.rows,
                "micro_batch_size": job.rows,
                "precision": job.precision,
                "compile": job.compiled,
                "max_grad_norm": MAX_NORM,
            },
        }
    )
    with initialize(config, JobSamples(job)) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            assert report is not None
            if report.progress.step == 1:
                job.tell_loss("ours", report.loss)
            yield range(report.tokens)


def transformers(job: Job) -> Iterator[Sequence[Any]]:
    """Its Llama with SDPA."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = job.shape
    config = LlamaConfig(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["hidden_size"],
        intermediate_size=shape["intermediate_size"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_heads"],
        num_key_value_heads=shape["num_kv_heads"],
        max_position_embeddings=job.length,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    weights = {name if name.startswith("lm_head") else f"model.{name}": value for name, value in job.weights().items()}
    model = load(LlamaForCausalLM(config), weights).train()
    return plain_steps("transformers", job, model, lambda tokens: model(tokens).logits)


def matmul(job: Job) -> Iterator[Sequence[Any]]:
    """Square products, of the size and by the library that are fastest here; a range as long as their FLOPs."""
    dtype = torch.float32 if job.precision == "fp32" else torch.bfloat16
    products: list[Callable[[Tensor, Tensor], Tensor]] = [torch.matmul]
    if job.precision == "fp32":
        products.append(onednn.product)
    trials = []
    for size in SIZES:
        x, y = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
        trials += [(_rate(product, x, y), product, x, y) for product in products]
    _, product, x, y = max(trials, key=lambda trial: trial[0])
    while True:
        product(x, y)
        yield range(2 * len(x) ** 3)


def _rate(product: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        product(x, y)
        seconds.append(time.perf_counter() - started)
    return float(len(x) ** 3 / min(seconds))


CONTESTANTS = {"ours": ours, "transformers": transformers, "matmul": matmul}

if __name__ == "__main__":
    serve(lambda: CONTESTANTS[sys.argv[1]](Job.read(Path(sys.argv[2]))))
