"""Raw rows that gave no document, kept beside the dataset in `rejects.jsonl`, one object a row, in order."""

import base64
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from tokenmill_core.documents import Account, Reject
from tokenmill_core.manifest import FileEntry
from tokenmill_core.stage import Work
from tokenmill_core.storage import HashingWriter

REJECTS_NAME = "rejects.jsonl"


def encode_reject(reject: Reject) -> bytes:
    """One line of `rejects.jsonl`: file, row, reason, bytes, and the row as text, or base64 where it is no UTF-8."""
    raw = reject.raw if len(reject.raw) == reject.bytes else _whole_characters(reject.raw)
    row = {"file": reject.file, "row": reject.row, "reason": reject.reason, "bytes": reject.bytes}
    try:
        row["raw"] = raw.decode("utf-8")
    except UnicodeDecodeError:
        row["raw_base64"] = base64.b64encode(raw).decode("ascii")
    return orjson.dumps(row) + b"\n"


def _whole_characters(data: bytes) -> bytes:
    """`data` without the UTF-8 character that its end may have been cut in."""
    for length in range(len(data), max(len(data) - 4, -1), -1):
        with suppress(UnicodeDecodeError):
            data[:length].decode("utf-8")
            return data[:length]
    return data


@contextmanager
def keeping_rejects(work: Work, phase: str, index: int) -> Iterator[Account]:
    """An account whose rejects are written down for task `index` of `phase`."""
    with HashingWriter(_path(work, phase, index)) as writer:

        def keep(reject: Reject) -> None:
            writer.write(encode_reject(reject))

        yield Account(on_reject=keep)


def gather_rejects(work: Work, phases: Sequence[str]) -> list[tuple[FileEntry, Path]]:
    """All that the tasks of `phases` rejected, as one file, if there is anything."""
    parts = [path for phase in phases for path in sorted((work.folder / phase / "rejects").glob("*.jsonl"))]
    if not any(path.stat().st_size for path in parts):
        return []
    target = work.folder / REJECTS_NAME
    with HashingWriter(target) as writer:
        for path in parts:
            with path.open("rb") as part:
                shutil.copyfileobj(part, writer)
    return [(FileEntry(path=REJECTS_NAME, bytes=writer.bytes, sha256=writer.sha256), target)]


def _path(work: Work, phase: str, index: int) -> Path:
    return work.folder / phase / "rejects" / f"{index:06d}.jsonl"
