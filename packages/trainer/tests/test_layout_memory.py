"""Memory of model states: the paper's account against its table, ours against what ranks really hold."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill_trainer import RunConfig
from tokenmill_trainer.layout.config import LayoutConfig, ZeroStage
from tokenmill_trainer.layout.memory import Units, model_states, published_states


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
        for units, at_rest, peak in ranks:
            expected = model_states(Units(*units), LayoutConfig(**layout), num_ranks)
            assert at_rest == pytest.approx(expected.at_rest, rel=0.01), layout
            assert peak == pytest.approx(expected.total, rel=0.05), layout
