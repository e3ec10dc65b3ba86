"""Texts from prompts while a model is trained: the same on any number of ranks, and nothing that training notices."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer import initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.evaluation.prompts import SamplesConfig, continue_prompts, read_prompts
from tokenmill_trainer.generation import SampleConfig, generate_ids

PROMPTS = [[5, 9, 60, 1], [7], [i % 500 for i in range(40)]]
GREEDY = SampleConfig(num_tokens=40, temperature=0)
MakeConfig = Callable[..., RunConfig]


def train(config: RunConfig, source: GlobalBatches, prompts: bool) -> tuple[list[list[float]], list[list[int]]]:
    """(loss, norm) of each step, and what the model made of the prompts after step 3."""
    reports, texts = [], []
    with initialize(config, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is None:
                continue
            reports.append([report.loss, report.grad_norm])
            if prompts and report.progress.step == 3:
                texts = continue_prompts(engine.model, engine.world, PROMPTS, GREEDY, window=32, vocab_size=None)
    return reports, texts


@pytest.fixture
def one_process(make_config: MakeConfig, source: GlobalBatches) -> tuple[list[list[float]], list[list[int]]]:
    return train(make_config(), source, prompts=True)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_does_not_notice(make_config: MakeConfig, source: GlobalBatches, precision: str) -> None:
    config = make_config(training={"precision": precision}, model={"moe": {"num_experts": 4, "experts_per_token": 2}})
    assert train(config, source, prompts=True)[0] == train(config, source, prompts=False)[0]


def test_the_texts_are_those_of_the_model_alone(make_config: MakeConfig, source: GlobalBatches) -> None:
    with initialize(make_config(training={"steps": 3}, schedule={"kind": "constant"}), source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            engine.step()
        alone = [list(generate_ids(engine.model, ids, 32, GREEDY)) for ids in PROMPTS]
    texts = train(make_config(schedule={"kind": "constant"}), source, prompts=True)[1]
    assert texts == alone
    assert all(len(text) == 40 for text in texts)


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_two_ranks_write_what_one_writes(
    one_process: tuple[list[list[float]], list[list[int]]], two_ranks: Path, zero_stage: int
) -> None:
    reports, texts = json.loads((two_ranks / f"stage-{zero_stage}.json").read_text())
    torch.testing.assert_close(torch.tensor(reports), torch.tensor(one_process[0]), atol=1e-5, rtol=0)
    assert texts == one_process[1]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, on_two_ranks: Callable[[str, RunConfig, Path], None]) -> Path:
    folder = tmp_path_factory.mktemp("two-ranks")
    model = {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    config = RunConfig.model_validate(
        {
            "model": {**model, "vocab_size": 503},
            "data": {"sequence_length": 32},
            "optimizer": {"lr": 0.01},
            "training": {"steps": 6, "global_batch_size": 8, "micro_batch_size": 4},
        }
    )
    on_two_ranks("prompts_worker.py", config, folder)
    return folder


def test_the_average_writes_in_place_of_the_weights_and_both_stay_as_they_were(
    make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(ema={"decay": 0.9}), source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            engine.step()
        weights = {name: value.clone() for name, value in engine.model.named_parameters()}
        assert engine.average is not None
        average = {name: value.clone() for name, value in engine.average.tensors.items()}
        with engine.average.in_place():
            inside = {name: value.clone() for name, value in engine.model.named_parameters()}
        for name, value in engine.model.named_parameters():
            assert torch.equal(inside[name], average[name])
            assert not torch.equal(inside[name], weights[name])
            assert torch.equal(value, weights[name])
            assert torch.equal(engine.average.tensors[name], average[name])


def test_prompts_come_from_settings_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("Once upon\n\n  def main\n", "utf-8")
    config = SamplesConfig(interval=1, prompts=("a\nb",), prompts_file=str(file))
    assert read_prompts(config) == ["a\nb", "Once upon", "  def main"]


def test_no_prompt_or_no_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interval: 5, but there is no prompt"):
        validate_config(SamplesConfig, {"interval": 5}, "run.toml")
    (tmp_path / "empty.txt").write_text("\n")
    for name, reason in (("missing.txt", "cannot be read"), ("empty.txt", "has no line with a prompt")):
        with pytest.raises(ConfigError, match=rf"samples\.prompts_file: .*{name} {reason}"):
            read_prompts(SamplesConfig(interval=5, prompts_file=str(tmp_path / name)))
