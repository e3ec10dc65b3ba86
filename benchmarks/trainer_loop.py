"""The plain training loop that peers run in `trainer.py`, and the job that all contestants share.

It knows torch alone, so that it runs in the peers' environment too.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LR, BETAS, EPS, WEIGHT_DECAY, MAX_NORM = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


@dataclass(frozen=True)
class Job:
    """What everybody computes, as `trainer.py` has laid it down in a folder."""

    folder: Path
    shape: dict[str, int]
    """Settings of tokenmill's `ModelConfig`: vocab_size, hidden_size, intermediate_size, num_layers, num_heads, …"""
    length: int
    rows: int
    precision: str
    compiled: bool
    threads: int

    @classmethod
    def read(cls, folder: Path) -> "Job":
        """The job of `folder`; torch takes its number of threads."""
        job = cls(folder, **json.loads((folder / "job.json").read_text()))
        torch.set_num_threads(job.threads)
        return job

    def weights(self) -> dict[str, Tensor]:
        """fp32, by the names of the Hugging Face Llama without `model.`."""
        return torch.load(self.folder / "weights.pt")  # type: ignore[no-any-return]

    def batches(self) -> Iterator[Tensor]:
        """(rows, length + 1) ids, without end."""
        batches = torch.load(self.folder / "tokens.pt")
        while True:
            yield from batches

    def tell_loss(self, name: str, loss: float) -> None:
        """Leave the first step's loss where `trainer.py` compares it with the others'."""
        (self.folder / f"{name}.loss").write_text(str(loss))


def plain_steps(name: str, job: Job, model: nn.Module, logits: Callable[[Tensor], Tensor]) -> Iterator[range]:
    """One step after the other, each a range as long as its tokens: forward, backward, clip, AdamW.

    In bf16 the model holds bf16 weights and the loop their fp32 masters: what FSDP's mixed precision does, and faster
    on a CPU than autocast.
    """
    weights = list(model.parameters())
    masters = weights if job.precision == "fp32" else [nn.Parameter(weight.detach().clone()) for weight in weights]
    if masters is not weights:
        for weight in weights:
            weight.data = weight.data.bfloat16()
    optimizer = torch.optim.AdamW(masters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)
    if job.compiled:
        logits = torch.compile(logits)
    for step, tokens in enumerate(job.batches()):
        loss = F.cross_entropy(logits(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if step == 0:
            job.tell_loss(name, loss.item())
        _move(weights, masters, optimizer)
        yield range(job.rows * job.length)


@torch.no_grad()
def _move(weights: list[nn.Parameter], masters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    if masters is not weights:
        for weight, master in zip(weights, masters, strict=True):
            assert weight.grad is not None
            master.grad, weight.grad = weight.grad.float(), None
    torch.nn.utils.clip_grad_norm_(masters, MAX_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if masters is not weights:
        for weight, master in zip(weights, masters, strict=True):
            weight.copy_(master)


def load(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """`model` with these weights, of which none may be missing or left over."""
    missing, unknown = model.load_state_dict(weights, strict=False)
    parameters = {name for name, _ in model.named_parameters()}
    wrong: Any = unknown or [name for name in missing if name in parameters]
    if wrong:
        raise SystemExit(f"weights do not fit: {wrong}")
    return model
