"""Gradients that can be taken once, since they are not computed by operations that have gradients themselves."""

import torch


def refuse_second_order() -> None:
    """Called in a backward: gradients of gradients would be wrong, and `once_differentiable` does not always say so."""
    if torch.is_grad_enabled():
        raise RuntimeError("this is differentiated once; take the gradient without create_graph=True")
