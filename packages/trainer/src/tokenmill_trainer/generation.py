"""Token by token from a model: which one comes next, and what it is chosen by."""

from collections.abc import Iterator

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.model.kv_cache import KeyValueCache

COLDEST = 1e-6
"""Below this temperature the likeliest token has all the probability that fp32 can tell from 0."""


class SampleConfig(Frozen):
    """How a token is chosen."""

    model_config = ConfigDict(allow_inf_nan=False)

    num_tokens: int = Field(default=200, gt=0)
    """Tokens to generate at most; the end of a document ends the text."""
    temperature: float = Field(default=0.8, ge=0)
    """Logits are divided by this; 0 always takes the likeliest."""
    top_k: int = Field(default=0, ge=0)
    """Only the k likeliest tokens are drawn from; 0: all."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Of the draws: the same seed gives the same text."""


SEEDS_APART = 0x9E3779B97F4A7C15
"""Between prompts: the golden ratio's bits, so that seeds side by side do not meet."""


# Not inference mode: what FSDP gathers in it could not be trained with afterwards.
@torch.no_grad()
def generate_ids(
    model: Decoder, prompt: list[int], window: int, config: SampleConfig, vocab_size: int | None = None, number: int = 0
) -> Iterator[int]:
    """`num_tokens` ids that follow `prompt`, all below `vocab_size` where the model has rows beyond it.

    The model sees at most `window` positions, as in training. When they are full it reads the later half again as a new
    beginning, so that a token costs one position, and each half-window one rereading. `number` tells prompts of one
    seed apart: each has draws of its own.
    """
    seed, device = (config.seed + number * SEEDS_APART) % (1 << 63), model.embed_tokens.weight.device
    generator = torch.Generator().manual_seed(seed)
    seen = list(prompt[-max(1, window // 2) :]) if len(prompt) > window else list(prompt)
    cache = KeyValueCache(model.config.num_layers, window)
    unread = seen
    for _ in range(config.num_tokens):
        if cache.length + len(unread) > window:
            seen = unread = seen[-max(1, window // 2) :]
            cache = KeyValueCache(model.config.num_layers, window)
        logits = model(torch.tensor([unread], device=device), cache)[0, -1, :vocab_size].cpu()
        token = choose(logits, config, generator)
        yield token
        unread = [token]
        seen = [*seen, token]


def choose(logits: Tensor, config: SampleConfig, generator: torch.Generator) -> int:
    """One id drawn from logits (V,)."""
    if config.temperature < COLDEST:
        return int(logits.argmax())
    scaled = logits.float() / config.temperature
    if 0 < config.top_k < len(scaled):
        scaled[scaled < scaled.topk(config.top_k).values[-1]] = float("-inf")
    return int(torch.multinomial(scaled.softmax(0), 1, generator=generator))
