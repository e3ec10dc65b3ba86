"""The files of a tokenizer dataset: `tokenizer.json`, and what other libraries read beside it."""

from collections.abc import Iterable
from pathlib import Path

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, FileEntry
from tokenmill_core.storage import HashingWriter
from tokenmill_tokenizer.files.export import (
    TIKTOKEN_NAME,
    TIKTOKEN_SETTINGS_NAME,
    tiktoken_ranks,
    tiktoken_settings,
    tokenizer_config,
)
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile


def dataset_files(tokenizer: TokenizerFile, special_tokens: Iterable[str]) -> tuple[dict[str, bytes], dict[str, int]]:
    """(content of each file, a note where tiktoken's are not among them because it cannot express the tokenizer)."""
    files = {
        TOKENIZER_NAME: tokenizer.tokenizer_json,
        TOKENIZER_CONFIG_NAME: tokenizer_config(
            special_tokens,
            end_of_document=tokenizer.end_of_document,
            beginning_of_document=tokenizer.beginning_of_document,
            padding=tokenizer.padding,
            chat_template=tokenizer.chat_template,
        ),
    }
    try:
        ranks, settings = tiktoken_ranks(tokenizer.tokenizer_json), tiktoken_settings(tokenizer.tokenizer_json)
    except InputError as error:
        return files, {f"no {TIKTOKEN_NAME}: {error}": 1}
    return files | {TIKTOKEN_NAME: ranks, TIKTOKEN_SETTINGS_NAME: settings}, {}


def write_file(path: Path, content: bytes) -> FileEntry:
    """Write a file of the dataset; it takes its name when it is whole."""
    with HashingWriter(path) as writer:
        writer.write(content)
    return FileEntry(path=path.name, bytes=writer.bytes, sha256=writer.sha256)
