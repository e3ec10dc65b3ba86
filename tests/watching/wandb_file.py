"""Reads the file that Weights & Biases writes offline: LevelDB's log format, with a head of its own."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

BLOCK, HEAD = 32768, 7


def records(path: Path) -> Iterator[Any]:
    """Every record of the file."""
    content, place, parts = path.read_bytes(), HEAD, b""
    while place + HEAD <= len(content):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def history(path: Path) -> list[dict[str, Any]]:
    """The rows that were logged."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def summary(path: Path) -> dict[str, Any]:
    """What stands in the run's summary at its end."""
    found: dict[str, Any] = {}
    for record in records(path):
        for item in record.summary.update if record.WhichOneof("record_type") == "summary" else []:
            found[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return found
