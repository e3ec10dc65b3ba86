"""Builds: what is done again and what is not, and what lies there afterwards."""

import dataclasses
import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest
from letters import LettersConfig, build

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError, StageError, VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest, verify_files
from tokenmill_core.work_folder import work_folder

HELPERS = Path(__file__).parent / "helpers"
ALL_TASKS = [f"{phase} {index}" for phase in ("split", "write") for index in range(4)]


def test_a_build_accounts_for_everything_and_verifies(make, raw, tmp_path):
    built = make(min_letters=4, upper=True)
    manifest = built.loaded.manifest
    verify_files(built.loaded)
    total = sum(len(line) for path in raw.iterdir() for line in path.read_bytes().splitlines())
    assert (manifest.counts.input_documents, manifest.counts.input_bytes) == (11, total)
    assert (manifest.counts.documents, manifest.ledger[0].reason, manifest.ledger[0].documents) == (6, "too_short", 5)
    assert (tmp_path / "out/letters-00001.txt").read_bytes() == b"ALPHA 1\nGAMMA X\n"
    names = ["letters-00000.txt", "letters-00001.txt", "letters-00002.txt", "raw_files.jsonl"]
    assert [entry.path for entry in manifest.files] == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*names, "manifest.json"}


def test_what_is_up_to_date_is_left_alone_and_says_so(make, tmp_path, task_log):
    assert not make().up_to_date
    assert task_log() == ALL_TASKS
    before = (tmp_path / "out/manifest.json").stat().st_mtime_ns
    assert make().up_to_date
    assert task_log() == []
    assert (tmp_path / "out/manifest.json").stat().st_mtime_ns == before
    assert not make(force=True).up_to_date
    assert task_log() == ALL_TASKS


def test_a_changed_setting_builds_again_and_clears_the_old_files(make, tmp_path, snapshot):
    make(min_letters=0)
    assert (tmp_path / "out/letters-00003.txt").exists()
    assert not make(min_letters=4).up_to_date
    make("clean", min_letters=4)
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "clean")


def test_an_output_without_files_clears_the_old_ones_too(make, tmp_path):
    # Made from a manifest there is no listing of raw files either, so nothing at all is moved in.
    make("first")
    make(inputs=[str(tmp_path / "first")])
    assert (tmp_path / "out/letters-00000.txt").exists()
    built = make(inputs=[str(tmp_path / "first")], min_letters=100)
    assert built.loaded.manifest.files == ()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json"}


def test_a_changed_raw_file_builds_again(make, raw):
    first = make()
    (raw / "f0.txt").write_text("other\n")
    second = make()
    assert not second.up_to_date
    assert second.loaded.manifest.digest != first.loaded.manifest.digest


@pytest.mark.parametrize("damage", ["shorter", "gone", "manifest cut", "manifest edited"])
def test_a_damaged_output_is_built_again(make, tmp_path, snapshot, damage):
    make()
    out = tmp_path / "out"
    clean = snapshot(out)
    if damage == "shorter":
        (out / "letters-00000.txt").write_bytes(b"x")
    elif damage == "gone":
        (out / "letters-00000.txt").unlink()
    else:
        text = (out / "manifest.json").read_text()
        edited = text[:-40] if damage == "manifest cut" else text.replace('"upper": false', '"upper": true')
        assert edited != text
        (out / "manifest.json").write_text(edited)
    assert not make().up_to_date
    assert snapshot(out) == clean


def test_the_number_of_workers_does_not_show(make, tmp_path, snapshot):
    make("one", workers=1)
    make("two", workers=2)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_finished_tasks_are_not_run_again(make, tmp_path, snapshot, task_log, monkeypatch):
    monkeypatch.setenv("LETTERS_FAIL", "value")
    with pytest.raises(StageError, match="task 1 of phase 'write' failed: ValueError: bad luck"):
        make()
    assert not (tmp_path / "out/manifest.json").exists()
    assert task_log() == [*ALL_TASKS[:4], "write 0", "write 1"]
    monkeypatch.delenv("LETTERS_FAIL")
    make()
    assert task_log() == ["write 1", "write 2", "write 3"]
    make("clean")
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "clean")


def test_another_setting_never_meets_unfinished_work(make, task_log, monkeypatch):
    monkeypatch.setenv("LETTERS_FAIL", "value")
    with pytest.raises(StageError):
        make()
    monkeypatch.delenv("LETTERS_FAIL")
    task_log()
    make(upper=True)
    assert task_log() == ALL_TASKS


