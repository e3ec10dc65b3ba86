"""Manifests where they lie: what is read, what is refused, and what is told."""

import json
from pathlib import Path

import pytest

from tokenmill_core.errors import ExitCode, ManifestError, VerificationError
from tokenmill_core.manifest import DocumentsManifest, FileEntry, StageRef, TokenizerManifest
from tokenmill_core.manifest_io import (
    LoadedManifest,
    check_identity,
    check_sizes,
    input_ref,
    is_manifest,
    load_manifest,
    publish,
    verify_files,
)


def documents(**changes):
    return DocumentsManifest(**{"name": "d", "stage": StageRef(name="s", version=1), "config": {"seed": 1}} | changes)


@pytest.fixture
def folder(tmp_path):
    """A published dataset of one file."""
    out = tmp_path / "d"
    out.mkdir()
    (out / "a.txt").write_bytes(b"hello")
    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    publish(documents(files=(FileEntry(path="a.txt", bytes=5, sha256=sha256),)), str(out))
    return out


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_what_is_published_is_loaded_from_the_folder_or_the_file(folder):
    loaded = load_manifest(str(folder), DocumentsManifest)
    assert loaded == load_manifest(str(folder / "manifest.json"))
    assert loaded.manifest.compute_digest() == loaded.manifest.digest
    assert [path.name for path in sorted(folder.iterdir())] == ["a.txt", "manifest.json"]
    verify_files(loaded)


def test_a_hand_edited_manifest_is_found_out(folder):
    edit(folder, '"seed": 1', '"seed": 2')
    with pytest.raises(VerificationError, match="changed by hand") as caught:
        load_manifest(str(folder))
    assert caught.value.exit_code == ExitCode.VERIFICATION == 3


def test_another_layout_of_the_same_content_is_fine(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert load_manifest(str(folder)).manifest.name == "d"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"name": "d",', '"nme": "d",', r"documents\.name: Field required.*documents\.nme: Extra inputs"),
        ('"bytes": 5', '"bytes": -5', r"documents\.files\.0\.bytes: .*greater than or equal to 0 \(got -5\)"),
        ('"path": "a.txt"', '"path": "../a.txt"', r"files\.0\.path: path '\.\./a\.txt' leaves"),
        ('"documents": 0', '"documents": 7', "the ledger does not balance: 0 documents came in, 7 were kept"),
        ('"kind": "documents"', '"kind": "document"', "manifest: Input tag 'document' found using 'kind'"),
        (
            '"schema_version": 1',
            '"schema_version": 2',
            r"newer Tokenmill \(schema_version 2, known here is 1\): upgrade",
        ),
        ('"schema_version": 1,', '"schema_version": 1', "not JSON .*restore the file"),
    ],
)
def test_a_broken_manifest_is_named_with_the_field(folder, old, new, message):
    if old == '"documents": 0':
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(
            text.replace('"documents": 0', '"documents": 7', 2).replace('"input_documents": 7', '"input_documents": 0')
        )
    else:
        edit(folder, old, new)
    with pytest.raises(ManifestError, match=message) as caught:
        load_manifest(str(folder))
    assert str(folder / "manifest.json") in str(caught.value)


def test_a_file_of_another_kind_is_said_to_be_no_manifest(tmp_path):
    (tmp_path / "results.json").write_text('{"results": {}, "inputs": []}')
    with pytest.raises(ManifestError, match=r"results\.json: no manifest, since it has no kind; name a dataset"):
        load_manifest(str(tmp_path / "results.json"))


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'"\\ud800"'])
def test_what_is_no_manifest_at_all_is_refused_in_one_message(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ManifestError, match=r"manifest\.json: "):
        load_manifest(str(tmp_path))


def test_a_folder_without_one_is_unfinished(tmp_path):
    with pytest.raises(ManifestError, match="unfinished: run its command again"):
        load_manifest(str(tmp_path))
    with pytest.raises(ManifestError, match="nowhere: no such file or folder"):
        load_manifest(str(tmp_path / "nowhere"))


