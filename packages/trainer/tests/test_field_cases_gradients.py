"""Field cases 30 and 31: uneven micro-batches and a clipped gradient, on every layout, against a plain loop.

8 samples of 3, 61, 0, … counted tokens ─┬ one forward, F.cross_entropy, autograd ─▶ loss, gradient, norm ┐
                                         └ every layout × micro-batch, one step ─▶ the same of each rank ─┴▶ equal
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenmill_trainer import RunConfig
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.model.init import initialize_weights

COUNTED, LENGTH, MAX_NORM = (3, 61, 0, 61, 64, 3, 61, 3), 64, 0.1
"""As `gradients_worker.py` has them. The third sample is masked as a whole."""
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {f"1x{micro}": {"micro_batch_size": micro} for micro in (8, 1)}
    | {f"stage-{stage}": {"micro_batch_size": 2, "zero_stage": stage} for stage in range(4)}
    | {f"offload-{stage}": {"micro_batch_size": 2, "zero_stage": stage, "cpu_offload": True} for stage in range(4)},
    2: {f"2x{m}-stage-{stage}": {"micro_batch_size": m, "zero_stage": stage} for m in (4, 1) for stage in range(4)}
    | {f"2-offload-{s}": {"micro_batch_size": 2, "zero_stage": s, "cpu_offload": True} for s in range(4)},
    4: {f"hsdp-{stage}": {"micro_batch_size": 1, "zero_stage": stage, "shard_size": 2} for stage in (1, 2, 3)}
    | {f"4-stage-{stage}": {"micro_batch_size": 2, "zero_stage": stage} for stage in range(4)}
    | {"hsdp-offload": {"micro_batch_size": 1, "zero_stage": 3, "shard_size": 2, "cpu_offload": True}},
}
"""By the number of ranks."""


@pytest.fixture(scope="module")
def config() -> RunConfig:
    """Widths and a vocabulary that no number of ranks shares out evenly."""
    model = {"hidden_size": 36, "intermediate_size": 90, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    training = {"steps": 1, "global_batch_size": 8, "micro_batch_size": 8, "max_grad_norm": MAX_NORM}
    values = {"model": {**model, "vocab_size": 503}, "data": {"sequence_length": LENGTH}, "training": training}
    return RunConfig.model_validate(values)


@pytest.fixture(scope="module")
def steps(
    config: RunConfig,
    tmp_path_factory: pytest.TempPathFactory,
    on_ranks: Callable[[int, str, RunConfig, Path], None],
) -> Path:
    folder = tmp_path_factory.mktemp("gradients")
    for size, layouts in LAYOUTS.items():
        (folder / "layouts.json").write_text(json.dumps(layouts))
        on_ranks(size, "gradients_worker.py", config, folder)
    return folder


@pytest.fixture(scope="module")
def plain(config: RunConfig) -> tuple[float, dict[str, Tensor], float]:
    """Loss, gradient and norm as anyone would compute them."""
    rows = np.stack([np.random.default_rng(i).integers(0, 503, LENGTH + 1) for i in range(len(COUNTED))])
    tokens = torch.from_numpy(rows)
    labels = tokens[:, 1:].masked_fill(torch.arange(LENGTH) >= torch.tensor(COUNTED)[:, None], -100)
    model = Decoder(config.model)
    initialize_weights(model, config.training.seed)
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), labels.flatten())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    norm = torch.linalg.vector_norm(torch.cat([gradient.flatten().double() for gradient in gradients]))
    return loss.item(), dict(zip(dict(model.named_parameters()), gradients, strict=True)), norm.item()


@pytest.mark.parametrize(("size", "name"), [(size, name) for size, names in LAYOUTS.items() for name in names])
def test_every_layout_has_loss_gradient_and_clipped_gradient_of_a_plain_loop(
    steps: Path, plain: tuple[float, dict[str, Tensor], float], size: int, name: str
) -> None:
    loss, gradients, norm = plain
    assert norm > 2 * MAX_NORM, "or there is nothing to clip"
    found = [torch.load(steps / f"{name}.{rank}.pt") for rank in range(size)]
    assert len({(each["loss"], each["norm"]) for each in found}) == 1, "the ranks disagree about the norm or the loss"
    for each in found:
        assert each["tokens"] == sum(COUNTED)
        assert each["loss"] == pytest.approx(loss, abs=1e-5)
        assert each["norm"] == pytest.approx(norm, rel=1e-5)
        assert each["gradient"].keys() == each["clipped"].keys() == gradients.keys()
        for parameter, gradient in gradients.items():
            torch.testing.assert_close(each["gradient"][parameter], gradient, atol=1e-6, rtol=1e-4)
            expected = gradient * (MAX_NORM / norm)
            torch.testing.assert_close(each["clipped"][parameter], expected, atol=1e-7, rtol=1e-4)