def test_a_kill_at_any_change_to_the_disk_leaves_the_truth_and_a_rerun_repairs(raw, tmp_path):
    """Every single step, from the first folder made to the last one removed, over an older build with more files."""
    for name in ("f1.txt", "f2.txt"):
        (raw / name).unlink()
    (tmp_path / "crash").mkdir()
    script = [str(HELPERS / "crash_everywhere.py"), "{}", json.dumps({"min_letters": 4}), str(raw)]
    run = subprocess.run([sys.executable, *script, str(tmp_path / "crash")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, *steps = map(json.loads, run.stdout.splitlines())
    assert len(steps) > 40
    states = [step["state"] for step in steps]
    old, new = first["expected"]["before"], first["expected"]["after"]
    # The old dataset, then none, then the new one: and each was checked against its files where it was found.
    assert states == sorted(states, key=[old, None, new].index)
    assert set(states) == {old, None, new}
    assert {step["rerun"] for step in steps} == {first["clean"]}


def test_a_second_build_of_one_output_is_refused(make, raw, tmp_path):
    stage = build(LettersConfig(), [str(raw)], "letters")
    with work_folder(str(tmp_path / "out"), stage.fingerprint()):
        with pytest.raises(StageError, match="another process is building this"):
            make()
        make("elsewhere")


def test_a_lock_that_was_removed_meanwhile_locks_nothing(make, tmp_path, monkeypatch):
    """A build removes the lock's file at its end; who had opened it before would lock what nobody else looks at."""
    real, lock = fcntl.flock, tmp_path / "out/.work/lock"

    def flock_after_the_other_is_through(*arguments):
        lock.unlink()
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock_after_the_other_is_through)
        with pytest.raises(StageError, match="another process"):
            make()
    assert not make().up_to_date


def test_unfinished_work_of_other_settings_survives_a_look_at_what_is_up_to_date(make, tmp_path, task_log, monkeypatch):
    make()
    monkeypatch.setenv("LETTERS_FAIL", "value")
    with pytest.raises(StageError):
        make(upper=True)
    monkeypatch.delenv("LETTERS_FAIL")
    task_log()
    assert make().up_to_date
    assert not make(upper=True).up_to_date
    assert task_log() == ["write 1", "write 2", "write 3"]
    assert not (tmp_path / "out/.work").exists()


@pytest.mark.parametrize("names", [["notes.txt"], ["manifest.json", "index.html"]])
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(make, tmp_path, names, snapshot):
    out = tmp_path / "out"
    out.mkdir()
    for name in names:
        (out / name).write_text('{"name": "a web page\'s manifest"}')
    before = snapshot(out)
    with pytest.raises(InputError, match="the folder holds other files"):
        make()
    assert snapshot(out) == before


def test_an_empty_folder_is_welcome_and_a_file_is_not(make, tmp_path):
    (tmp_path / "out").mkdir()
    make()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="this is a file"):
        make("file")


def test_a_stage_with_files_wants_a_folder(make, tmp_path):
    with pytest.raises(InputError, match="name a folder"):
        make("out.json")
    assert not (tmp_path / "out.json").exists()


def test_an_input_is_never_built_over(make, tmp_path, snapshot):
    make("first")
    before = snapshot(tmp_path / "first")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    for out in ("first", "link", "raw/../first"):
        with pytest.raises(InputError, match="this is an input of the build"):
            make(out, inputs=[str(tmp_path / "first")])
    assert snapshot(tmp_path / "first") == before


def test_a_retired_manifest_cannot_make_a_build_remove_files_elsewhere(make, tmp_path):
    make()
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    manifest = tmp_path / "out/manifest.json"
    manifest.write_text(manifest.read_text().replace("letters-00003.txt", "../precious.txt"))
    make()
    assert precious.read_text() == "mine"


def test_an_input_dataset_that_changed_is_refused(make, tmp_path):
    make("first")
    file = tmp_path / "first/letters-00001.txt"
    file.write_bytes(file.read_bytes().swapcase())
    with pytest.raises(VerificationError, match=r"letters-00001\.txt: sha256 is"):
        make(inputs=[str(tmp_path / "first")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\udcff"])
def test_a_name_that_no_manifest_can_hold_is_refused(raw, tmp_path, name):
    stage = dataclasses.replace(build(LettersConfig(), [str(raw)], None), dataset_name=name)
    with pytest.raises(ConfigError, match="--name"):
        build_stage(stage, str(tmp_path / "out"), LocalExecutor(1))


def test_an_infinite_setting_is_recorded_and_known_again(make):
    assert make(factor=float("inf")).loaded.manifest.config["factor"] == "inf"
    assert make(factor=float("inf")).up_to_date
    assert not make(factor=float("-inf")).up_to_date


@pytest.mark.parametrize("place", ["memory://builds/{}/out", "{}/with [brackets]/ü ö/out"])
def test_outputs_elsewhere_and_under_odd_names(raw, tmp_path, place):
    out = place.format(tmp_path.name if "://" in place else tmp_path)
    for settings, files in (({}, 5), ({"min_letters": 4}, 4)):
        stage = build(LettersConfig(**settings), [str(raw)], "letters")
        built = build_stage(stage, out, LocalExecutor(1))
        verify_files(load_manifest(out))
        assert len(built.loaded.manifest.files) == files
        assert build_stage(stage, out, LocalExecutor(1)).up_to_date
    fs, path = storage.filesystem(out)
    left = {found.rpartition("/out/")[2] for found in fs.find(path)}
    assert left == {"manifest.json", *(entry.path for entry in built.loaded.manifest.files)}
