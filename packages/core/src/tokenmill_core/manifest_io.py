"""Reading, writing and checking manifests where they lie.

load_manifest(path) ─▶ LoadedManifest ─▶ verify_files, load_input, …
publish(manifest, folder) ─▶ manifest.json, written last
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from pydantic import ValidationError

from tokenmill_core import storage
from tokenmill_core.errors import ManifestError, VerificationError
from tokenmill_core.manifest import MANIFEST_NAME, SCHEMA_VERSION, FileEntry, InputRef, Kind, ManifestBase
from tokenmill_core.manifest_kinds import MANIFEST_ADAPTER, Manifest

M = TypeVar("M", bound=ManifestBase)
_HEAD_BYTES = 200


@dataclass(frozen=True)
class LoadedManifest(Generic[M]):
    """A manifest and the place it was read from."""

    url: str
    manifest: M

    @property
    def folder(self) -> str:
        """The folder that its files are relative to."""
        return storage.parent(self.url)

    def file_url(self, path: str) -> str:
        """Where file `path` of the manifest lies; refused if it leads out of the folder."""
        return storage.inside(self.folder, path)

    def input_url(self, index: int) -> str:
        """Where the manifest (or raw folder) of the input lay when this manifest was written."""
        return storage.from_relative(self.manifest.inputs[index].path, self.folder)


def manifest_url(path: str) -> str:
    """The manifest meant by `path`: itself, or the `manifest.json` of the folder."""
    return storage.join(path, MANIFEST_NAME) if storage.is_folder(path) else path


def is_manifest(path: str) -> bool:
    """Whether `path` is a manifest of ours or a folder that holds one; other software has a `manifest.json` too."""
    url = manifest_url(path)
    if not url.endswith(".json") or not storage.exists(url):
        return False
    # Any other .json may be raw data of any size: a manifest says what it is at once.
    named = url.endswith("/" + MANIFEST_NAME)
    if not named and b'"schema_version"' not in _head(url):
        return False
    return looks_like_manifest(storage.read_bytes(url))


def _head(url: str) -> bytes:
    head = b""
    for chunk in storage.read_chunks(url):  # a server may send a few bytes at a time
        head += chunk
        if len(head) >= _HEAD_BYTES:
            break
    return head[:_HEAD_BYTES]


def looks_like_manifest(content: bytes) -> bool:
    """Whether `content` is a manifest of ours, or was one before it was damaged."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return not content.strip() or content.lstrip()[:_HEAD_BYTES].startswith(b'{\n  "schema_version"')
    return isinstance(value, dict) and {"schema_version", "kind", "digest"} <= value.keys()


@overload
def load_manifest(path: str) -> LoadedManifest[Manifest]: ...
@overload
def load_manifest(path: str, kind: type[M]) -> LoadedManifest[M]: ...
def load_manifest(path: str, kind: type[Any] | None = None) -> LoadedManifest[Any]:
    """Read the manifest at `path` (a folder or a JSON file) and check its digest.

    Errors: `ManifestError` where there is none, where a field is wrong, or where its kind is not `kind`;
    `VerificationError` where its digest is not that of its content.
    """
    url = manifest_url(path)
    if not storage.exists(path):
        raise ManifestError(f"{path}: no such file or folder; check the path")
    if not storage.exists(url):
        raise ManifestError(
            f"{path}: no manifest here; a folder without {MANIFEST_NAME} is unfinished: run its command again"
        )
    manifest = parse_manifest(storage.read_bytes(url), url)
    if kind is not None and not isinstance(manifest, kind):
        wanted = kind.model_fields["kind"].default
        raise ManifestError(f"{url}: this is a {manifest.kind} manifest, but a {wanted} manifest is needed here")
    return LoadedManifest(url=url, manifest=manifest)


def parse_manifest(content: bytes, url: str) -> Manifest:
    """The manifest in `content`; `url` is for messages."""
    value = _parse_json(content, url)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ManifestError(
            f"{url}: written by a newer Tokenmill (schema_version {version}, known here is {SCHEMA_VERSION}): upgrade"
        )
    if not isinstance(value, dict) or "kind" not in value:
        raise ManifestError(f"{url}: no manifest, since it has no kind; name a dataset, checkpoint or model")
    try:
        manifest = MANIFEST_ADAPTER.validate_python(value, strict=False)
    except ValidationError as error:
        raise ManifestError(f"{url}: {describe_validation_error(error)}") from error
    if manifest.compute_digest() != manifest.digest:
        raise VerificationError(
            f"{url}: the digest says {manifest.digest[:12]}… but the content gives {manifest.compute_digest()[:12]}…; "
            "the manifest was changed by hand: build the dataset again"
        )
    return manifest


