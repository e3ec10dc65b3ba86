"""Function words, by language."""

import pyarrow as pa
import pytest

from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.stop_word_lists import STOP_WORDS
from tokenmill_corpus.filters.stop_words import StopWords

SENTENCES = {
    "en": "The house of the mayor is on a hill.",
    "de": "Das Haus und der Garten sind nicht groß.",
    "fr": "La maison est dans une rue de la ville.",
    "ru": "Он не был в этом городе, но он знает его.",
    "zh": "我们在城市里的家不是很大。",
    "ja": "私の家は大きくありません。",
    "ko": "이 도시에는 볼 수 있는 것이 많다.",
    "ar": "كان الرجل في البيت مع ابنه.",
    "hi": "यह घर शहर के पास है और बड़ा है।",
    "el": "Το σπίτι είναι κοντά στην πόλη και δεν είναι μεγάλο.",
    "pl": "Ten dom nie jest duży, ale stoi w lesie.",
    "tr": "Bu ev çok büyük ve bir bahçe var.",
    "vi": "Ngôi nhà này không phải là của những người đó.",
    "he": "הבית של האיש לא גדול, אבל הוא יפה.",
}


def documents(texts: list[str], languages: list[str | None] | None = None) -> Documents:
    columns = {"text": pa.array(texts, pa.large_string())}
    if languages is not None:
        columns["language"] = pa.array(languages, pa.string())
    return Documents(pa.RecordBatch.from_pydict(columns))


def judge(found: Documents, **settings: object) -> tuple[list[float], list[bool]]:
    (rule,) = StopWords(**settings).apply(found).rules
    return rule.values.tolist(), rule.breaks.tolist()


def test_sentences_have_function_words_of_their_language_and_keywords_none() -> None:
    languages = list(SENTENCES)
    assert not any(judge(documents(list(SENTENCES.values()), languages))[1])
    keywords = ["cheap hotel Paris booking", "günstig Hotel Paris", "hôtel pas cher Paris", "дешёвый отель Париж"]
    assert judge(documents(keywords, ["en", "de", "fr", "ru"])) == ([0, 0, 1, 0], [True] * 4)


def test_the_threshold_is_inclusive_and_counts_different_words() -> None:
    texts = ["the the the", "the cat of", "of the cat and", "The Cat Of"]
    assert judge(documents(texts)) == ([1, 2, 3, 0], [True, False, False, True])
    assert judge(documents(texts), min_stop_words=0) == ([1, 2, 3, 0], [False] * 4)


def test_the_column_wins_over_the_setting_which_stands_in_for_nulls() -> None:
    texts = ["der und", "der und", "der und"]
    assert judge(documents(texts, ["de", None, "en"]), language="en")[0] == [2, 0, 0]
    assert judge(documents(texts, ["de", None, "en"]), language="de")[0] == [2, 2, 0]
    assert judge(documents(texts), language="de")[0] == [2, 2, 2]


def test_a_language_without_a_list_is_not_judged_and_one_can_be_given() -> None:
    texts, languages = ["ภาษาไทย", "xx yy", "the of"], ["th", "xx", "en"]
    assert judge(documents(texts, languages)) == ([2, 2, 2], [False] * 3)
    own = {"xx": ("xx", "zz"), "en": ("no",)}
    assert judge(documents(texts, languages), words=own) == ([2, 1, 0], [False, True, True])


def test_languages_are_said_and_empty_batches_pass() -> None:
    (rule,) = StopWords().apply(documents(["a", "b"], ["de", None])).rules
    assert rule.detail.to_pylist() == ["de", "en"]
    assert judge(documents([])) == judge(documents([], [])) == ([], [])
    part = Documents(documents(["der und", "the of", ""], ["de", "en", "fr"]).batch.slice(1, 2))
    assert judge(part) == ([2, 0], [False, True])


def test_settings_that_cannot_work_are_refused() -> None:
    StopWords(words={"xx": ("a",)}, language="xx").check()
    with pytest.raises(ConfigError, match=r"stop_words\.language.*'xx'"):
        StopWords(language="xx").check()
    for words in ((), tuple(map(str, range(65)))):
        with pytest.raises(ConfigError, match=f"stop_words.words.xx: {len(words)} words"):
            StopWords(words={"xx": words}).check()


def test_every_word_of_every_list_can_be_met() -> None:
    """A word with a symbol at its end would be two tokens, and never be found."""
    for language, words in STOP_WORDS.items():
        found = documents([" ".join(words)]).words
        assert len(set(found.hashes.tolist())) == found.num_tokens[0] - (len(words) - len(set(words))), language
        assert found.num_tokens[0] == len(words) <= 64, language
