"""Even loads without a loss: after each step an expert with too few tokens becomes a little easier to choose.

    forward ─ loads (E,) of each micro-batch ─▶ summed over the step and all ranks ─▶ bias += γ · sign(mean load − load)

DeepSeek-V3, arXiv:2412.19437. The bias decides who is chosen, never how much they count, so it disturbs no gradient.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from tokenmill_trainer.model.router import Router, RouterReport


def count_loads(routers: Iterable[Router], reports: Iterable[RouterReport]) -> None:
    """Add the loads of one micro-batch to what each balanced router has seen in this step."""
    for router, report in zip(routers, reports, strict=True):
        if router.balance_bias is not None:
            seen = router.step_load_E
            router.step_load_E = report.load_E if seen is None else seen + report.load_E


def forget_loads(routers: Iterable[Router]) -> None:
    """Drop the loads of a step that is over, or not taken."""
    for router in routers:
        router.step_load_E = None


@torch.no_grad()
def update_biases(routers: Sequence[Router], sum_over_ranks: Callable[[Tensor], object]) -> None:
    """Move every balancing bias by its rate, from the loads since the last call. Collective.

    `sum_over_ranks` replaces a tensor by its sum over all ranks, as `torch.distributed.all_reduce` does. It is called
    once, with the int64 loads (layers, E), and not at all where no router has biases.
    """
    balanced = [router for router in routers if router.balance_bias is not None]
    if not balanced:
        return
    loads = torch.stack([_step_load(router) for router in balanced])
    sum_over_ranks(loads)
    for router, load_E in zip(balanced, loads, strict=True):
        assert router.balance_bias is not None
        assert router.config.bias_update_rate is not None
        # mean − load has the sign of total − E · load, which integers hold exactly.
        direction = torch.sign(load_E.sum() - len(load_E) * load_E)
        router.balance_bias += router.config.bias_update_rate * direction
    forget_loads(balanced)


def _step_load(router: Router) -> Tensor:
    assert router.step_load_E is not None, "biases are updated after a forward with gradients"
    return router.step_load_E
