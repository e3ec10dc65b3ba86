"""Kill a build at its 1st, 2nd, 3rd … change to the file system, and print what lay there and what a rerun made of it.

    python crash_everywhere.py BEFORE.json AFTER.json RAW FOLDER ─▶ a JSON object a line: `step`, `state`, `rerun`

A build with the settings of BEFORE lies there already; the one that is killed has those of AFTER. `state` is the digest
of the manifest found after the kill, checked against its files, or none; `rerun` is that of the whole folder.
"""

import hashlib
import itertools
import json
import os
import shutil
import sys
from pathlib import Path

from letters import LettersConfig, build

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest, verify_files

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def make(settings: str, raw: str, out: Path) -> None:
    build_stage(build(LettersConfig(**json.loads(settings)), [raw], "letters"), str(out), LocalExecutor(1))


def make_and_die(step: int, settings: str, raw: str, out: Path) -> bool:
    """Whether the build was through before its change number `step`."""
    if (child := os.fork()) == 0:
        left = itertools.count(step, -1)

        def die(event: str, arguments: tuple[object, ...]) -> None:
            writes = event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wax+"
            if (event in CHANGES or writes) and next(left) == 1:
                os._exit(99)

        sys.addaudithook(die)
        make(settings, raw, out)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def digest_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + (path.read_bytes() if path.is_file() else b"/"))
    return digest.hexdigest()


def state_of(out: Path) -> str | None:
    if not (out / "manifest.json").exists():
        return None
    loaded = load_manifest(str(out))
    verify_files(loaded)
    return loaded.manifest.digest


def main(before: str, after: str, raw: str, folder: str) -> None:
    root = Path(folder)
    make(before, raw, root / "before")
    make(after, raw, root / "after")
    expected = {"before": state_of(root / "before"), "after": state_of(root / "after")}
    print(json.dumps({"expected": expected, "clean": digest_of(root / "after")}))
    for step in itertools.count(1):
        out = root / "out"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(root / "before", out)
        through = make_and_die(step, after, raw, out)
        state = state_of(out)
        if state == expected["after"]:
            # Nothing that a build left behind while it was cleaning up may stand in the way of the next one.
            (out / "letters-00000.txt").unlink()
        make(after, raw, out)
        print(json.dumps({"step": step, "state": state, "rerun": digest_of(out), "through": through}))
        if through:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
