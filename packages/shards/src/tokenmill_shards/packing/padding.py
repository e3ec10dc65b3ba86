"""The token that fills sequences up."""

import orjson

from tokenmill_core import storage
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_tokenizer.open import load


def padding_token(tokens: LoadedManifest[TokensManifest]) -> int:
    """The id of the padding token of the tokenizer beside `tokens`; else what ends a document; else 0."""
    listed = {entry.path for entry in tokens.manifest.files}
    if {TOKENIZER_NAME, TOKENIZER_CONFIG_NAME} <= listed:
        token = orjson.loads(storage.read_bytes(tokens.file_url(TOKENIZER_CONFIG_NAME))).get("pad_token")
        if isinstance(token, dict):  # as `transformers` writes a token with settings of its own
            token = token.get("content")
        id = None if token is None else load(tokens.file_url(TOKENIZER_NAME)).token_to_id(token)
        if id is not None:
            return int(id)
    return tokens.manifest.end_of_document_id or 0
