"""Experts as `transformers` stores them, a matrix each, and as we compute them, one tensor for all."""

import re

import torch

from tokenmill_trainer.hf.layout import State

STACKED = re.compile(r"(layers\.\d+\.mlp\.experts)\.(\w+)\.weight")
SINGLE = re.compile(r"(layers\.\d+\.mlp\.experts)\.(\d+)\.(\w+)\.weight")


def unstacked(state: State) -> State:
    """`….experts.up_proj.weight` (E, O, I) as `….experts.0.up_proj.weight` (O, I) and so on."""
    result: State = {}
    for name, value in state.items():
        match = STACKED.fullmatch(name)
        if match is None:
            result[name] = value
        else:
            experts, projection = match.groups()
            result |= {f"{experts}.{number}.{projection}.weight": matrix for number, matrix in enumerate(value)}
    return result


def stacked(state: State) -> State:
    """The other way."""
    result: State = {}
    experts: dict[str, State] = {}
    for name, value in state.items():
        match = SINGLE.fullmatch(name)
        if match is None:
            result[name] = value
        else:
            layer, number, projection = match.groups()
            experts.setdefault(f"{layer}.{projection}.weight", {})[number] = value
    for name, matrices in experts.items():
        result[name] = torch.stack([matrices[number] for number in sorted(matrices, key=int)])
    return result
