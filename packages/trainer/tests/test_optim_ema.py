"""The average of the weights: its course, its place in checkpoints, its export."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.resume import check_resumable
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.trained_model import load_trained

MakeConfig = Callable[..., RunConfig]
NAME = "layers.1.mlp.up_proj.weight"


def weight(engine: Engine) -> torch.Tensor:
    return dict(engine.model.named_parameters())[NAME].detach().clone()


def average(engine: Engine) -> torch.Tensor:
    assert engine.average is not None
    return engine.average.tensors[NAME].clone()


def train(engine: Engine, until: int) -> list[torch.Tensor]:
    weights = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is not None:
            weights.append(weight(engine))
            if report.progress.step == until:
                break
    return weights


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_it_follows_the_weights(make_config: MakeConfig, source: GlobalBatches, zero_stage: int) -> None:
    config = make_config(ema={"decay": 0.75}, training={"zero_stage": zero_stage})
    with initialize(config, source) as engine:
        expected = weight(engine)
        assert torch.equal(average(engine), expected)
        for now in train(engine, 6):
            expected = 0.75 * expected + 0.25 * now
        torch.testing.assert_close(average(engine), expected, atol=1e-6, rtol=1e-5)


def test_it_changes_nothing_else_and_resumes_to_the_bit(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(), source) as engine:
        without = train(engine, 6)[-1]
    config = make_config(ema={"decay": 0.9})
    with initialize(config, source) as engine:
        train(engine, 4)
        checkpoint.save(engine, tmp_path)
        assert torch.equal(train(engine, 6)[-1], without)
        expected = average(engine)
    with initialize(config, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        train(engine, 6)
        assert torch.equal(average(engine), expected)


def test_a_run_may_begin_to_keep_one_and_cease(tmp_path: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    plain, averaging = make_config(), make_config(ema={"decay": 0.9})
    with initialize(plain, source) as engine:
        train(engine, 2)
        checkpoint.save(engine, tmp_path)
    found = require_verified(tmp_path, pytest.fail)
    with pytest.raises(ConfigError, match=r"ema.decay: 0.9 here, None in the checkpoint; .*--allow-change optimizer"):
        check_resumable(averaging, None, found.manifest, ())
    check_resumable(averaging, None, found.manifest, {"optimizer"})
    with initialize(averaging, source) as engine:
        checkpoint.restore(engine, found)
        assert torch.equal(average(engine), weight(engine))
        train(engine, 4)
        checkpoint.save(engine, tmp_path)
        trained = weight(engine)
    with initialize(plain, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        assert torch.equal(weight(engine), trained)


def test_it_can_be_had_in_place_of_the_last_weights(
    tmp_path: Path, mixture: Path, run_toml: Path, pretrain: Callable[..., object]
) -> None:
    common = ("run", "--config", run_toml, "--mixture", mixture, "--set", "training.steps=4")
    pretrain(*common, "--out", tmp_path / "run", "--set", "ema.decay=0.5")
    run = RunFolder(tmp_path / "run")
    last, averaged = (dict(load_trained(run, pytest.fail, average=on).model.named_parameters()) for on in (False, True))
    assert last.keys() == averaged.keys()
    assert not torch.equal(last[NAME], averaged[NAME])
    torch.testing.assert_close(last[NAME], averaged[NAME], atol=0.02, rtol=0)

    done = pretrain("export", tmp_path / "run", "--out", tmp_path / "averaged", "--ema")
    assert "logits within" in done.stdout  # type: ignore[attr-defined]
    from safetensors.torch import load_file

    exported = load_file(tmp_path / "averaged" / "model.safetensors")
    assert torch.equal(exported[f"model.{NAME}"], averaged[NAME])

    refused = pretrain("export", tmp_path / "run", "--out", tmp_path / "averaged", check=False)
    assert "holds something else already" in refused.stderr  # type: ignore[attr-defined]

    pretrain(*common, "--out", tmp_path / "none")
    with pytest.raises(InputError, match=r"keeps no average of the weights; train with --set ema.decay=0.999"):
        load_trained(RunFolder(tmp_path / "none"), pytest.fail, average=True)
