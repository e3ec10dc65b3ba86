import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from tokenmill_core.errors import ConfigError, ManifestError, VerificationError
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import (
    list_checkpoints,
    newest_verified,
    remove_unfinished,
    require_verified,
    verify_checkpoint,
)
from tokenmill_trainer.config import recorded
from tokenmill_trainer.resume import check_resumable

MakeConfig = Callable[..., RunConfig]
LargestFile = Callable[[int], AbstractContextManager[None]]


def train(engine: Engine, until: int, folder: Path | None = None, every: int = 1) -> list[tuple[float, float, float]]:
    reports = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is None:
            continue
        reports.append((report.loss, report.grad_norm, report.lr))
        if folder is not None and report.progress.step % every == 0:
            checkpoint.save(engine, folder)
        if report.progress.step == until:
            break
    return reports


def state(engine: Engine) -> dict[str, torch.Tensor]:
    sections = checkpoint.tensors(engine)
    flat = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return {name: (v.full_tensor() if isinstance(v, DTensor) else v).clone() for name, v in flat.items()}


@pytest.fixture
def three(tmp_path: Path, make_config: MakeConfig, source: GlobalBatches) -> Path:
    """Checkpoints of steps 1, 2 and 3."""
    with initialize(make_config(checkpoint={"keep_last": 3}), source) as engine:
        train(engine, 3, tmp_path)
    return tmp_path


