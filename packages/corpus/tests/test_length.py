"""The length of documents, in words."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Rule
from tokenmill_corpus.filters.length import Length


def rules(*texts: str, **settings: int) -> dict[str, Rule]:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return {rule.setting: rule for rule in Length(**settings).apply(Documents(batch)).rules}


def test_thresholds_are_inclusive() -> None:
    texts = [" ".join(["word,"] * n) for n in (0, 9, 10, 11)]
    assert rules(*texts)["min_words"].breaks.tolist() == [True, True, False, False]
    assert rules(*texts, max_words=10)["max_words"].breaks.tolist() == [False, False, False, True]
    assert rules(*texts)["min_words"].values.tolist() == [0, 9, 10, 11]
    assert (Length().min_words, Length().max_words) == (10, 1_000_000)


def test_documents_without_words_have_a_reason() -> None:
    assert rules("", "word", "!!! ... ---", "\n\n\n")["min_words"].breaks.all()
    assert not rules("", min_words=0)["min_words"].breaks.any()


def test_scripts_without_spaces_are_not_too_short() -> None:
    texts = [
        "这是一个很长的中文句子。",
        "ภาษาไทยไม่มีช่องว่าง",
        "日本語の文章はここに。",
        "ພາສາລາວບໍ່ມີຊ່ອງ",
        "ភាសាខ្មែរគ្មាន",
        "မြန်မာဘာသာစကား",
    ]
    assert not rules(*texts)["min_words"].breaks.any()


def test_a_threshold_out_of_range_is_refused_by_its_name() -> None:
    for setting, value in (("min_words", -1), ("max_words", 0)):
        with pytest.raises(ValidationError, match=setting):
            Length.model_validate({setting: value})
