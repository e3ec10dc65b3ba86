"""datatrove's own filters, by name."""

import importlib
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.datatrove import FINEWEB_FILTERS, Datatrove, DatatroveFilter
from tokenmill_corpus.filters.family import Outcome

pytest.importorskip("datatrove")

SENTENCE = "The people of the town have walked down to the river, and that was a day with the sun over all of it."
PROSE = """It was a bright cold day in the spring of that year, and the clocks of the town had just struck the hour.
Nobody in the streets below seemed to notice that the old bridge, which had stood for ages, was closed.
A man with a heavy bag stopped to read the notice, shook his head, and turned back to the market square.
Behind him two children argued about whether fish could sleep, until their aunt told them to be quiet.
She had come to buy bread, but the baker was out of it; all that he had left were a few dry biscuits.
By evening the wind had changed, and people began to have the feeling that something was to happen."""


def documents(*texts: str, **columns: list[Any]) -> Documents:
    ids = [str(i) for i in range(len(texts))]
    data = {"id": ids, "text": pa.array(texts, pa.large_string()), **{k: pa.array(v) for k, v in columns.items()}}
    return Documents(pa.RecordBatch.from_pydict(data))


def family(*filters: dict[str, Any]) -> Datatrove:
    return Datatrove(filters=tuple(DatatroveFilter(**f) for f in filters))


def reasons(outcome: Outcome) -> dict[str, list[bool]]:
    return {rule.setting: rule.breaks.tolist() for rule in outcome.rules}


def test_the_default_is_fineweb() -> None:
    assert Datatrove().filters == FINEWEB_FILTERS
    assert reasons(Datatrove().apply(documents(PROSE, "one two three four five six", f"{SENTENCE}\n" * 30))) == {
        "GopherRepetitionFilter.top_2_gram": [False, True, False],
        "GopherRepetitionFilter.dup_line_frac": [False, False, True],
    }


def test_the_first_filter_that_drops_gives_the_reason() -> None:
    short = {"name": "GopherQualityFilter"}
    brackets = {"name": "C4QualityFilter", "min_num_sentences": -1}
    text = "there is a { bracket in here."
    assert reasons(family(short, brackets).apply(documents(text))) == {"GopherQualityFilter.gopher_short_doc": [True]}
    assert reasons(family(brackets, short).apply(documents(text))) == {"C4QualityFilter.curly_bracket": [True]}


def test_changed_texts_are_an_edit_and_its_bytes_are_accounted_for() -> None:
    texts = [f"{PROSE}\nno end mark", PROSE, "{", f"  {PROSE}"]
    outcome = family({"name": "C4QualityFilter"}).apply(documents(*texts))
    assert reasons(outcome) == {"C4QualityFilter.too_few_sentences": [False, False, True, False]}
    edit = outcome.edit
    assert edit is not None
    assert edit.removed["C4QualityFilter"].tolist() == [12, 0, 0, 2]
    assert edit.count["C4QualityFilter"].tolist() == [1, 0, 0, 1]
    assert edit.text.data.tobytes().decode() == PROSE + PROSE + "{" + PROSE


def test_metadata_are_the_other_columns() -> None:
    urls = ["http://www.bad.com/x", "http://good.com/"]
    settings = {"name": "URLFilter", "extra_domains": ["bad.com"], "use_integrated_lists": False}
    outcome = family(settings).apply(documents("a", "b", url=urls))
    assert reasons(outcome) == {"URLFilter.domain": [True, False]}


def test_a_document_that_a_filter_divides_by_zero_on_goes_for_that() -> None:
    settings = {"name": "GopherQualityFilter", "min_doc_words": 0}
    outcome = family(settings).apply(documents("", PROSE))
    assert reasons(outcome) == {"GopherQualityFilter.error": [True, False]}


def test_other_failures_stop_and_name_filter_and_document() -> None:
    settings = {"name": "URLFilter", "use_integrated_lists": False}
    with pytest.raises(InputError, match=r"datatrove\.filters: URLFilter failed on document '0': AssertionError"):
        family(settings).apply(documents("no URL"))


def test_a_filter_without_reasons_is_its_own() -> None:
    outcome = family({"name": "RegexFilter", "regex_exp": "secret"}).apply(documents("a secret", "none"))
    assert list(reasons(outcome).values()) == [[True, False]]
    assert next(iter(reasons(outcome))).startswith("RegexFilter")


def test_dotted_paths() -> None:
    path = "datatrove.pipeline.filters.c4_filters.C4ParagraphFilter"
    outcome = family({"name": path}).apply(documents("short"))
    assert reasons(outcome) == {"C4ParagraphFilter.< 3 paragraphs": [True]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "GopherQualtyFilter"}, "there is no filter 'GopherQualtyFilter'; did you mean 'GopherQualityFilter'"),
        ({"name": "nowhere.Filter"}, "cannot import 'nowhere' of 'nowhere.Filter'"),
        ({"name": "datatrove.data.Document"}, "there is no filter 'datatrove.data.Document'"),
        (
            {"name": "FineWebQualityFilter", "line_punct": 1},
            "has no argument 'line_punct'; did you mean 'line_punct_thr'",
        ),
        ({"name": "FineWebQualityFilter", "exclusion_writer": "x"}, "has no argument 'exclusion_writer'"),
        ({"name": "SamplerFilter", "rate": 0.5}, "SamplerFilter is left out.*`sampling`"),
        ({"name": "RegexFilter"}, "RegexFilter refuses {}"),
        ({"name": "C4QualityFilter", "language": {1}}, "C4QualityFilter: .*arguments are numbers, text, and lists"),
    ],
)
def test_what_is_not_there_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family(settings).check()


def test_a_filter_needs_a_name() -> None:
    with pytest.raises(ValidationError, match="name"):
        family({"min_doc_words": 1})


def test_settings_survive_being_written_out() -> None:
    settings = family({"name": "GopherRepetitionFilter", "top_n_grams": [[2, 0.2]]})
    again = validate_config(Datatrove, settings.model_dump(mode="json"), "test")
    assert again == settings
    assert again.filters[0].arguments == {"top_n_grams": [[2, 0.2]]}


def test_without_datatrove_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name.startswith("datatrove"):
            raise ImportError(f"No module named {name!r}")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ConfigError, match=r"pip install 'tokenmill-corpus\[datatrove\]'"):
        family({"name": "LambdaFilter"}).check()
