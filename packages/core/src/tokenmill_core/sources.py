"""Documents for a stage, whether its inputs are raw files or documents manifests: tasks, and the batches of a task."""

from collections.abc import Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.manifest import DocumentsManifest
from tokenmill_core.pieces import TARGET_BYTES, group_pieces, plan_documents, plan_pieces
from tokenmill_core.readers import Piece, ReadOptions, read_pieces
from tokenmill_core.stage import Inputs, Task

TASKS = 64
"""Tasks that inputs are cut into, about, unless these would be smaller or larger than is sensible."""
LEAST_BYTES = 4 << 20
"""Bytes on disk below which a task is not worth its start."""


def plan_inputs(inputs: Inputs, options: ReadOptions, target_bytes: int = TARGET_BYTES) -> list[Piece]:
    """All pieces of all inputs in their order. Manifests that are not of documents are passed over."""
    pieces = plan_pieces(inputs.raw, options, target_bytes)
    for loaded in inputs.manifests:
        if isinstance(loaded.manifest, DocumentsManifest):
            pieces += plan_documents(loaded.folder, loaded.manifest.files, target_bytes)
    return pieces


def document_tasks(inputs: Inputs, options: ReadOptions, most_bytes: int = TARGET_BYTES) -> list[Task]:
    """A task for each group of small files, and for each share of a large one. Depends on the data alone.

    A task takes a 64th of all that lies on disk, so that little data is enough for many workers, within the bounds of
    `LEAST_BYTES` and `most_bytes`.
    """
    target_bytes = max(min(_bytes_on_disk(inputs) // TASKS, most_bytes), min(LEAST_BYTES, most_bytes))
    groups = group_pieces(plan_inputs(inputs, options, target_bytes), target_bytes)
    return [
        Task(index=index, payload={"pieces": [piece.to_json() for piece in group]}, weight=sum(p.bytes for p in group))
        for index, group in enumerate(groups)
    ]


def _bytes_on_disk(inputs: Inputs) -> int:
    raw = sum(file.bytes for group in inputs.raw for file in group.files)
    documents = [loaded.manifest for loaded in inputs.manifests if isinstance(loaded.manifest, DocumentsManifest)]
    return raw + sum(entry.bytes for manifest in documents for entry in manifest.files if entry.documents is not None)


def task_pieces(task: Task) -> list[Piece]:
    """The pieces that a task of `document_tasks` reads."""
    return [Piece.from_json(value) for value in task.payload["pieces"]]


def read_task(task: Task, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a task, in order; `account` takes them in."""
    yield from read_pieces(task_pieces(task), options, account)
