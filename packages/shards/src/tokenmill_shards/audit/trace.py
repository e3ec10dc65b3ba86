"""A sample traced back: the documents it holds parts of, where each came from, and the text itself.

index ─ parts ─▶ (shard, document, tokens) ─ places ─▶ file, row, id ─ raw_files.jsonl ─▶ path
                                           └ tokens ─ tokenizer.json ─▶ text
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.manifest import TOKENIZER_NAME
from tokenmill_shards.audit.parts import Identity, Part, parts_of, tokens_of
from tokenmill_shards.audit.raw_paths import RawPaths
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.samples import Samples
from tokenmill_shards.reading.store import ShardStore
from tokenmill_tokenizer.decode import Decoder

Row = dict[str, Any]
"""A document of a sample: `sample`, `source`, `epoch`; `shard` and `document`, its number there; `file`, `row` and `id`
in the raw data; `path`, where that file lies now, or none; `first_token` to `last_token`, its tokens in the sample,
counted from 0 and inclusive; `counted`, how many of them are labels that count for the loss; `rearranged`, whether the
sample has them in another order, for filling in the middle; and the `text` of these tokens as the document has it.

What only the document's dataset knows is none where a packed sample is traced and that dataset is not found."""


class Tracer:
    """Traces the samples of `reader`. Without `with_text`, rows have no text; without `with_paths`, the path is none.

    Errors: `VerificationError` where shards are not what their manifests say; `InputError` for an id that is no token.
    """

    def __init__(
        self, reader: MixtureReader | PackedReader, *, with_text: bool = True, with_paths: bool = True
    ) -> None:
        self.reader = reader
        self._with_text = with_text
        self._raw_paths = RawPaths() if with_paths else None
        self._decoder: Decoder | None = None

    def samples(self, indices: Iterable[int], only: Identity | None = None) -> list[Row]:
        """The rows of the samples `indices`, in order; of the document `only` alone, if one is given."""
        return [row for index in indices for row in self._sample(index, only)]

    def _sample(self, index: int, only: Identity | None) -> list[Row]:
        sample = self.reader.samples(np.array([index], np.int64))
        parts = [part for part in parts_of(self.reader, index) if only in (None, part.identity)]
        return [{"sample": index, **self._row(part, sample)} for part in parts]

    def _row(self, part: Part, sample: Samples) -> Row:
        as_trained = sample.tokens[0, part.first_token : part.last_token + 1]
        as_written = None if part.store is None else tokens_of(part, part.store)
        row = {
            "source": part.source,
            "epoch": part.epoch,
            **self._origin(part),
            "first_token": part.first_token,
            "last_token": part.last_token,
            "counted": _num_counted(part, sample),
            "rearranged": None if as_written is None else not np.array_equal(as_trained, as_written),
        }
        return row | {"text": self._text(part.store, as_written)} if self._with_text else row

    def _origin(self, part: Part) -> Row:
        """Where the document stands in its dataset and in the raw data."""
        if part.store is None:
            return {"shard": None, "document": part.document, "file": None, "row": None, "id": None, "path": None}
        place = part.store.place(part.shard, part.document)
        return {
            "shard": part.store.shard_name(part.shard),
            "document": part.document,
            **place._asdict(),
            "path": self._raw_paths.find(part.store, place.file) if self._raw_paths else None,
        }

    def _text(self, store: ShardStore | None, tokens: NDArray[Any] | None) -> str | None:
        """The text of `tokens`; none where no tokenizer lies beside them. All sources of a mixture share one."""
        if store is None or tokens is None:
            return None
        if self._decoder is None:
            loaded = store.load()
            if all(entry.path != TOKENIZER_NAME for entry in loaded.manifest.files):
                return None
            self._decoder = Decoder(loaded.file_url(TOKENIZER_NAME))
        return self._decoder.decode(tokens)


def _num_counted(part: Part, sample: Samples) -> int:
    first_label = max(part.first_token - 1, 0)  # label t is token t + 1, so the first token of a sample is none
    if sample.counted is None:
        return part.last_token - first_label
    return int(sample.counted[0, first_label : part.last_token].sum())
