"""Classifier: the probability that a fastText model gives a label, as a score of quality, topic or the like.

Any supervised model the library writes will do (.bin, .ftz; softmax, hierarchical softmax, one-versus-all): it is read
and applied by our own compiled code, so `fasttext` need not be installed. The whole document is judged; line breaks
are white space, as the library has it where they were replaced by spaces. The score becomes a column (float32).
"""

import difflib

import pyarrow as pa
from pydantic import Field

from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.fasttext import LABEL_PREFIX, load_fasttext
from tokenmill_corpus.filters.family import Family, Outcome, at_least


class Classifier(Family):
    """Keep what a fastText classifier scores highly."""

    model: str = ""
    """Path of the model."""
    label: str = ""
    """The label whose probability is the score, with or without `__label__`."""
    min_score: float = Field(default=0.5, ge=0.0, le=1.0)
    """Kept: this probability or more. 0 keeps all and leaves the column."""
    column: str = Field(default="classifier_score", min_length=1)
    """Name of the column that takes the score."""

    def apply(self, documents: Documents) -> Outcome:
        """Rule `min_score`, and the column."""
        model = load_fasttext(self.model)
        scores = model.predict(documents.text)[:, model.labels.index(self._label())]
        return Outcome(rules=[at_least("min_score", scores, self.min_score)], columns={self.column: pa.array(scores)})

    def check(self) -> None:
        """The model can be read and has the label."""
        if not self.model:
            raise ConfigError("classifier.model: no model is named; give the path of a fastText .bin or .ftz file")
        if self.column in ("id", "text", "file", "row"):
            raise ConfigError(f"classifier.column: {self.column!r} is taken by every document; choose another name")
        labels = load_fasttext(self.model).labels
        if self._label() not in labels:
            close = difflib.get_close_matches(self._label(), labels, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(labels[:20])}"
            raise ConfigError(f"classifier.label: {self.model} has no label {self.label!r}; {remedy}")

    def named_files(self) -> dict[str, str]:
        """The model is part of what comes out."""
        return {"model": self.model}

    def _label(self) -> str:
        return self.label.removeprefix(LABEL_PREFIX)