def _parse_json(content: bytes, url: str) -> Any:
    try:
        # Not orjson: it turns integers past 64 bits, such as a long seed, into floats.
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{url}: not JSON ({error}); restore the file or build the dataset again") from error


def describe_validation_error(error: ValidationError) -> str:
    """Every problem of `error` as `field.path: what is wrong (got value)`."""
    lines = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"]) or "manifest"
        value = "" if isinstance(item["input"], dict | list) else f" (got {item['input']!r})"
        lines.append(f"{field}: {item['msg'].removeprefix('Value error, ')}{value}")
    return "; ".join(lines)


def load_input(loaded: LoadedManifest[Any], index: int) -> LoadedManifest[Manifest]:
    """The manifest of an input, refused if it is no longer the one that was read."""
    ref = loaded.manifest.inputs[index]
    return check_identity(load_manifest(loaded.input_url(index)), ref, loaded.url)


def check_identity(found: LoadedManifest[M], ref: InputRef, by: str) -> LoadedManifest[M]:
    """`found`, if it is what `ref` names; `by` is the manifest that names it."""
    if found.manifest.digest != ref.digest:
        raise VerificationError(
            f"{by} was made from {ref.kind} {ref.name!r} with digest {ref.digest[:12]}…, but {found.url} now has "
            f"{found.manifest.digest[:12]}…: build what depends on it again, or restore the old dataset"
        )
    return found


def input_ref(loaded: LoadedManifest[Any], folder: str) -> InputRef:
    """A reference to `loaded` for a manifest that will lie in `folder`."""
    manifest = loaded.manifest
    return InputRef(
        kind=Kind(manifest.kind),
        name=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        path=storage.relative_to(loaded.url, folder),
    )


def ref_from(folder: str, ref: InputRef) -> InputRef:
    """`ref`, whose path is absolute, for a manifest that will lie in `folder`."""
    return ref.model_copy(update={"path": storage.relative_to(ref.path, folder)})


def dump_manifest(manifest: ManifestBase) -> bytes:
    """The manifest as it stands on disk: indented JSON with a final newline."""
    return manifest.model_dump_json(indent=2).encode("utf-8") + b"\n"


def publish(manifest: M, folder: str, name: str = MANIFEST_NAME) -> LoadedManifest[M]:
    """Seal `manifest` and write it into `folder`, whole or not at all: the last act of a build."""
    sealed = manifest.model_validate(manifest.sealed().model_dump())
    url = storage.join(folder, name)
    content = dump_manifest(sealed)
    if storage.is_local(folder):
        path = storage.local_path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(path, content)
    else:
        fs, inner = storage.filesystem(url)
        fs.pipe_file(inner, content)
    return LoadedManifest(url=url, manifest=sealed)


def check_sizes(loaded: LoadedManifest[Any]) -> None:
    """Every file of the manifest is there and has its size (`check_size`). Costs one look a file."""
    for entry in loaded.manifest.files:
        check_size(loaded, entry)


def check_size(loaded: LoadedManifest[Any], entry: FileEntry) -> None:
    """The file is there and has its size. Where a server does not say it, that is left to the hash of what it sends."""
    url = loaded.file_url(entry.path)
    if not storage.exists(url):
        raise VerificationError(f"{url}: missing, but {loaded.url} lists it: {_remedy(loaded)}")
    have = storage.size(url)
    if have not in (None, entry.bytes):
        where = "on disk" if storage.is_local(url) else "there"
        raise VerificationError(f"{url}: {have} bytes {where}, {entry.bytes} in its manifest: {_remedy(loaded)}")


def check_hash(loaded: LoadedManifest[Any], entry: FileEntry, on_bytes: Callable[[int], None] | None = None) -> None:
    """The file's content is what the manifest vouches for."""
    url = loaded.file_url(entry.path)
    _, sha256 = storage.hash_file(url, on_bytes)
    if sha256 != entry.sha256:
        raise VerificationError(
            f"{url}: sha256 is {sha256[:12]}…, its manifest says {entry.sha256[:12]}…: "
            f"the content changed; {_remedy(loaded, ' with --force')}"
        )


def _remedy(loaded: LoadedManifest[Any], how: str = "") -> str:
    if loaded.manifest.kind == Kind.CHECKPOINT:
        return "restore it, or go on from an earlier checkpoint"
    return f"restore it or build the dataset again{how}"


def verify_files(loaded: LoadedManifest[Any], on_bytes: Callable[[int], None] | None = None) -> None:
    """Every file of the manifest is there with its size and its sha256: reads all of them."""
    check_sizes(loaded)
    for entry in loaded.manifest.files:
        check_hash(loaded, entry, on_bytes)