def test_the_wrong_kind_is_named_with_the_right_one(folder):
    with pytest.raises(ManifestError, match="a documents manifest, but a tokenizer manifest is needed"):
        load_manifest(str(folder), TokenizerManifest)


def test_a_seed_of_many_digits_survives(tmp_path):
    publish(documents(config={"seed": 10**30}), str(tmp_path))
    assert load_manifest(str(tmp_path)).manifest.config == {"seed": 10**30}


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    (tmp_path / "secret").write_bytes(b"hello")
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to(tmp_path / "secret")
    for check in (check_sizes, verify_files):
        with pytest.raises(VerificationError, match="leads out of"):
            check(load_manifest(str(folder)))


def test_a_link_within_the_folder_and_a_linked_folder_are_fine(folder, tmp_path):
    (folder / "real").mkdir()
    (folder / "a.txt").rename(folder / "real/a.txt")
    (folder / "a.txt").symlink_to("real/a.txt")
    (tmp_path / "link").symlink_to(folder)
    verify_files(load_manifest(str(tmp_path / "link")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.txt: missing, but .*manifest\.json lists it"),
        (b"hell", r"a\.txt: 4 bytes on disk, 5 in its manifest"),
        (b"hellO", r"a\.txt: sha256 is [0-9a-f]{12}…, its manifest says 2cf24dba5fb0"),
    ],
)
def test_a_damaged_file_is_named(folder, content, message):
    (folder / "a.txt").unlink()
    if content is not None:
        (folder / "a.txt").write_bytes(content)
    with pytest.raises(VerificationError, match=message):
        verify_files(load_manifest(str(folder)))


def test_a_reference_holds_while_both_move_and_breaks_with_the_content(folder, tmp_path):
    loaded = load_manifest(str(folder))
    ref = input_ref(loaded, str(tmp_path / "elsewhere/deep"))
    assert ref.path == "../../d/manifest.json"
    assert check_identity(loaded, ref, "x") is loaded
    other = LoadedManifest(url=loaded.url, manifest=documents(config={"seed": 2}).sealed())
    with pytest.raises(VerificationError, match="x was made from documents 'd' with digest"):
        check_identity(other, ref, "x")


def test_round_trip_on_another_file_system(tmp_path):
    url = f"memory://{tmp_path.name}/d"
    published = publish(documents(), url)
    assert published.url == f"{url}/manifest.json"
    assert load_manifest(url) == published
    assert published.file_url("a/b.txt") == f"{url}/a/b.txt"
    assert input_ref(published, str(tmp_path)).path == published.url


@pytest.mark.parametrize("name", ["with space", "[v1]", "ü*?", "a=b", "#x%20"])
def test_folders_of_any_name(tmp_path, name):
    folder = tmp_path / name
    publish(documents(), str(folder))
    assert is_manifest(str(folder))
    assert load_manifest(str(folder)).folder == str(folder)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("manifest.json", '{"name": "App", "icons": []}', False),
        ("manifest.json", '{// comments are not JSON\n"name": "App"}', False),
        ("manifest.json", "", True),
        ("rows.json", '{"schema_version": 1, "kind": "x", "digest": "y"}\n{"schema_version": 1}\n', False),
        ("rows.json", '{"text": "schema_version"}', False),
    ],
)
def test_the_manifests_of_other_software_are_not_ours(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert is_manifest(str(tmp_path / name)) is expected


def test_ours_are_ours_even_when_cut_short(folder):
    path = folder / "manifest.json"
    assert is_manifest(str(folder))
    path.write_bytes(path.read_bytes()[:-30])
    assert is_manifest(str(folder))
    path.rename(folder / "mixture.json")
    assert is_manifest(str(folder / "mixture.json"))
    assert not is_manifest(str(folder))
    assert not is_manifest(str(folder / "a.txt"))
    assert not is_manifest(str(folder / "nowhere.json"))
