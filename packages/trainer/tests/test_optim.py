import math

import pytest
from pydantic import ValidationError

from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.optim import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate


def test_rate_warms_up_and_falls_along_a_cosine() -> None:
    schedule = ScheduleConfig(warmup_steps=10, min_lr_ratio=0.1)
    rates = [learning_rate(step, 40, 1e-3, schedule) for step in range(1, 41)]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[9] == 1e-3
    assert rates[24] == pytest.approx(1e-3 * (0.1 + 0.9 / 2))
    assert rates[39] == pytest.approx(1e-4)
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_rate_without_warm_up_or_without_decay() -> None:
    first = learning_rate(1, 4, 1.0, ScheduleConfig(min_lr_ratio=0))
    assert first == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate(5, 5, 1.0, ScheduleConfig(warmup_steps=5)) == 1.0


def test_vectors_do_not_decay() -> None:
    model = Decoder(ModelConfig(vocab_size=11, num_layers=1))
    decayed, kept = build_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


def test_betas_out_of_range_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"betas: \[0.9, 1.0\] must both be at least 0 and below 1"):
        OptimizerConfig(betas=(0.9, 1.0))