@pytest.mark.parametrize(("stop", "zero_stage"), [(1, 1), (4, 3)])
def test_resume_is_bitwise_the_unbroken_run(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, stop: int, zero_stage: int
) -> None:
    config = make_config(training={"micro_batch_size": 4, "zero_stage": zero_stage}, schedule={"warmup_steps": 3})
    with initialize(config, source) as engine:
        unbroken, expected = train(engine, 6), state(engine)
    with initialize(config, source) as engine:
        before = train(engine, stop, tmp_path, every=stop)
    torch.rand(7)
    with initialize(config, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        assert engine.progress.consumed_samples == 8 * stop
        after = train(engine, 6)
        resumed = state(engine)
    assert before + after == unbroken
    assert expected.keys() == resumed.keys()
    assert [name for name in expected if not torch.equal(expected[name], resumed[name])] == []


def test_a_flipped_byte_in_the_newest_is_passed_over_and_named(three: Path) -> None:
    shard = next((three / "step-00000003").glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    said: list[str] = []
    found = newest_verified(three, said.append)
    assert found is not None
    assert found.manifest.step == 2
    assert len(said) == 1
    assert said[0].startswith("step-00000003 is broken and is passed over: ")
    assert shard.name in said[0]


@pytest.mark.parametrize("pointer", ["", "\n", "step-00000001", "step-00000099"])
def test_no_pointer_to_the_latest_is_believed_blank_or_not(three: Path, pointer: str) -> None:
    for name in ("latest", "latest_checkpointed_iteration.txt"):
        (three / name).write_text(pointer)
    assert require_verified(three, pytest.fail).manifest.step == 3


@pytest.mark.parametrize("victim", ["*.distcp", ".metadata", "random-*", "manifest.json"])
def test_any_missing_file_makes_a_checkpoint_count_for_nothing(three: Path, victim: str) -> None:
    next((three / "step-00000003").glob(victim)).unlink()
    found = newest_verified(three, lambda text: None)
    assert found is not None
    assert found.manifest.step == 2


def test_no_pickle_is_opened_before_its_hash_is_checked(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def refuse(*_: object) -> None:
        raise AssertionError("unpickled")

    (three / "step-00000003" / ".metadata").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    monkeypatch.setattr(pickle, "load", refuse)
    with pytest.raises(VerificationError, match=r"\.metadata"):
        verify_checkpoint(three / "step-00000003")


def test_nothing_to_trust_is_an_error_and_nothing_at_all_a_beginning(three: Path, tmp_path: Path) -> None:
    assert newest_verified(tmp_path / "nowhere", pytest.fail) is None
    for path in list_checkpoints(three):
        (path / "manifest.json").unlink()
    with pytest.raises(VerificationError, match="none of its 3 checkpoints verifies"):
        newest_verified(three, lambda text: None)
    with pytest.raises(ManifestError, match="unfinished"):
        verify_checkpoint(three / "step-00000001")


def test_what_a_kill_leaves_behind_is_no_checkpoint(three: Path) -> None:
    shutil.copytree(three / "step-00000003", three / ".step-00000004.tmp")
    assert [path.name for path in list_checkpoints(three)] == ["step-00000003", "step-00000002", "step-00000001"]
    remove_unfinished(three)
    assert not (three / ".step-00000004.tmp").exists()


def test_retention_keeps_the_newest_and_drops_what_a_resume_passed_over(
    three: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    (three / "step-00000003" / "manifest.json").unlink()
    shutil.copytree(three / "step-00000003", three / "step-00000009")
    with initialize(make_config(checkpoint={"keep_last": 2}), source) as engine:
        checkpoint.restore(engine, require_verified(three, lambda text: None))
        train(engine, 3, three)
    assert [path.name for path in list_checkpoints(three)] == ["step-00000003", "step-00000002"]
    assert verify_checkpoint(three / "step-00000003").manifest.step == 3


def test_a_disk_that_takes_no_more_leaves_the_older_ones(
    three: Path, make_config: MakeConfig, source: GlobalBatches, largest_file: LargestFile
) -> None:
    with initialize(make_config(), source) as engine:
        checkpoint.restore(engine, require_verified(three, pytest.fail))
        train(engine, 4)
        message = r"step-00000004: could not be saved: .*bytes are free there\); earlier checkpoints are as they were"
        with largest_file(50_000), pytest.raises(checkpoint.CheckpointError, match=message):
            checkpoint.save(engine, three)
        assert require_verified(three, pytest.fail).manifest.step == 3
        checkpoint.save(engine, three)
    assert require_verified(three, pytest.fail).manifest.step == 4


def test_tensors_of_another_model_are_refused(three: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    found = require_verified(three, pytest.fail)
    refused = pytest.raises(VerificationError, match=r"missing \['model.layers.2")
    with initialize(make_config(model={"num_layers": 3}), source) as engine, refused:
        checkpoint.restore(engine, found)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"training": {"seed": 1}}, "training.seed: 1 here, 0 in the checkpoint; set it back, or start a new run"),
        ({"data": {"sequence_length": 16}}, "data.sequence_length: 16 here, 32 in the checkpoint"),
        ({"data": {"documents": "separate"}}, "data.documents: 'separate' here, 'join' in the checkpoint"),
        ({"model": {"rope_theta": 5e5}}, "model.rope_theta: 500000.0 here, 10000.0 in the checkpoint"),
        ({"training": {"steps": 12}}, "training.steps: 12 here, 6 in the checkpoint; .* --allow-change schedule"),
        ({"optimizer": {"lr": 0.5}}, "optimizer.lr: 0.5 here, 0.01 in the checkpoint; .* --allow-change schedule"),
        ({"optimizer": {"weight_decay": 0.0}}, "optimizer.weight_decay: .* --allow-change optimizer"),
        ({"training": {"precision": "bf16"}}, "training.precision: 'bf16' here, .* --allow-change precision"),
    ],
)
def test_settings_that_make_another_run_are_refused_by_name(
    three: Path, make_config: MakeConfig, changed: dict[str, dict[str, object]], message: str
) -> None:
    manifest = require_verified(three, pytest.fail).manifest
    check_resumable(make_config(), None, manifest, ())
    with pytest.raises(ConfigError, match=message):
        check_resumable(make_config(**changed), None, manifest, ())


def test_what_may_change_freely_and_what_by_saying_so(three: Path, make_config: MakeConfig, mixture: Path) -> None:
    manifest = require_verified(three, pytest.fail).manifest
    layout = {"global_batch_size": 16, "micro_batch_size": 2, "zero_stage": 3, "compile": True}
    check_resumable(make_config(training=layout, data={"num_workers": 3}), None, manifest, ())
    check_resumable(make_config(training={"steps": 12}), None, manifest, {"schedule"})
    data = load_manifest(str(mixture), MixtureManifest).manifest
    with pytest.raises(ConfigError, match=rf"data.mixture: digest {data.digest[:12]}… here, none in the checkpoint"):
        check_resumable(make_config(), data, manifest, {"schedule"})


def test_the_manifest_says_what_it_was_made_with(three: Path, make_config: MakeConfig) -> None:
    manifest = require_verified(three, pytest.fail).manifest
    assert manifest.config == recorded(make_config(checkpoint={"keep_last": 3}))
    assert (manifest.step, manifest.consumed_samples, manifest.consumed_tokens) == (3, 24, 24 * 32)
    assert {entry.path for entry in manifest.files} == {".metadata", "__0_0.distcp", "random-00000.safetensors"}
