"""events.jsonl: what the guard has found and done, one object an event, with the documents that were in the batch.

Unlike metrics.jsonl it is never rewritten: a past that a rollback has undone stays on record here.
"""

import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

from tokenmill_core.errors import TokenmillError
from tokenmill_shards.audit.trace import Row, Tracer
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.guard.anomaly import Anomaly

MAX_DOCUMENTS = 200
"""Parts of documents that an event names; `pretrain trace` and `prep trace` name all."""
NAMED = ("sample", "source", "epoch", "file", "row", "id", "first_token", "last_token")


class EventLog:
    """Appends to `path`, or to nothing where that is none, as on ranks other than 0."""

    def __init__(self, path: Path | None, reader: MixtureReader | PackedReader | None) -> None:
        self._path, self._reader = path, reader

    def found(self, anomaly: Anomaly) -> None:
        """Record a step, with its documents; those that cannot be named, for whatever reason, stay unnamed."""
        if self._path is not None:
            self.write({**anomaly.record(), **self._documents(anomaly.samples)})

    def write(self, event: dict[str, Any]) -> None:
        """Add an event; it is in the file when this returns. What is no number in JSON is written as text."""
        if self._path is None:
            return
        plain = {name: _plain(value) for name, value in event.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n")

    def _documents(self, samples: range) -> dict[str, Any]:
        if self._reader is None:
            return {}
        tracer = Tracer(self._reader, with_text=False, with_paths=False)
        rows = (row for index in samples for row in tracer.samples([index]))
        documents: list[Row] = []
        try:
            documents = [{name: row[name] for name in NAMED} for row in islice(rows, MAX_DOCUMENTS + 1)]
        except (TokenmillError, OSError) as error:
            return {"documents": documents, "documents_problem": str(error)}
        return {"documents": documents[:MAX_DOCUMENTS], "more_documents": len(documents) > MAX_DOCUMENTS}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
