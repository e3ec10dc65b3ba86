"""What `prep verify` checks of a packed dataset against the mixture it was packed from: that it is what packing gives.

pieces ─▶ documents of the mixture's training streams ─▶ for `concat`: those of the samples
    └▶ filled again ─▶ the tokens and masks that are stored
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import Kind
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_core.verify import Checked
from tokenmill_shards.formats.mmididx import Shard, sequence_offsets
from tokenmill_shards.mixture import Located
from tokenmill_shards.packing.account import account
from tokenmill_shards.packing.check_manifest import shard_number
from tokenmill_shards.packing.concat import concat_pieces
from tokenmill_shards.packing.fill import fill
from tokenmill_shards.packing.padding import padding_token
from tokenmill_shards.packing.pieces import PADDING, PIECES_SUFFIX, SCHEMA, Pieces
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.store import Verify

TAKEN_OVER = (
    "dtype",
    "vocab_size",
    "padded_vocab_size",
    "tokenizer_sha256",
    "end_of_document_id",
    "beginning_of_document_id",
)
"""Fields of the mixture that a packed dataset has too."""


class Origin:
    """The mixture of a packed dataset, opened to read what was packed."""

    def __init__(self, loaded: LoadedManifest[PackedManifest], reader: MixtureReader) -> None:
        self._loaded = loaded
        self._reader = reader
        self._is_concat = loaded.manifest.method == "concat"
        self._firsts = sequence_offsets(loaded.manifest.shard_samples)
        self._account = Counter[str]()
        self._accounted = 0

    @classmethod
    def open(cls, loaded: LoadedManifest[PackedManifest], checked: Checked) -> Self | None:
        """None, and a note of why, where the mixture and its tokens are not found on this machine."""
        if [reference.kind for reference in loaded.manifest.inputs] != [Kind.MIXTURE]:
            return None  # that is named already
        try:
            mixture: LoadedManifest[Any] = load_input(loaded, 0)
            reasons = [f"{url} lies elsewhere" for url in _urls(mixture) if not storage.is_local(url)]
            if not reasons:
                reader = MixtureReader.open(mixture.url, loaded.manifest.sequence_length, verify=Verify.SIZES)
                return cls(loaded, reader)
        except (TokenmillError, OSError) as error:
            reasons = [str(error)]
        checked.notes.append(f"{loaded.url}: not compared with what it was packed from: {reasons[0]}")
        return None

    def manifest_problems(self) -> Iterator[str]:
        """Fields that are not the mixture's, or do not follow from it."""
        manifest, mixture = self._loaded.manifest, self._reader.manifest
        needs: dict[str, object] = {name: getattr(mixture, name) for name in TAKEN_OVER}
        needs["sources"] = tuple(source.name for source in mixture.sources)
        needs["loss_mask"] = any(source.loss_mask for source in mixture.sources)
        needs["padding_id"] = padding_token(self._reader.training[0].store.load())
        epochs = tuple(source.training_tokens for source in mixture.sources)
        if self._is_concat:
            epochs = tuple((self._reader.mixture.num_windows * manifest.sequence_length).tolist())
        needs["epoch_tokens"] = epochs
        for field, need in needs.items():
            have = getattr(manifest, field)
            if have != need:
                yield f"{self._loaded.url}: {field} is {have}, but the mixture gives {need}; pack again"

    def shard_problems(
        self, number: int, shard: Shard, pieces: Pieces, mask: NDArray[np.uint8] | None
    ) -> Iterator[str]:
        """What is in a shard, given its stored `pieces` and `mask`, that packing would not have put there."""
        if len(self._reader.training) <= pieces.source.max():
            return  # that there are other sources is named already
        pieces, lost = self._placed(pieces)
        if lost.size:
            what = self._describe(pieces, int(lost[0]))
            yield f"{shard.prefix}{PIECES_SUFFIX}: row {lost[0] + 1} is {what}; pack again"
            return
        first_index = shard_number(self._loaded.manifest.shards[number]) << 32
        num_overlapping = int(np.count_nonzero(pieces.first_token))
        if self._is_concat:
            first_index = int(self._firsts[number])
            located = self._reader.mixture.locate(np.arange(first_index, self._firsts[number + 1]))
            num_overlapping = int(np.count_nonzero(located.window))
            wrong = self._other_sample(pieces, located)
            if wrong is not None:
                yield f"{shard.prefix}{PIECES_SUFFIX}: sequence {wrong} is not sample {first_index + wrong}; pack again"
                return
        self._account.update(account(pieces, self._reader.sequence_length, num_overlapping, windows=self._is_concat))
        self._accounted += 1
        yield from self._token_problems(shard, pieces, mask, first_index)

    def note_problems(self) -> Iterator[str]:
        """Notes that do not sum up what was packed; none are looked for where a shard's pieces are wrong."""
        if self._accounted < len(self._loaded.manifest.shards):
            return
        for what, need in self._account.items():
            have = self._loaded.manifest.notes.get(what, 0)
            if have != need:
                yield f"{self._loaded.url}: notes.{what} is {have:,}, but its pieces give {need:,}; pack again"

    def _placed(self, pieces: Pieces) -> tuple[Pieces, NDArray[np.int64]]:
        """`pieces` with what the indices of their shards say of them, and the rows of those that lie in no document."""
        document_tokens, physical = np.zeros_like(pieces.shard), np.zeros_like(pieces.shard)
        lost = np.zeros(pieces.shard.size, np.bool_)
        held = np.flatnonzero(pieces.source != PADDING)
        order = held[np.lexsort((pieces.shard[held], pieces.source[held]))]
        new = np.diff(pieces.source[order]).astype(np.bool_) | np.diff(pieces.shard[order]).astype(np.bool_)
        for rows in np.split(order, np.flatnonzero(new) + 1) if order.size else ():
            stream, number = self._reader.training[int(pieces.source[rows[0]])], int(pieces.shard[rows[0]])
            if number + 1 >= stream.shard_offsets.size or not stream.documents(number).numbers.size:
                lost[rows] = True
                continue
            documents = stream.documents(number)
            at = np.minimum(np.searchsorted(documents.numbers, pieces.document[rows]), documents.numbers.size - 1)
            document_tokens[rows] = np.diff(documents.offsets)[at]
            physical[rows] = documents.physical[at] + pieces.first_token[rows]
            ends = pieces.first_token[rows] + pieces.num_tokens[rows]
            lost[rows] = (documents.numbers[at] != pieces.document[rows]) | (ends > document_tokens[rows])
        return pieces._replace(document_tokens=document_tokens, physical=physical), np.flatnonzero(lost)

    def _describe(self, pieces: Pieces, row: int) -> str:
        source, shard, document, first, size = (
            int(column[row])
            for column in (pieces.source, pieces.shard, pieces.document, pieces.first_token, pieces.num_tokens)
        )
        return (
            f"tokens {first:,} to {first + size:,} of document {document} in shard {shard} of source "
            f"{self._reader.manifest.sources[source].name!r}, where training has none"
        )

    def _other_sample(self, pieces: Pieces, located: Located) -> int | None:
        """The first sequence that is not the sample that lies where `located` says."""
        expected = concat_pieces(self._reader.training, located, self._reader.sequence_length)
        size = min(pieces.source.size, expected.source.size)
        differs = np.zeros(size, np.bool_)
        for name in SCHEMA.names:
            differs |= getattr(pieces, name)[:size] != getattr(expected, name)[:size]
        if differs.any():
            return int(pieces.sequence[differs.argmax()])
        return None if pieces.source.size == expected.source.size else int(pieces.sequence[size - 1])

    def _token_problems(
        self, shard: Shard, pieces: Pieces, mask: NDArray[np.uint8] | None, first_index: int
    ) -> Iterator[str]:
        padding_id = self._loaded.manifest.padding_id
        filled = fill(self._reader.manifest, self._reader.training, pieces, padding_id, first_index)
        pairs = {"tokens": (shard.tokens, filled.tokens), "loss masks": (mask, filled.mask)}
        for what, (have, need) in pairs.items():
            if have is None or need is None:
                continue  # where only one has masks, that is named already
            wrong = np.flatnonzero(have != need.reshape(-1))
            if wrong.size:
                yield (
                    f"{shard.prefix}: sequence {wrong[0] // need.shape[1]} has other {what} than its pieces have in "
                    f"the sources, {wrong.size:,} places in all; `prep verify --inputs` says if those are damaged, "
                    "else pack again"
                )


def _urls(mixture: LoadedManifest[MixtureManifest]) -> list[str]:
    """Where a mixture and its sources lie."""
    return [mixture.url, *(mixture.input_url(source.input) for source in mixture.manifest.sources)]
