"""Tokens to experts and back, as two permutations.

    x (T, D) ─ dispatch ─▶ rows sorted by expert (T·k, D) ─ experts ─▶ rows (T·k, D) ─ combine with gates ─▶ (T, D)

Each row has one place, so gradients are gathered, never added up by colliding threads: the same bits every time.
Legend: T tokens, k experts a token, E experts, D hidden size.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Places(NamedTuple):
    """Where the (token, choice) pairs stand once sorted by expert."""

    order: Tensor
    """(T·k,) int64: the pair token · k + choice that stands at each place."""
    place_of: Tensor
    """(T·k,) int64: the place of each pair."""
    ends_E: Tensor
    """(E,) int32: where each expert's rows end."""


def sort_by_expert(experts_Tk: Tensor, num_experts: int) -> Places:
    """Expert by expert, and the pairs of one expert in the order of their tokens."""
    sorted_experts, order = experts_Tk.flatten().sort(stable=True)
    numbers = torch.arange(len(order), device=order.device)
    place_of = torch.empty_like(order).scatter_(0, order, numbers)
    all_experts = torch.arange(num_experts, device=order.device)
    ends_E = torch.searchsorted(sorted_experts, all_experts, right=True, out_int32=True)
    return Places(order, place_of, ends_E)


def dispatch(x_TD: Tensor, places: Places) -> Tensor:
    """Each token's vector at the k places of its pairs: (T·k, D)."""
    return _Dispatch.apply(x_TD, places.order, places.place_of)  # type: ignore[no-any-return, no-untyped-call]


def combine(rows_SD: Tensor, gates_Tk: Tensor, places: Places) -> Tensor:
    """Each token's rows, weighted by its gates and summed: (T, D)."""
    pairs: Tensor = _Collect.apply(rows_SD, places.order, places.place_of)  # type: ignore[no-untyped-call]
    pairs_TkD = pairs.view(*gates_Tk.shape, -1)
    return (gates_Tk.to(rows_SD.dtype).unsqueeze(1) @ pairs_TkD).squeeze(1)


class _Dispatch(torch.autograd.Function):
    """row[p] = x[order[p] // k]; its gradient sums the k rows of a token."""

    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, order: Tensor, place_of: Tensor) -> Tensor:
        ctx.save_for_backward(place_of)
        ctx.num_tokens = len(x_TD)
        return x_TD[order // (len(order) // len(x_TD))]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (place_of,) = ctx.saved_tensors
        return grad[place_of].view(ctx.num_tokens, -1, grad.shape[1]).sum(1), None, None


class _Collect(torch.autograd.Function):
    """pair[i] = row[place_of[i]]; its gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, rows_SD: Tensor, order: Tensor, place_of: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows_SD[place_of]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return grad[order], None, None
