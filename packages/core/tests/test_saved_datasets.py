"""Folders as Hugging Face `datasets` saves them: the layout of `save_to_disk`, written here with Arrow alone."""

import json

import fsspec
import pyarrow as pa
import pytest
from reading import read

from tokenmill_core.errors import InputError
from tokenmill_core.inputs import expand_inputs
from tokenmill_core.readers import Format


def write_stream(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": texts, "label": range(len(texts))})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def save(folder, shards, **state):
    names = [f"data-{i:05d}-of-{len(shards):05d}.arrow" for i in range(len(shards))]
    for name, texts in zip(names, shards, strict=True):
        write_stream(folder / name, texts)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f", "_split": None} | state
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"text": {"_type": "Value"}}}, indent=2))


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "saved"
    for split, shards in (("train", [["a", "b"], ["c"]]), ("test", [["d"]])):
        save(folder / split, shards)
        write_stream(folder / split / "cache-0123.arrow", ["left behind"])
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return folder


TRAIN = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]


def names(argument):
    (group,) = expand_inputs([str(argument)])
    return [file.name for file in group.files], group.notes


def test_a_dataset_and_a_dict_of_them(saved):
    assert names(saved / "train") == (TRAIN, {"skipped_bookkeeping_files": 3})
    both = ["test/data-00000-of-00001.arrow", *(f"train/{name}" for name in TRAIN)]
    assert names(saved) == (both, {"skipped_bookkeeping_files": 7})
    assert names(saved.parent)[0] == [f"saved/{name}" for name in both]
    (group,) = expand_inputs([str(saved)])
    texts = [text for file in group.files for text in read(file.url, Format.ARROW).texts]
    assert texts == ["d", "a", "b", "c"]


def test_a_glob_leaves_out_the_same(saved):
    assert names(f"{saved}/train/*.arrow") == (TRAIN, {"skipped_bookkeeping_files": 1})
    assert names(f"{saved}/train/*")[0] == TRAIN


def test_behind_a_url(saved):
    target = fsspec.filesystem("memory")
    for path in saved.rglob("*.*"):
        with target.open(f"/test-saved/{path.relative_to(saved)}", "wb") as file:
            file.write(path.read_bytes())
    assert names("memory://test-saved/train") == (TRAIN, {"skipped_bookkeeping_files": 3})


def test_a_folder_without_a_state_keeps_what_is_not_called_a_cache(saved):
    (saved / "train" / "state.json").unlink()
    assert names(saved / "train")[0] == TRAIN


def test_a_copy_that_lacks_a_file_is_refused(saved):
    (saved / "train" / TRAIN[1]).unlink()
    with pytest.raises(InputError, match=r"saved/train lacks data-00001-of-00002\.arrow, which state\.json lists"):
        names(saved)


def test_a_selection_by_indices_is_refused(tmp_path):
    save(tmp_path / "d", [["a"]], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(InputError, match=r"/d selects some rows.*flatten_indices"):
        names(tmp_path / "d")


@pytest.mark.parametrize("state", ["{", "[]", '{"_data_files": 3}', "{}"])
def test_a_state_that_is_none_is_refused(saved, state):
    (saved / "train" / "state.json").write_text(state)
    with pytest.raises(InputError, match=r"train/state\.json is not what datasets writes"):
        names(saved)


def test_files_of_those_names_elsewhere_are_data_like_any_other(tmp_path):
    for name in ("state.json", "dataset_info.json", "dataset_dict.json"):
        (tmp_path / name).write_text('{"text":"a"}')
    write_stream(tmp_path / "sub" / "cache-1.arrow", ["a"])
    assert names(tmp_path) == (["dataset_dict.json", "dataset_info.json", "state.json", "sub/cache-1.arrow"], {})
