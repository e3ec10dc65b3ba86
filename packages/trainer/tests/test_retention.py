"""Which checkpoints stay: the newest, those of every so many steps, and nothing goes before a newer one is complete."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from tokenmill_core.config import dump_toml
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.retention import CheckpointConfig, future, removable
from tokenmill_trainer.checkpoints.store import list_checkpoints, require_verified
from tokenmill_trainer.cli.root import pretrain

MakeConfig = Callable[..., RunConfig]


def named(*steps: int) -> list[Path]:
    return [Path(f"step-{step:08d}") for step in steps]


@pytest.mark.parametrize(
    ("settings", "newest", "gone"),
    [
        ({"keep_last": 1}, 50, (40, 30, 20, 10)),
        ({"keep_last": 2}, 50, (30, 20, 10)),
        ({"keep_last": 9}, 50, ()),
        ({"keep_last": 1, "keep_every": 20}, 50, (30, 10)),
        ({"keep_last": 2, "keep_every": 20}, 50, (30, 10)),
        pytest.param({"keep_last": 2}, 30, (50, 40, 10), id="come back to before 40"),
        pytest.param({"keep_last": 1, "keep_every": 20}, 30, (50, 40, 10), id="come back to before 40, a kept one"),
    ],
)
def test_what_goes_once_a_newer_one_is_complete(settings: dict[str, Any], newest: int, gone: tuple[int, ...]) -> None:
    config = CheckpointConfig(interval=10, **settings)
    assert removable(named(50, 40, 30, 20, 10), config, newest) == named(*gone)


def test_the_list_foretells_what_the_next_save_removes() -> None:
    config = CheckpointConfig(interval=10, keep_last=2, keep_every=20)
    before = named(50, 40, 30, 20, 10)
    gone = removable(named(60, *(int(path.name[5:]) for path in before)), config, 60)
    foretold = future(before, config)
    assert foretold == ["stays", "for ever", "goes", "for ever", "goes"]
    assert [path for path, what in zip(before, foretold, strict=True) if what == "goes"] == gone


def test_steps_that_are_never_saved_cannot_be_kept() -> None:
    with pytest.raises(
        ValidationError, match=r"keep_every: 750 is no multiple of checkpoint.interval 500.*set it to 1000"
    ):
        CheckpointConfig(interval=500, keep_every=750)


def test_what_a_run_was_resumed_from_stays_until_a_newer_one_is_complete(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, largest_file: Any
) -> None:
    config = make_config(checkpoint={"keep_last": 1})
    with initialize(config, source) as engine:
        checkpoint.save(engine, tmp_path)
    with initialize(config, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        for batch in engine.batches():
            engine.backward(engine(batch))
            engine.step()
            with largest_file(50_000), pytest.raises(checkpoint.CheckpointError):
                checkpoint.save(engine, tmp_path)
            assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000000"]
            checkpoint.save(engine, tmp_path)
            break
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_run_keeps_what_it_was_told_to_and_lists_it(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    config = make_config(checkpoint={"interval": 1, "keep_every": 3, "keep_last": 2}, training={"steps": 5})
    with initialize(config, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            engine.step()
            checkpoint.save(engine, tmp_path / "checkpoints")
    (tmp_path / "config.toml").write_text(dump_toml(config))
    rows = listed(tmp_path)
    assert [(row["step"], row["retention"]) for row in rows] == [(5, "stays"), (4, "goes"), (3, "for ever")]
    assert {row["world_size"] for row in rows} == {1}
    (tmp_path / "config.toml").unlink()
    rows = listed(tmp_path, "--verify")
    assert [(row["step"], row["state"]) for row in rows] == [(5, "verified"), (4, "verified"), (3, "verified")]
    assert "retention" not in rows[0]


def listed(run: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(pretrain, ["checkpoints", str(run), "--json", *options])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows
