"""A fastText model as a filter."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.classifier import Classifier
from tokenmill_corpus.filters.family import Outcome


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A softmax model of the words `good` and `bad` and the labels hq and lq, as the library writes it."""
    words, labels = ["good", "bad"], ["__label__hq", "__label__lq"]
    arguments = struct.pack("<12id", 2, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4)
    entries = b"".join(word.encode() + struct.pack("<bqb", 0, 10, word in labels) for word in words + labels)
    dictionary = struct.pack("<iiiqq", 4, 2, 2, 20, -1) + entries
    inputs = np.array([[2, 0], [0, 2]], "<f4")
    outputs = np.array([[1, 0], [0, 1]], "<f4")
    matrices = b"".join(struct.pack("<?qq", False, 2, 2) + matrix.tobytes() for matrix in (inputs, outputs))
    path = tmp_path / "quality.bin"
    path.write_bytes(struct.pack("<ii", 793712314, 12) + arguments + dictionary + matrices)
    return str(path)


def apply(model: str, *texts: str, **options: object) -> Outcome:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return Classifier(model=model, **options).apply(Documents(batch))


def softmax(one: float, other: float) -> float:
    return float(np.exp(one) / (np.exp(one) + np.exp(other)))


def test_scores_are_the_labels_probability(model: str) -> None:
    outcome = apply(model, "good", "bad", "good bad", "good good\nbad", "neither", "", label="__label__hq")
    expected = [softmax(2, 0), softmax(0, 2), 0.5, softmax(4 / 3, 2 / 3), 0, 0]
    assert outcome.columns["classifier_score"].to_pylist() == pytest.approx(expected, abs=1e-6)
    [rule] = outcome.rules
    assert rule.setting == "min_score"
    assert rule.breaks.tolist() == [False, True, False, False, True, True], "0.5 itself is kept"


def test_settings(model: str) -> None:
    outcome = apply(model, "bad", label="lq", min_score=0.9, column="lq")
    assert list(outcome.columns) == ["lq"]
    assert outcome.rules[0].breaks.tolist() == [True]
    assert Classifier(model=model, label="lq").named_files() == {"model": model}


def test_what_is_not_there_is_refused_by_name(model: str) -> None:
    Classifier(model=model, label="hq").check()
    with pytest.raises(ConfigError, match=r"classifier\.label: .*quality.bin has no label 'hqq'; did you mean 'hq'"):
        Classifier(model=model, label="hqq").check()
    with pytest.raises(ConfigError, match=r"classifier\.model: no model is named"):
        Classifier(label="hq").check()
    with pytest.raises(ConfigError, match="'text' is taken by every document"):
        Classifier(model=model, label="hq", column="text").check()
    with pytest.raises(InputError, match="no such fastText model"):
        Classifier(model=model + ".gone", label="hq").check()
