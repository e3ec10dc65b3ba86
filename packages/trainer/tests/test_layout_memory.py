"""Memory of model states and activations: the papers' accounts against their tables, ours against what is there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tokenmill_trainer import RunConfig
from tokenmill_trainer.layout.config import DTYPES, LayoutConfig, Precision, ZeroStage
from tokenmill_trainer.layout.memory import Units, block_activations, model_states, published_states
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.model.block import DecoderBlock
from tokenmill_trainer.model.rotary import RotaryTable


@pytest.mark.parametrize(
    ("billions", "num_ranks", "expected"),
    [
        (7.5, 4, (52.5, 41.25, 30)),
        (7.5, 16, (35.6, 21.6, 7.5)),
        (7.5, 64, (31.4, 16.6, 1.88)),
        (7.5, 1024, (30.1, 15.1, 0.12)),
        (128, 64, (536, 284, 32)),
    ],
)
def test_the_paper_s_account_gives_its_table(billions: float, num_ranks: int, expected: tuple[float, ...]) -> None:
    found = [published_states(billions, stage, num_ranks) for stage in (1, 2, 3)]
    assert found == pytest.approx(expected, rel=6e-3 if num_ranks < 1024 else 3e-2)
    assert published_states(billions, 0, num_ranks) == 16 * billions


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_ours_is_the_paper_s_but_for_what_it_says(stage: ZeroStage) -> None:
    ours = model_states(Units(7 * 10**9), LayoutConfig(precision="bf16", zero_stage=stage), 8)
    wider_gradients = ours.gradients / 2
    shards_not_kept = 2 * 7e9 / 8 if stage == 3 else 0
    assert ours.total == pytest.approx(published_states(7e9, stage, 8) + wider_gradients - shards_not_kept)


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_hold_what_the_account_says(
    tmp_path: Path,
    make_config: Callable[..., RunConfig],
    on_ranks: Callable[[int, str, RunConfig, Path], None],
    num_ranks: int,
) -> None:
    model = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 384, "num_layers": 8, "num_heads": 4}
    config = make_config(
        model={**model, "num_kv_heads": 4}, data={"sequence_length": 1}, training={"steps": 2, "micro_batch_size": 1}
    )
    on_ranks(num_ranks, "memory_worker.py", config, tmp_path / "found.json")
    for layout, ranks in json.loads((tmp_path / "found.json").read_text()):
        is_one_micro_batch = layout.pop("global_batch_size", None) == 1
        for units, at_rest, peak in ranks:
            expected = model_states(Units(*units), LayoutConfig(**layout), num_ranks)
            copy_in_turn_with_gradients = expected.computing if is_one_micro_batch else 0
            assert at_rest == pytest.approx(expected.at_rest, rel=0.01), layout
            assert peak == pytest.approx(expected.total - copy_in_turn_with_gradients, rel=0.05), layout


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("num_kv_heads", "length"), [(8, 128), (2, 128), (2, 512)])
def test_a_block_keeps_what_the_account_says(precision: Precision, num_kv_heads: int, length: int) -> None:
    config = ModelConfig(hidden_size=128, intermediate_size=352, num_layers=1, num_heads=8, num_kv_heads=num_kv_heads)
    block = DecoderBlock(config, 0).to(DTYPES[precision])
    rope = RotaryTable(config.head_size, 1e4, None)(0, length, torch.device("cpu"))
    shared = {tensor.untyped_storage() for tensor in (*block.parameters(), *rope)}
    kept: set[torch.UntypedStorage] = set()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.add(tensor.untyped_storage())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        x = torch.randn(2, length, 128, dtype=DTYPES[precision], requires_grad=True)
        result, _ = block(x, rope)
    assert result.requires_grad
    found = sum(storage.nbytes() for storage in kept - shared) / (2 * length)
    assert found == pytest.approx(block_activations(config, precision), rel=0.02)
