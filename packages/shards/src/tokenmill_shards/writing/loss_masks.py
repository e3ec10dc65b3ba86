"""Which tokens count for the loss, by a column that says which text does.

    [[start, end], …] in characters ─▶ bytes of the text ─▶ a token counts if one of its bytes does
    true, false                     ─▶ all of the document, or none

A token's bytes are those of its text, so the tokenizer must be one whose tokens, one after another, are the text.

Reasons: `missing_loss_mask` (null), `invalid_loss_mask` (anything else than the above), `loss_mask_out_of_range` (not
0 ≤ start ≤ end ≤ characters of the text).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import LedgerRow
from tokenmill_shards.compiled import compiled
from tokenmill_shards.writing.rejections import Rejecter
from tokenmill_tokenizer.decode import token_bytes
from tokenmill_tokenizer.open import load


class Spans(NamedTuple):
    """What counts of the documents of a batch: document d has the next `counts[d]` spans, ordered by their starts."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]


class _BadMaskError(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


@dataclass(frozen=True)
class LossMasks:
    """Makes the loss masks of batches that have the column `column`."""

    column: str
    num_bytes: NDArray[np.int64]
    """Bytes of each id."""

    @classmethod
    def of(cls, column: str, tokenizer_url: str) -> "LossMasks":
        """For the tokenizer at `tokenizer_url`, which `refuse_inexact` has let pass."""
        return cls(column, np.array([*map(len, token_bytes(load(tokenizer_url)))], np.int64))

    def spans(self, batch: pa.RecordBatch, reject: Rejecter) -> tuple[pa.RecordBatch, Spans]:
        """(the documents whose mask can be used, their spans); the others are rejected."""
        num_characters = pc.utf8_length(batch.column("text")).to_pylist()
        found: list[list[Any]] = []
        reasons: dict[int, str] = {}
        for index, (value, limit) in enumerate(zip(batch.column(self.column).to_pylist(), num_characters, strict=True)):
            try:
                found.append(parse_spans(value, limit))
            except _BadMaskError as bad:
                reasons[index] = bad.reason
        return reject(batch, reasons, self.column), _flat(found)

    def mask(self, texts: pa.Array, ids: NDArray[Any], lengths: NDArray[np.int64], spans: Spans) -> NDArray[np.uint8]:
        """The mask of `ids`: shape (tokens,), 0 or 1.

        Raises:
            InputError: the bytes of a document's tokens are not those of its text.
        """
        _, offsets, data = texts.buffers()
        text_offsets = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        mask = np.zeros(ids.size, np.uint8)
        text = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
        wrong = _fill(mask, text, text_offsets, self.num_bytes[ids], lengths, *spans)
        if wrong >= 0:
            raise InputError(
                f"the tokens of {texts[wrong].as_py()[:80]!r} are not the bytes of that text: a loss mask needs a "
                "tokenizer that changes no text; use another one, or leave out --loss-mask"
            )
        return mask


def parse_spans(value: str | None, num_characters: int) -> list[Any]:
    """The spans that `value` names of a text of `num_characters`, ordered by their starts."""
    if value is None:
        raise _BadMaskError("missing_loss_mask")
    try:
        spans = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise _BadMaskError("invalid_loss_mask") from None
    if isinstance(spans, bool):
        return [[0, num_characters]] if spans else []
    if not isinstance(spans, list) or not all(map(_is_span, spans)):
        raise _BadMaskError("invalid_loss_mask")
    if not all(0 <= start <= end <= num_characters for start, end in spans):
        raise _BadMaskError("loss_mask_out_of_range")
    return sorted(spans)


def _is_span(span: Any) -> bool:
    # By type: true is an integer to Python. An integer past 64 bits arrives as a float.
    return isinstance(span, list) and len(span) == 2 and type(span[0]) is int and type(span[1]) is int


def _flat(spans: Sequence[Sequence[Any]]) -> Spans:
    counts = np.fromiter(map(len, spans), np.int64, len(spans))
    pairs = np.array(list(chain.from_iterable(spans)), np.int64).reshape(-1, 2)
    return Spans(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), counts)


@compiled
def _fill(
    mask: NDArray[np.uint8],
    text: NDArray[np.uint8],
    text_offsets: NDArray[np.int64],
    token_sizes: NDArray[np.int64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> int:
    """Fill `mask`: -1, or the document whose tokens do not add up to its text."""
    token = span = 0
    for d in range(len(lengths)):
        i, stop, last_span = text_offsets[d], text_offsets[d + 1], span + counts[d]
        character = covered = 0
        inside = False
        for _ in range(lengths[d]):
            token_stop = i + token_sizes[token]
            if token_stop > stop:
                return d
            while i < token_stop:
                if text[i] & 0xC0 != 0x80:  # a character begins
                    while span < last_span and starts[span] <= character:
                        covered = max(covered, ends[span])
                        span += 1
                    inside = character < covered
                    character += 1
                if inside:
                    mask[token] = 1
                i += 1
            token += 1
        if i != stop:
            return d
        span = last_span
    return -1


def refuse_inexact(url: str) -> None:
    """Raise where the tokens of the `tokenizer.json` at `url` are not the bytes of the text.

    Raises:
        InputError: it is no byte-level BPE, changes the text before it splits it, or puts a space before it.
    """
    tokenizer = orjson.loads(storage.read_bytes(url))
    steps = _steps(tokenizer.get("pre_tokenizer"))
    byte_level = [step for step in steps if step["type"] == "ByteLevel"]
    problem = None
    if tokenizer["model"].get("type") != "BPE" or not byte_level:
        problem = "is no byte-level BPE"
    elif tokenizer.get("normalizer") is not None:
        problem = f"changes the text first (normalizer {tokenizer['normalizer'].get('type')})"
    elif any(step.get("add_prefix_space") for step in byte_level):
        problem = "puts a space before the text (add_prefix_space)"
    if problem:
        raise InputError(
            f"{url}: this tokenizer {problem}, so which bytes of the text a token stands for is not known; "
            "use a byte-level BPE without a normalizer, or leave out --loss-mask"
        )


def refuse_unusable(column: str, num_kept: int, ledger: Iterable[LedgerRow]) -> None:
    """Raise where nothing was kept, and documents were dropped for their masks: the wrong column, most likely.

    Raises:
        InputError: as said.
    """
    dropped = {row.reason: row.documents for row in ledger if row.reason.endswith("_loss_mask")}
    if not num_kept and dropped:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise InputError(
            f"--loss-mask {column}: no document has one that can be used ({counts}); a mask is [[start, end], ...] in "
            "characters of the text, or true or false"
        )


def _steps(pre_tokenizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if pre_tokenizer is None:
        return []
    return pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
