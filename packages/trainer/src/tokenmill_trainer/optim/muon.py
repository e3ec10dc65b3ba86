"""Muon: momentum whose update of each matrix is made orthogonal, so that all its directions are of one size.

    gradient ─ momentum ─ gather ─▶ matrix ─ Newton–Schulz ─▶ U Vᵀ ─ share out ─▶ weight −= lr · 0.2 √max(m, n) · U Vᵀ

A matrix is one thing here, so its shards are brought together. The ranks take turns: each makes its share of the
matrices orthogonal and hands them on. The factor gives updates the root mean square of AdamW's, whose rates and decay
then fit (arXiv:2502.16982). Parameters in groups with `muon` false are AdamW's: embeddings, head and vectors.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim.adamw import adamw

from tokenmill_trainer.optim.start_state import adamw_state

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of X ← aX + (bA + cA²)X, A = XXᵀ, chosen for a steep rise at 0 (Jordan et al., 2024)."""
NUM_ITERATIONS = 5
RMS_OF_ADAMW = 0.2


def orthogonalize(matrix: Tensor) -> Tensor:
    """U S′ Vᵀ for a matrix U S Vᵀ, all of S′ within about 0.7 to 1.2; of (…, m, n) each matrix by itself.

    In bf16 on a GPU, which is fast and precise enough there, else in the matrix's own precision.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if is_tall else x
    return result.to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum for groups with `muon` true, fused AdamW for the others.

    Works on tensors and on DTensors of any layout; for the latter `step` is collective, as it is where `replicas` hold
    the same tensors.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
        replicas: dist.ProcessGroup | None = None,
    ) -> None:
        self._replicas = replicas
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups, {**defaults, "muon": True})
        for group in self.param_groups:
            for parameter in group["params"]:
                zeros = {"momentum": torch.zeros_like(parameter)} if group["muon"] else adamw_state(parameter)
                self.state[parameter] = zeros

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the weights."""
        assert closure is None, "the loss is computed before the step"
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if group["muon"]:
                self._muon(parameters, group)
            elif parameters:
                self._adamw(parameters, group)

    def _muon(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        lr, momentum = group["lr"], group["momentum"]
        directions = (self._direction(parameter, momentum) for parameter in parameters)
        for parameter, update in zip(parameters, orthogonal_updates(directions, self._replicas), strict=True):
            parameter.mul_(1 - lr * group["weight_decay"])
            parameter.add_(update, alpha=-lr * RMS_OF_ADAMW * math.sqrt(max(parameter.shape[-2:])))

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        assert parameter.grad is not None
        average: Tensor = self.state[parameter]["momentum"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(average, momentum)

    def _adamw(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonal_updates(directions: Iterator[Tensor], replicas: dist.ProcessGroup | None = None) -> Iterator[Tensor]:
    """Each direction made orthogonal and laid out as it was, in order; collective where ranks share the work.

    They do for DTensors, and for tensors that all of `replicas` hold.
    """
    waiting: list[Tensor] = []
    group: dist.ProcessGroup | None = None
    for direction in directions:
        own = _sharing(direction, replicas)
        if waiting and (own != group or len(waiting) == _num_turns(group)):
            yield from _in_turns(waiting, group)
            waiting = []
        group = own
        waiting.append(direction)
    if waiting:
        yield from _in_turns(waiting, group)


def _sharing(direction: Tensor, replicas: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """The ranks that share the work: those along the longest side of a DTensor's mesh; none: there is but this one."""
    if not isinstance(direction, DTensor):
        return replicas
    mesh = direction.device_mesh
    return mesh.get_group(max(range(mesh.ndim), key=mesh.size))


def _num_turns(group: dist.ProcessGroup | None) -> int:
    return 1 if group is None else group.size()


def _in_turns(directions: list[Tensor], group: dist.ProcessGroup | None) -> Iterator[Tensor]:
    """As many matrices at a time as `group` has ranks, each of which makes one of them orthogonal."""
    me = 0 if group is None else group.rank()
    wholes = [_whole(direction).contiguous() for direction in directions]
    if me < len(wholes):
        wholes[me] = orthogonalize(wholes[me]).contiguous()
    for owner, (whole, direction) in enumerate(zip(wholes, directions, strict=True)):
        if group is not None:
            dist.broadcast(whole, group=group, group_src=owner)
        if isinstance(direction, DTensor):
            yield distribute_tensor(whole, direction.device_mesh, direction.placements, src_data_rank=None)
        else:
            yield whole


def _whole(direction: Tensor) -> Tensor:
    return direction.full_tensor() if isinstance(direction, DTensor) else direction
