"""What the model makes of a few prompts while it is trained.

Collective: with sharded weights every forward needs all ranks, so each rank takes its share of the prompts, filled up
to the same number, and generates the same number of tokens; what follows the end of a document is cut off afterwards.
Draws come from a generator of their own, weights are only read: training does not notice.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import Field, field_validator, model_validator

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.generation import SampleConfig, generate_ids
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.world import World


class SamplesConfig(SampleConfig):
    """Texts that the model writes while it is trained, always from the same prompts."""

    interval: int = Field(default=0, ge=0)
    """Steps between two times; the last step has one too. 0: none at all."""
    prompts: tuple[str, ...] = ()
    """Texts to go on from."""
    prompts_file: str | None = None
    """File with further prompts, one a line, without escapes; empty lines are left out."""
    num_tokens: int = Field(default=64, gt=0)
    """Tokens to generate at most; the end of a document ends the text."""

    @field_validator("prompts")
    @classmethod
    def _none_empty(cls, prompts: tuple[str, ...]) -> tuple[str, ...]:
        if "" in prompts:
            raise ValueError("a prompt is empty; give it at least one character")
        return prompts

    @model_validator(mode="after")
    def _some_prompts(self) -> "SamplesConfig":
        if self.interval and not self.prompts and self.prompts_file is None:
            raise ValueError(f"interval: {self.interval}, but there is no prompt; name some in prompts or prompts_file")
        return self


def read_prompts(config: SamplesConfig) -> list[str]:
    """All prompts of the settings; `ConfigError` where the file cannot be read or has none."""
    prompts = list(config.prompts)
    if config.prompts_file is not None:
        try:
            # Not splitlines: form feeds and Unicode's own line ends may stand inside a prompt.
            lines = Path(config.prompts_file).read_bytes().decode("utf-8").replace("\r\n", "\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"samples.prompts_file: {config.prompts_file} cannot be read: {error}") from error
        prompts += [line for line in lines if line.strip()]
    if not prompts:
        raise ConfigError(f"samples.prompts_file: {config.prompts_file} has no line with a prompt; add one")
    return prompts


def continue_prompts(
    model: Decoder,
    world: World,
    prompts: Sequence[list[int]],
    config: SampleConfig,
    *,
    window: int,
    vocab_size: int | None,
) -> list[list[int]]:
    """`num_tokens` ids after each of `prompts` (ids, none empty), the same on all ranks. Collective."""
    share = math.ceil(len(prompts) / world.size)
    first = world.rank * share
    # A rank without a prompt left repeats one, so that no other waits for it.
    mine = [min(number, len(prompts) - 1) for number in range(first, first + share)]
    with uncompiled():
        new = [list(generate_ids(model, prompts[number], window, config, vocab_size, number)) for number in mine]
    release_parameters(model)
    return [ids for part in world.gather(new) for ids in part][: len(prompts)]


@contextmanager
def uncompiled() -> Iterator[None]:
    """A text meets every length once: compiled for each, blocks would soon refuse to be compiled at all."""
    with torch.compiler.set_stance("force_eager"):
        yield
