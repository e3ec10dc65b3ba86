"""Field cases 32, 38 and 39: kills, full disks and flipped bytes; other numbers of ranks; moved and recompiled runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tokenmill_core.errors import ExitCode, TokenmillError, VerificationError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import list_checkpoints, require_verified, verify_checkpoint
from tokenmill_trainer.cli.run import read_settings
from tokenmill_trainer.loop import train

MakeConfig = Callable[..., RunConfig]
Losses = Callable[[Path], list[float]]
SCENES = {
    "rank 1 while it writes": 2,
    "rank 0 before the manifest": 2,
    "all while they write": 2,
    "all before the rename": 2,
    "all before old ones go": 4,
}
"""Who is killed where in the save of step 4, and the step that a resume goes on from."""


def run_worker(worker: str, *arguments: object) -> str:
    here = Path(__file__).parent
    paths = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "PYTHONPATH": paths}
    command = [sys.executable, str(here / worker), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, mixture: Path, run_toml: Path) -> Path:
    out = tmp_path_factory.mktemp("kills")
    run_worker("kill_worker.py", run_toml, mixture, out)
    return out


@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_in_a_save_costs_no_complete_checkpoint(played: Path, losses: Losses, scene: str) -> None:
    found = json.loads((played / "scenes.json").read_text())[scene]
    names = ["step-00000002", "step-00000004"]
    assert -signal.SIGKILL in found["codes"]
    assert 0 not in found["codes"], "the other rank ended well, or hung"
    assert [name for name in found["left"] if name.startswith("step-")] == names[: SCENES[scene] // 2]
    assert f"resumed from step-{SCENES[scene]:08d}" in found["said"]
    assert found["resumed"] == [0]
    assert found["at_last"] == ["step-00000004", "step-00000006"]
    resumed, unbroken = torch.tensor(losses(played / scene)), torch.tensor(losses(played / "unbroken"))
    torch.testing.assert_close(resumed, unbroken, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def resharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Widths and a vocabulary that neither 4 nor 8 ranks share out evenly."""
    model = {"hidden_size": 36, "intermediate_size": 90, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    values = {
        "model": {**model, "vocab_size": 503},
        "data": {"sequence_length": 32},
        "optimizer": {"lr": 0.01},
        "ema": {"decay": 0.9},
        "training": {"steps": 8, "global_batch_size": 8, "micro_batch_size": 1},
    }
    out = tmp_path_factory.mktemp("resharded")
    run_worker("reshard_worker.py", RunConfig.model_validate(values).model_dump_json(), out)
    return out


@pytest.mark.parametrize("size", [2, 1, 8])
def test_what_four_ranks_saved_is_the_same_on_any_number(resharded: Path, size: int) -> None:
    saved, other = (json.loads((resharded / f"{n}.json").read_text()) for n in (4, size))
    assert other["differing"] == []
    assert len(other["losses"]) == 5
    unbroken, resumed = (torch.tensor(each, dtype=torch.float64) for each in (saved["losses"][3:], other["losses"]))
    torch.testing.assert_close(resumed, unbroken, atol=1e-5, rtol=0)


def test_a_shard_of_four_that_is_missing_is_an_error(resharded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(resharded / "step-00000003", tmp_path / "step-00000003")
    assert verify_checkpoint(folder).manifest.world_size == 4
    (folder / "__2_0.distcp").unlink()
    with pytest.raises(VerificationError, match=r"__2_0\.distcp: missing"):
        verify_checkpoint(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder]).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_small_disk_ends_the_run_and_keeps_what_is_complete(
    small_disk: Path, tmp_path: Path, mixture: Path, run_toml: Path
) -> None:
    out = small_disk / "run"
    sizes = ("model.hidden_size=192", "model.intermediate_size=512", "checkpoint.keep_last=9", "checkpoint.interval=1")
    options = [option for size in (*sizes, "validation.interval=0") for option in ("--set", size)]
    arguments = ("run", "--config", run_toml, "--mixture", mixture, "--out", out, *options)
    assert json.loads(run_worker("forked_ranks.py", 2, tmp_path, *arguments)) == [1, 1]
    last = require_verified(out / "checkpoints", pytest.fail).manifest.step
    names = [path.name for path in list_checkpoints(out / "checkpoints")]
    assert names == [f"step-{step:08d}" for step in range(last, 0, -1)]
    failed = out / "checkpoints" / f"step-{last + 1:08d}"
    said = [(tmp_path / f"{rank}.log").read_text() for rank in (0, 1)]
    assert f"{failed}: could not be saved: " in said[0]
    assert "bytes are free there" in said[0]
    assert "Traceback" not in said[0] + said[1]
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.startswith(".")]


def goes_on(config: RunConfig, source: GlobalBatches, folder: Path, until: int) -> list[float]:
    """Losses up to step `until`, after which the state is saved, from the newest checkpoint if there is one."""
    losses = []
    with initialize(config, source) as engine:
        if list_checkpoints(folder):
            checkpoint.restore(engine, require_verified(folder, pytest.fail))
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            assert report is not None
            losses.append(report.loss)
            if report.progress.step == until:
                checkpoint.save(engine, folder)
                break
    return losses


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_compiled_and_plain_runs_go_on_from_each_other(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    plain, compiled = (
        make_config(model={"num_layers": 1}, training={"compile": compiled}) for compiled in (False, True)
    )
    unbroken = goes_on(plain, source, tmp_path / "unbroken", 6)
    mixed = [
        loss
        for config, until in ((compiled, 2), (plain, 4), (compiled, 6))
        for loss in goes_on(config, source, tmp_path / "mixed", until)
    ]
    torch.testing.assert_close(torch.tensor(mixed), torch.tensor(unbroken), atol=1e-5, rtol=1e-5)


def test_moved_runs_go_on_and_moved_data_is_known_by_its_digest(
    tmp_path: Path, mixture: Path, run_toml: Path, losses: Losses
) -> None:
    def go(run: Path, config: Path | None = None, data: Path | None = None) -> None:
        config_path, mixture_path = (str(path) if path else None for path in (config, data))
        settings = read_settings(config_path, mixture_path, run, config is None, ())
        assert train(settings, run, resume=config is None) == ExitCode.DONE

    def forget_the_last(run: Path) -> None:
        shutil.rmtree(run / "checkpoints" / "step-00000012")

    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(mixture.parent, before / "data")
    go(before / "run", run_toml, before / "data" / mixture.name)
    unbroken = losses(before / "run")
    forget_the_last(before / "run")
    before.rename(after)
    go(after / "run")
    assert losses(after / "run") == unbroken
    forget_the_last(after / "run")
    (after / "data").rename(after / "elsewhere")
    with pytest.raises(TokenmillError, match="data"):
        go(after / "run")
    go(after / "run", data=after / "elsewhere" / mixture.name)
    assert losses(after / "run") == unbroken
    forget_the_last(after / "run")
    (after / "elsewhere" / "tokenizer").rename(after / "vocabulary")
    go(after / "run")
    assert losses(after / "run") == unbroken
