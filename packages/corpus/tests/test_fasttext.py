"""fastText models, read and applied by our own code, against the library's own predictions."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_core.errors import InputError
from tokenmill_corpus.fasttext import load_fasttext
from tokenmill_corpus.filters.language import packaged_model

fasttext = pytest.importorskip("fasttext")

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and that is all there is to it.",
    "Der schnelle braune Fuchs springt über den faulen Hund; größer wird er davon nicht.",
    "これは日本語の文章です。 もう一つの文。",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "a",
    "antidisestablishmentarianism " * 40,
    "  tabs\tand \n line\r\n breaks\x0b ",
    "__label__en is no word here",
    "a\u0000b",
]


def buffers(texts: list[str]) -> TextBuffers:
    return column_buffers(pa.array(texts, pa.large_string()))


def one_line(text: str) -> str:
    return text.replace("\n", " ")


def assert_alike(path: str, texts: list[str]) -> None:
    """On all texts but those of which the model knows nothing: to these, the library gives the scores of their end."""
    model, library = load_fasttext(path), fasttext.load_model(path)
    texts = [text for text in texts if model.predict(buffers([text])).any()]
    assert len(texts) >= 5
    scores = model.predict(buffers(texts))
    for row, text in zip(scores, texts, strict=True):
        labels, probabilities = library.predict(one_line(text), k=-1)
        theirs = dict(zip(labels, probabilities, strict=True))
        assert theirs.keys() <= {f"__label__{label}" for label in model.labels}
        # The library looks sigmoids up in a table of 512 steps, and leaves out what is below 1e-5.
        for label, score in zip(model.labels, row.tolist(), strict=True):
            assert score == pytest.approx(theirs.get(f"__label__{label}", 0), abs=0.012)


def test_quantised_pruned_hierarchical_model() -> None:
    assert_alike(packaged_model(), TEXTS)


LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}


def write_model(
    path: Path, *, loss: str, minn: int = 0, maxn: int = 0, word_ngrams: int = 1, quantised: bool = False
) -> str:
    """A model of random weights in the library's own format, version 12; quantised, with half of its n-grams pruned."""
    rng, dim, bucket = np.random.default_rng(0), 6, 2000 if maxn or word_ngrams > 1 else 0
    words, labels = ["</s>", "one", "two", "red", "green", "grün", "snow"], ["number", "colour", "hot", "cold", "none"]
    dictionary = b"".join(word.encode() + struct.pack("<bqb", 0, 50, 0) for word in words)
    dictionary += b"".join(
        f"__label__{x}".encode() + struct.pack("<bqb", 0, 40 - 9 * i, 1) for i, x in enumerate(labels)
    )
    kept = np.arange(0, bucket, 2) if quantised else np.arange(bucket)
    pruned = np.stack([kept, np.arange(len(kept))], axis=1).astype("<i4") if quantised else np.empty((0, 2), "<i4")
    rows = len(words) + len(kept)

    def dense(num_rows: int) -> bytes:
        return struct.pack("<qq", num_rows, dim) + rng.normal(size=(num_rows, dim)).astype("<f4").tobytes()

    def quantiser(size: int, parts: int) -> bytes:
        centroids = rng.normal(size=size * 256).astype("<f4").tobytes()
        return struct.pack("<iiii", size, parts, 4 if parts > 1 else size, size - 4 * (parts - 1)) + centroids

    inputs = b"\0" + dense(rows)
    if quantised:
        codes = rng.integers(0, 256, rows * 2, np.uint8).tobytes()
        inputs = struct.pack("<??qqi", True, True, rows, dim, rows * 2) + codes + quantiser(dim, 2)
        inputs += rng.integers(0, 256, rows, np.uint8).tobytes() + quantiser(1, 1)
    arguments = (dim, 5, 5, 1, 5, word_ngrams, LOSSES[loss], 3, bucket, minn, maxn, 100)
    counts = (len(words) + len(labels), len(words), len(labels), 1000, len(kept) if quantised else -1)
    path.write_bytes(
        struct.pack("<ii12id", 793712314, 12, *arguments, 1e-4)
        + struct.pack("<iiiqq", *counts)
        + dictionary
        + pruned.tobytes()
        + inputs
        + b"\0"
        + dense(len(labels))
    )
    return str(path)


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize(
    "options",
    [{}, {"word_ngrams": 3}, {"minn": 2, "maxn": 4}, {"minn": 1, "maxn": 3, "word_ngrams": 2, "quantised": True}],
    ids=str,
)
def test_models_of_every_kind(tmp_path: Path, loss: str, options: dict[str, Any]) -> None:
    path = write_model(tmp_path / "model.bin", loss=loss, **options)
    texts = [
        "one two red",
        "green green grün",
        "one unheard of",
        "snow two\tice four",
        "grün",
        "one __label__x two",
        *TEXTS[:6],
    ]
    assert_alike(path, texts)


def test_what_a_model_knows_nothing_of_has_no_scores(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.bin", loss="softmax")
    scores = load_fasttext(path).predict(buffers(["", " \n ", "unheard of", "red"]))
    assert scores[:3].tolist() == np.zeros((3, 5)).tolist()
    assert scores[3].sum() == pytest.approx(1)


def test_word_vectors_are_no_classifier(tmp_path: Path) -> None:
    path = Path(write_model(tmp_path / "vectors.bin", loss="softmax"))
    data = bytearray(path.read_bytes())
    data[8 + 7 * 4] = 2  # the kind of model: skip-gram
    path.write_bytes(data)
    with pytest.raises(InputError, match="word vectors, not a classifier"):
        load_fasttext(str(path))


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.3, 0.999])
def test_a_cut_file_is_refused_by_name(tmp_path: Path, share: float) -> None:
    data = Path(packaged_model()).read_bytes()
    path = tmp_path / f"cut-{share}.ftz"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match=r"cut-.*\.ftz: not a readable supervised fastText model"):
        load_fasttext(str(path))


def test_other_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("this is no model at all, just some text")
    with pytest.raises(InputError, match="not a readable supervised"):
        load_fasttext(str(tmp_path / "text.bin"))
    with pytest.raises(InputError, match="no such fastText model"):
        load_fasttext(str(tmp_path / "absent.bin"))


def test_slices_and_empty_batches() -> None:
    model = load_fasttext(packaged_model())
    column = pa.array(TEXTS, pa.large_string())
    whole = model.predict(column_buffers(column))
    assert (model.predict(column_buffers(column.slice(2, 3))) == whole[2:5]).all()
    assert model.predict(column_buffers(column.slice(0, 0))).shape == (0, 176)
