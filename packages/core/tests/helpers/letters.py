"""A small real stage, with probes: each line of a text file is a document, and its letters are written out.

    split   a task a raw file: lines of at least `min_letters` letters, as JSON
    write   a task a raw file: letters-NNNNN.txt, none where nothing is left

Probes come by environment, as they must reach workers and never the output: LETTERS_LOG is a file that gets a line a
task run, LETTERS_SLEEP the seconds a task takes, LETTERS_FAIL the exception that task 1 of `write` raises.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tokenmill_core.documents import Account
from tokenmill_core.manifest import Counts, DocumentsManifest, FileEntry, Frozen
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, resolve_inputs
from tokenmill_core.storage import HashingWriter


class LettersConfig(Frozen):
    upper: bool = False
    min_letters: int = 0
    factor: float = 1.0


class TwoWords(Exception):
    """An exception that cannot be unpickled, as those of many libraries cannot."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


@dataclass(frozen=True)
class LettersStage(Stage):
    name: ClassVar[str] = "letters"
    version: ClassVar[int] = 1

    config: LettersConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        return (Phase("split", self.plan, self.run_split), Phase("write", self.plan, self.run_write))

    def manifest(self, common: dict[str, Any], work: Work) -> DocumentsManifest:
        return DocumentsManifest(**common)

    def plan(self, work: Work) -> Sequence[Task]:
        raw = [file.url for group in self.inputs.raw for file in group.files]
        made = [item.file_url(e.path) for item in self.inputs.manifests for e in item.manifest.files if e.documents]
        return [Task(index=i, payload={"url": url}, weight=1 + i) for i, url in enumerate([*raw, *made])]

    def run_split(self, task: Task, work: Work) -> Report:
        probe("split", task)
        account, kept = Account(), []
        for line in Path(task.payload["url"]).read_text().splitlines():
            account.take_in(1, len(line.encode()))
            if sum(map(str.isalpha, line)) < self.config.min_letters:
                account.drop("too_short", 1, len(line.encode()))
            else:
                kept.append(line)
        work.path("split", f"{task.index}.json").write_text(json.dumps(kept))
        counts = Counts(
            input_documents=account.documents,
            input_bytes=account.bytes,
            documents=len(kept),
            bytes=sum(len(line.encode()) for line in kept),
        )
        return Report(counts=counts, ledger=tuple(account.ledger()))

    def run_write(self, task: Task, work: Work) -> Report:
        probe("write", task)
        lines = json.loads(work.path("split", f"{task.index}.json").read_text())
        before = work.reports("split")[task.index]
        files: list[FileEntry] = []
        if lines:
            with HashingWriter(work.path("write", f"letters-{task.index:05d}.txt")) as writer:
                for line in lines:
                    writer.write((line.upper() if self.config.upper else line).encode() + b"\n")
            files = [FileEntry(path=writer.path.name, bytes=writer.bytes, sha256=writer.sha256, documents=len(lines))]
        return Report(files=tuple(files), counts=before.counts, ledger=before.ledger)


def probe(phase: str, task: Task) -> None:
    if log := os.environ.get("LETTERS_LOG"):
        with open(log, "a") as file:
            file.write(f"{phase} {task.index} {os.getpid()}\n")
    time.sleep(float(os.environ.get("LETTERS_SLEEP", "0")))
    if (phase, task.index) == ("write", 1) and (failure := os.environ.get("LETTERS_FAIL")):
        errors = {"value": ValueError("bad luck"), "two": TwoWords("bad", "luck"), "disk": OSError(28, "full", "/d")}
        raise errors[failure]


def build(config: LettersConfig, inputs: Sequence[str], name: str | None) -> LettersStage:
    resolved = resolve_inputs(inputs, DocumentsManifest)
    return LettersStage(config=config, inputs=resolved, dataset_name=name or resolved.default_name())


STAGE = StageType(config=LettersConfig, build=build)
