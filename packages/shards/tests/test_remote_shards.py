"""Mixtures on a web server and in an object store: the batches that the disk gives, whatever the server does."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Protocol

import numpy as np
import pytest
from fsspec.implementations.http import HTTPFileSystem
from numpy.typing import NDArray
from s3fs import S3FileSystem

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
from servers import ObjectStore, WebServer, object_store

from tokenmill_core import remote, storage
from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest, verify_files
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards import MixtureReader
from tokenmill_shards.audit.trace import Tracer
from tokenmill_shards.packing.pack import STAGE as PACK
from tokenmill_shards.packing.pack import PackConfig
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading import cache as caching
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.store import ShardStore, Verify

LENGTH = 64
INDICES = np.arange(400)


class Place(Protocol):
    """Where datasets are served from."""

    url: str

    def put(self, folder: Path) -> None: ...
    def remove(self, path: str) -> None: ...
    def down(self) -> None: ...
    def up(self) -> None: ...


class OnTheWeb:
    def __init__(self, server: WebServer) -> None:
        self.url, self.down, self.up, self._folder = server.url, server.down, server.up, server.folder

    def put(self, folder: Path) -> None:
        """Serve everything below `folder`."""
        for path in folder.rglob("*.*"):
            target = self._folder / path.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())

    def remove(self, path: str) -> None:
        (self._folder / path).unlink()


class InTheStore:
    url = "s3://data"

    def __init__(self, store: ObjectStore) -> None:
        self.down, self.up = store.down, store.up

    def put(self, folder: Path) -> None:
        files, _ = storage.filesystem(self.url)
        for path in folder.rglob("*.*"):
            files.pipe_file(f"data/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def remove(self, path: str) -> None:
        storage.filesystem(self.url)[0].rm_file(f"data/{path}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(params=["http", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "s3":
        store = request.getfixturevalue("store")
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        S3FileSystem.clear_instance_cache()
        yield InTheStore(store)
    else:
        (tmp_path / "served").mkdir()
        with WebServer(tmp_path / "served") as server:
            yield OnTheWeb(server)
        HTTPFileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WAITS", (0, 0.1, 0.1))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    monkeypatch.setattr(caching, "GRACE_SECONDS", 0.0)
    return FileCache(tmp_path / "cache", 10_000_000, waits=(0, 0.1, 0.1))


@pytest.fixture
def local(make_tokens: Callable[..., LoadedManifest[TokensManifest]], make_mixture, tmp_path) -> Path:
    """A folder with two tokens datasets, `web` and `code`, each of some shards, and `mixture` beside them."""
    web = make_tokens("web", [[3000, 500, 2000], [4000], [700] * 9, [5000]])
    code = make_tokens("code", [[2500] * 2, [1, 2, 3, 5000]])
    make_mixture({"web": (web, 3), "code": (code, 2)}, seed=5, validation_share=0.2)
    folder = tmp_path / "local"
    folder.mkdir()
    for name in ("web", "code", "mixture"):
        (tmp_path / name).rename(folder / name)
    return folder


def batches(path: str, cache: FileCache | None = None) -> NDArray[np.int64]:
    reader = MixtureReader.open(path, LENGTH, verify="sizes", cache=cache)
    return np.concatenate([reader.samples(INDICES).tokens, reader.validation("web").tokens])


def replace_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_remote_mixture_gives_the_batches_of_the_local_one(place, local, cache):
    place.put(local)
    wanted = batches(str(local / "mixture"))
    assert (batches(f"{place.url}/mixture/manifest.json", cache) == wanted).all()
    place.put(local)
    assert (batches(f"{place.url}/mixture", cache) == wanted).all()


def test_every_way_of_checking_works_on_remote_files(place, local, cache):
    place.put(local)
    verify_files(load_manifest(f"{place.url}/web/manifest.json"))
    for verify in ("auto", "full", "sizes"):
        reader = MixtureReader.open(f"{place.url}/mixture/manifest.json", LENGTH, verify=verify, cache=cache)
        assert reader.samples(INDICES).tokens.shape == (400, LENGTH + 1)
    replace_byte(local / "web/shard-00003.bin")
    place.put(local)
    with pytest.raises(VerificationError, match=r"web/shard-00003\.bin: sha256 is"):
        verify_files(load_manifest(f"{place.url}/web/manifest.json"))


def test_documents_are_traced_to_their_places(place, local, cache):
    place.put(local)
    remote = MixtureReader.open(f"{place.url}/mixture/manifest.json", LENGTH, cache=cache)
    here = MixtureReader.open(str(local / "mixture"), LENGTH)
    assert Tracer(remote, with_text=False).samples([7]) == Tracer(here, with_text=False).samples([7])


def test_a_cache_smaller_than_the_dataset_works(place, local, cache):
    place.put(local)
    sizes = {path: path.stat().st_size for path in local.glob("*/shard-*")}
    small = FileCache(cache.folder, max(sizes.values()) + 10_000)
    assert sum(sizes.values()) > 2 * small.max_bytes
    assert (batches(f"{place.url}/mixture/manifest.json", small) == batches(str(local / "mixture"))).all()
    assert sum(path.stat().st_size for path in small.folder.iterdir()) <= small.max_bytes


def test_a_flipped_byte_on_the_server_is_found(place, local, cache):
    replace_byte(local / "web/shard-00002.bin")
    place.put(local)
    with pytest.raises(VerificationError, match=rf"{place.url}/web/shard-00002\.bin: the server sends .*needs"):
        batches(f"{place.url}/mixture/manifest.json", cache)


def test_a_file_that_went_is_named(place, local, cache):
    place.put(local)
    reader = MixtureReader.open(f"{place.url}/mixture", LENGTH, verify="sizes", cache=cache)
    place.remove("web/shard-00002.bin")
    with pytest.raises(InputError, match=rf"{place.url}/web/shard-00002\.bin: there is no such file on the server"):
        reader.samples(INDICES)


def test_a_server_that_restarts_in_the_middle_of_a_run_is_waited_for(place, local, cache):
    place.put(local)
    wanted = MixtureReader.open(str(local / "mixture"), LENGTH).samples(INDICES).tokens
    patient = FileCache(cache.folder, cache.max_bytes, waits=[0.1] * 300)
    reader = MixtureReader.open(f"{place.url}/mixture/manifest.json", LENGTH, verify="sizes", cache=patient)
    for stream in reader.training:
        stream.store.shard_name(0)  # manifests are read at once or not at all
    place.down()
    timer = Timer(0.3, place.up)
    timer.start()
    assert (reader.samples(INDICES).tokens == wanted).all()
    timer.join()


@pytest.mark.parametrize("verify", ["auto", "full", "sizes"])
def test_a_server_that_is_busy_for_a_moment_stops_nothing(tmp_path, local, cache, verify):
    with WebServer(local) as server:
        server.hiccups = True
        reader = MixtureReader.open(f"{server.url}/mixture", LENGTH, verify=verify, cache=cache)
        assert (reader.samples(INDICES).tokens == batches(str(local / "mixture"))[: len(INDICES)]).all()
    suffixes = {Path(path).suffix for _, path in server.refused}
    assert {".json", ".bin", ".idx"} <= suffixes


def test_the_sizes_of_remote_files_are_checked(place, local, cache):
    path = local / "web/shard-00002.bin"
    path.write_bytes(path.read_bytes()[:-2])
    place.put(local)
    have = path.stat().st_size
    reader = ShardStore.open(f"{place.url}/web/manifest.json", cache=cache)
    with pytest.raises(VerificationError, match=rf"shard-00002\.bin: {have} bytes there, {have + 2} in its manifest"):
        reader.check(Verify.SIZES)


def test_a_server_that_is_not_there_is_no_missing_file(tmp_path, cache):
    server = WebServer(tmp_path)
    server.down()
    with pytest.raises(InputError, match=r"mixture/manifest\.json: the server does not answer as it should"):
        MixtureReader.open(f"{server.url}/mixture/manifest.json", LENGTH, cache=cache)


def test_a_bound_that_is_too_small_is_refused_with_what_it_needs(place, local, cache):
    place.put(local)
    with pytest.raises(ConfigError, match=r"bytes, but the cache in .* may hold 100; give it a larger size"):
        batches(f"{place.url}/mixture/manifest.json", FileCache(cache.folder, 100))


def test_tokens_are_mixed_where_they_lie(place, cache, tmp_path, prep, tokenize):
    local = tmp_path / "local"
    for name in ("web", "code"):
        tokenize(name, [f"{name} {number} and more of it" * 5 for number in range(100)], out=f"local/{name}")
    place.put(local)
    for root, out in ((place.url, "remote.json"), (str(local), "local.json")):
        sources = [f"{name}={root}/{name}" for name in ("web", "code")]
        done = prep("mix", *sources, "--seed", 3, "--validation-share", 0.2, "--out", tmp_path / out)
        assert done.code == 0, done.err
    remote, same = (load_manifest(str(tmp_path / name), MixtureManifest) for name in ("remote.json", "local.json"))
    assert remote.manifest.digest == same.manifest.digest
    assert {ref.path for ref in remote.manifest.inputs} == {
        f"{place.url}/{name}/manifest.json" for name in ("web", "code")
    }
    samples = [MixtureReader.open(loaded.url, LENGTH, cache=cache).samples(INDICES).tokens for loaded in (remote, same)]
    assert (samples[0] == samples[1]).all()


def test_the_next_packed_shard_is_fetched_while_one_is_read(make_tokens, make_mixture, tmp_path, cache):
    mixture = make_mixture({"one": (make_tokens("one", [[5, 12, 40, 3] * 6, [9] * 20]), 1)})
    config = PackConfig(sequence_length=LENGTH, tokens=80 * LENGTH, shard_bytes=30 * 2 * (LENGTH + 1))
    built = build_stage(PACK.build(config, [mixture.url], None), str(tmp_path / "packed"), LocalExecutor(1))
    local, (first, second, third) = PackedReader.open(built.loaded.url), built.loaded.manifest.shards
    with WebServer(tmp_path / "packed") as server:
        reader = PackedReader.open(f"{server.url}/manifest.json", verify="sizes", cache=cache)
        server.downloads.clear()  # sizes are asked for by the same requests
        assert (reader.samples(np.arange(2)).tokens == local.samples(np.arange(2)).tokens).all()
        wanted, deadline = {f"/{second}.bin", f"/{second}.pieces.parquet"}, time.monotonic() + 20
        while not wanted <= set(server.downloads) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert {f"/{first}.bin", *wanted} <= set(server.downloads)
        assert f"/{third}.bin" not in server.downloads
