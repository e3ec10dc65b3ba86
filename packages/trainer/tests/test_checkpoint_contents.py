"""A checkpoint holds exactly the tensors of the run that goes on from it, or is refused with what differs."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill_core import storage
from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import CheckpointManifest, FileEntry
from tokenmill_core.manifest_io import load_manifest, publish
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import verify_checkpoint

MakeConfig = Callable[..., RunConfig]
NORM = "model.norm.weight"


@pytest.fixture
def saved(tmp_path: Path, make_config: MakeConfig, source: GlobalBatches) -> Path:
    with initialize(make_config(), source) as engine:
        return checkpoint.save(engine, tmp_path)


def forge_manifest(folder: Path, leaving_out: str = "") -> None:
    """Seal the folder's manifest again, over the files as they are now."""
    manifest = load_manifest(str(folder), CheckpointManifest).manifest
    names = [entry.path for entry in manifest.files if entry.path != leaving_out]
    hashes = {name: storage.hash_file(str(folder / name)) for name in names}
    files = tuple(FileEntry(path=name, bytes=size, sha256=sha256) for name, (size, sha256) in hashes.items())
    publish(manifest.model_copy(update={"files": files}), str(folder))


def change_index(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change which tensors the checkpoint says it has, in such a way that all hashes are right."""
    index = pickle.loads((folder / ".metadata").read_bytes())  # noqa: S301
    change(index.state_dict_metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    forge_manifest(folder)


def refused(folder: Path, config: RunConfig, source: GlobalBatches, message: str) -> None:
    loaded = verify_checkpoint(folder)
    with initialize(config, source) as engine, pytest.raises(VerificationError, match=message):
        checkpoint.restore(engine, loaded)


def test_a_key_that_is_missing_is_named(saved: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    change_index(saved, lambda held: held.pop(NORM))
    refused(saved, make_config(), source, rf"missing \['{NORM}'\], unexpected \[\] \(1 and 0 in all\)")


def test_a_key_too_many_is_named(saved: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    change_index(saved, lambda held: held.update({"model.third.weight": held[NORM]}))
    refused(saved, make_config(), source, r"missing \[\], unexpected \['model.third.weight'\] \(0 and 1 in all\)")


def test_a_moment_that_is_missing_is_named(saved: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    moment = "optimizer.state.norm.weight.exp_avg"
    change_index(saved, lambda held: held.pop(moment))
    refused(saved, make_config(), source, rf"missing \['{moment}'\]")


def test_weights_alone_are_not_a_run_to_go_on_with(saved: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    """Those are where another run begins, by --init-from."""

    def keep_weights(held: dict[str, object]) -> None:
        for name in [name for name in held if not name.startswith("model.")]:
            held.pop(name)

    change_index(saved, keep_weights)
    refused(saved, make_config(), source, r"missing \['optimizer\.state\..*unexpected \[\]")


def test_another_shape_is_named_with_both(saved: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    wider = make_config(model={"intermediate_size": 104})
    refused(saved, wider, source, r"model\.layers\.0\..* has shape \[96, 48\] there, \[104, 48\] here")


def test_an_average_that_is_no_longer_wanted_is_left_there(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(ema={"decay": 0.9}), source) as engine:
        folder = checkpoint.save(engine, tmp_path)
    with initialize(make_config(), source) as engine:
        checkpoint.restore(engine, verify_checkpoint(folder))


def test_an_index_for_which_no_hash_vouches_is_not_opened(saved: Path) -> None:
    forge_manifest(saved, leaving_out=".metadata")
    with pytest.raises(VerificationError, match=r"does not list \.metadata"):
        verify_checkpoint(saved)


def test_tensors_in_files_for_which_no_hash_vouches_are_not_read(
    saved: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    forge_manifest(saved, leaving_out="__0_0.distcp")
    refused(saved, make_config(), source, r"tensors lie in \['__0_0.distcp'\], for which this manifest does not vouch")


def test_files_say_nothing_of_where_they_were_written(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(), source) as engine:
        saved = checkpoint.save(engine, tmp_path / "somewhere")
    assert [path for path in saved.iterdir() if b"somewhere" in path.read_bytes()] == []
