"""Folders that Hugging Face `datasets` saves (`save_to_disk`): Arrow files among files that are no data.

saved/dataset_dict.json                                 splits, where there are several
saved/train/state.json, dataset_info.json               which files are the data, and what they hold
saved/train/data-00000-of-00002.arrow, …                the data
saved/train/cache-….arrow                               results of earlier work, left behind
"""

import posixpath
from collections.abc import Sequence

import orjson

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.listing import ListedFile

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


def without_bookkeeping(files: Sequence[ListedFile]) -> list[ListedFile]:
    """`files` without what is no data in saved datasets.

    Raises:
        InputError: a saved dataset lacks one of its files, or selects rows by a list of indices.
    """
    folders = {storage.parent(file.url) for file in files if file.name.endswith(".arrow")}
    data = {folder: _data_files(folder) for folder in folders if storage.exists(storage.join(folder, _INFO))}
    return [file for file in files if not _is_bookkeeping(file, data)]


def _is_bookkeeping(file: ListedFile, data: dict[str, set[str] | None]) -> bool:
    folder, name = storage.parent(file.url), posixpath.basename(file.url)
    if folder in data:
        names = data[folder]
        is_data = not name.startswith("cache-") if names is None else name in names
        return name in (_STATE, _INFO) or (name.endswith(".arrow") and not is_data)
    return name == _SPLITS and any(storage.parent(split) == folder for split in data)


def _data_files(folder: str) -> set[str] | None:
    """Names of the files with the data of the dataset saved in `folder`; none where it does not say."""
    url = storage.join(folder, _STATE)
    if not storage.exists(url):
        return None
    try:
        state = orjson.loads(storage.read_bytes(url))
        names = {entry["filename"] for entry in state["_data_files"]}
        indices = state.get("_indices_data_files")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{url} is not what datasets writes ({error!r}): save the dataset again") from error
    if indices:
        raise InputError(f"{folder} selects some rows of its files: save it again after dataset.flatten_indices()")
    for name in sorted(names):
        if not storage.exists(storage.join(folder, name)):
            raise InputError(f"{folder} lacks {name}, which {_STATE} lists: copy the dataset again")
    return names
