"""The learning rate: a pure function of how far a run has come and how long it is.

Both are counted in samples, which are `sequence_length` tokens each, so a rate depends on consumed tokens alone: a
resumed run has it without any state of a scheduler, and so has one whose batch grows.

    rate
    peak ┤   ╭──────────╮        w  end of the warm-up
         │  ╱            ╲       d  begin of the decay (`wsd`; elsewhere it is w)
    floor┤ ╱              ╲      T  the run's end
         └┴──┬──────────┬──┬─▶ consumed
             w          d  T
"""

import math
from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from tokenmill_core.manifest import Frozen
from tokenmill_shards.mixing.amounts import Tokens

ScheduleKind = Literal["cosine", "linear", "wsd", "inverse_sqrt", "constant"]


class ScheduleConfig(Frozen):
    """A warm-up to the peak rate, then the shape that `kind` names."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: ScheduleKind = "cosine"
    """Shape after the warm-up: `cosine` or `linear` down to the floor, `wsd` (the peak, then a decay at the end),
    `inverse_sqrt` or `constant`."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps until the peak is reached, as long as the tokens of the run's first `warmup_steps` steps."""
    warmup_tokens: Tokens | None = None
    """Tokens until the peak is reached, such as `2B`, in place of `warmup_steps`."""
    warmup_shape: Literal["linear", "log"] = "linear"
    """How the warm-up rises: x / w, or log x / log w, x and w in steps."""
    warmup_min_ratio: float = Field(default=0.0, ge=0, le=1)
    """Rate that the warm-up rises from, as a share of the peak."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """The floor: rate of the last step as a share of the peak; `inverse_sqrt` never falls below it."""
    decay_share: float = Field(default=0.1, gt=0, le=1)
    """Share of the run's tokens, at its end, over which `wsd` decays."""
    decay_shape: Literal["linear", "one_minus_sqrt"] = "linear"
    """How `wsd` decays: 1 − p or 1 − √p, where p goes from 0 to 1 (arXiv:2405.18392)."""

    @model_validator(mode="after")
    def _one_warm_up(self) -> "ScheduleConfig":
        if self.warmup_steps and self.warmup_tokens:
            raise ValueError(
                f"warmup_tokens: {self.warmup_tokens} and warmup_steps {self.warmup_steps} both say how long the "
                "warm-up is; give one of them"
            )
        if self.kind == "inverse_sqrt" and not (self.warmup_steps or self.warmup_tokens):
            raise ValueError("kind: inverse_sqrt falls from the end of a warm-up; set warmup_steps or warmup_tokens")
        return self


def learning_rate(consumed: float, total: float, warmup: float, peak: float, schedule: ScheduleConfig) -> float:
    """The rate of the step after which `consumed` of the run's `total` samples are consumed.

    All three lengths are in one unit, whichever; only a warm-up of shape `log` asks for steps. With x = `consumed`,
    w = `warmup`, T = `total`, m = `warmup_min_ratio`, r = `min_lr_ratio` and p = (x − w) / (T − w), the rate is peak
    times

        m + (1 − m) · x / w             in the warm-up, x < w; log x / log w in place of x / w with shape `log`
        r + (1 − r) · (1 + cos πp) / 2  cosine
        r + (1 − r) · (1 − p)           linear
        r + (1 − r) · s(q)              wsd, with q = 0 up to d = T · (1 − decay_share), then (x − d) / (T − d)
        max(r, √(w / x))                inverse_sqrt
        1                               constant
    """
    if consumed < warmup:
        return _warming_up(consumed, warmup, peak, schedule)
    floor = schedule.min_lr_ratio
    match schedule.kind:
        case "constant":
            return peak
        case "inverse_sqrt":
            return peak * max(floor, math.sqrt(warmup / consumed))
        case "cosine":
            progress = _progress(consumed, warmup, total)
            return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)
        case "linear":
            return peak * (floor + (1 - floor) * (1 - _progress(consumed, warmup, total)))
        case "wsd":
            begin = max(warmup, total * (1 - schedule.decay_share))
            return peak * (floor + (1 - floor) * _decay(_progress(consumed, begin, total), schedule.decay_shape))


def _warming_up(consumed: float, warmup: float, peak: float, schedule: ScheduleConfig) -> float:
    start = schedule.warmup_min_ratio
    if schedule.warmup_shape == "log":
        consumed, warmup = math.log(max(1.0, consumed)), math.log(warmup)
    return peak * start + peak * (1 - start) * consumed / warmup


def _progress(consumed: float, begin: float, end: float) -> float:
    """From 0 at `begin` to 1 at `end` and after it; 0 where there is nothing between them."""
    if end <= begin:
        return 0.0
    return min(1.0, max(0.0, (consumed - begin) / (end - begin)))


def _decay(progress: float, shape: Literal["linear", "one_minus_sqrt"]) -> float:
    return 1 - progress if shape == "linear" else 1 - math.sqrt(progress)
