"""Lineage: the tree of what a dataset was made from, down to its raw files, each link checked by digest."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import RAW_FILES_NAME, InputRef, Kind
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_size, load_input


@dataclass(frozen=True)
class Node:
    """One dataset of the tree."""

    kind: str
    name: str
    digest: str
    path: str
    stage: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    """Why the tree cannot be followed here, if it cannot."""
    inputs: tuple["Node", ...] = ()

    def to_json(self) -> dict[str, Any]:
        """This node and all below it."""
        own = {key: value for key, value in vars(self).items() if key != "inputs" and value}
        return {**own, "inputs": [node.to_json() for node in self.inputs]}


def trace_lineage(loaded: LoadedManifest[Any]) -> Node:
    """The tree below a manifest. A link that leads nowhere, or to other content, becomes a node with a `problem`."""
    manifest = loaded.manifest
    counts = {name: count for name, count in manifest.counts.model_dump().items() if count}
    return Node(
        kind=manifest.kind,
        name=manifest.name,
        digest=manifest.digest,
        path=loaded.url,
        stage=f"{manifest.stage.name} v{manifest.stage.version}",
        counts=counts,
        inputs=tuple(_input_node(loaded, i, ref) for i, ref in enumerate(manifest.inputs)),
    )


def _input_node(loaded: LoadedManifest[Any], index: int, ref: InputRef) -> Node:
    try:
        return _raw_node(loaded, index, ref) if ref.kind is Kind.RAW else trace_lineage(load_input(loaded, index))
    except (TokenmillError, OSError) as error:
        path = loaded.input_url(index)
        return Node(kind=ref.kind, name=ref.name, digest=ref.digest, path=path, problem=str(error))


def _raw_node(loaded: LoadedManifest[Any], index: int, ref: InputRef) -> Node:
    """Raw files are many and large: here they are looked for and not read; `prep verify --inputs` reads them."""
    root = loaded.input_url(index)
    files = [row for row in read_raw_files(loaded) if row["input"] == ref.name]
    missing = [row["path"] for row in files if storage.is_local(root) and not storage.exists(raw_url(root, row))]
    return Node(
        kind=ref.kind,
        name=ref.name,
        digest=ref.digest,
        path=root,
        counts={"files": len(files), "bytes": sum(row["bytes"] for row in files)},
        problem=f"{len(missing)} of {len(files)} raw files are not at {root} any more: {missing[0]}" if missing else "",
    )


def raw_url(root: str, row: dict[str, Any]) -> str:
    """Where a raw file of an input lay, given a row of `read_raw_files` and the input's place."""
    return storage.as_stored(storage.join(root, row["path"]))


def read_raw_files(loaded: LoadedManifest[Any]) -> list[dict[str, Any]]:
    """The raw files that a dataset was made from: `input`, `path` below it, `bytes`, `sha256`.

    Errors: `VerificationError` where that listing is missing or was changed.
    """
    for entry in loaded.manifest.files:
        if entry.path == RAW_FILES_NAME:
            check_size(loaded, entry)
            check_hash(loaded, entry)
            return [orjson.loads(line) for line in storage.read_bytes(loaded.file_url(RAW_FILES_NAME)).splitlines()]
    return []
