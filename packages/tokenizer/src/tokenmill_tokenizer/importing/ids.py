"""Ids that a file writes: below what memory is kept for, and the ones that `tokenizers` gives."""

import json
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.files.tokenizer_file import MAX_VOCAB_SIZE


def check_id(token: str, index: int) -> None:
    """Errors: `InputError` where the id is too high."""
    if index >= MAX_VOCAB_SIZE:
        raise InputError(f"token {token!r} has the id {index}; ids must be below {MAX_VOCAB_SIZE}, give it a lower one")


def check_written_ids(tokenizer_json: bytes) -> None:
    """Errors: `InputError` where a token of the vocabulary, or an added one, has an id that is too high."""
    document = json.loads(tokenizer_json)
    vocabulary = document["model"].get("vocab")
    # The vocabulary of a Unigram model is a list, and its ids are places in it.
    ids = vocabulary if isinstance(vocabulary, dict) else {}
    for token, index in (*ids.items(), *_added_tokens(document)):
        if isinstance(index, int):
            check_id(token, index)


def check_given_ids(tokenizer_json: bytes, tokenizer: Tokenizer) -> None:
    """Errors: `InputError` where an added token has another id in the file than with `tokenizers`.

    It gives the next free id to a token that its model does not have, whatever the file says.
    """
    for token, index in _added_tokens(json.loads(tokenizer_json)):
        given = tokenizer.token_to_id(token)
        if given is not None and given != index:  # it leaves out a token without characters
            raise InputError(
                f"special token {token!r} has the id {index} in the file and {given} with tokenizers; write the id "
                f"{given}, or let no id be missing"
            )


def _added_tokens(document: Any) -> Iterator[tuple[str, Any]]:
    """Token and id. What has no such form is left to `tokenizers` to refuse."""
    added = document.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            yield entry["content"], entry.get("id")
