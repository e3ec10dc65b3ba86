"""A Hugging Face `tokenizer.json`: kept byte for byte, with what transformers' settings beside it say."""

import json
from collections.abc import Mapping
from typing import Any

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile
from tokenmill_tokenizer.importing.source import SETTINGS_NAMES


def read_huggingface(tokenizer_json: bytes, beside: Mapping[str, bytes]) -> TokenizerFile:
    """The tokenizer, with its roles and chat template from the files `beside` it, by name."""
    config_name, map_name, template_name = SETTINGS_NAMES
    settings = _object(beside, map_name) | _object(beside, config_name)
    end, beginning, padding = (_token(settings.get(role)) for role in ("eos_token", "bos_token", "pad_token"))
    template = _text(beside, template_name) if template_name in beside else settings.get("chat_template")
    return TokenizerFile(
        tokenizer_json,
        end_of_document=end,
        # GPT-2 and its kin name one token for both; it closes documents, and need not open them too.
        beginning_of_document=beginning if beginning != end else None,
        padding=padding,
        chat_template=template,
    )


def _text(files: Mapping[str, bytes], name: str) -> str:
    try:
        return files[name].decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 ({error}); save it as UTF-8 or take it out of the folder") from error


def _object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        value = json.loads(files.get(name, b"{}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON ({error}); correct it or take it out of the folder") from error
    if not isinstance(value, dict):
        raise InputError(f"{name}: not a JSON object; correct it or take it out of the folder")
    return value


def _token(value: Any) -> str | None:
    """A token is written as it is, or as an object with flags."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
