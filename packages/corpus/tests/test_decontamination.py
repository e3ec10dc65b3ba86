"""Decontamination against a plain-Python reference, and on planted benchmark items."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_corpus.decontamination import Action, Benchmark, Decontamination
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters import Judge

QUESTION = "Which river rises in the hills above the old mill and runs north past three towns to the sea?"
FILLER = "Nothing of this was ever asked of anybody. "


def batch_of(texts: Sequence[str]) -> Documents:
    rows = {
        "id": pa.array([f"d{i}" for i in range(len(texts))]),
        "text": pa.array(texts, pa.large_string()),
        "file": pa.array(["f"] * len(texts)),
        "row": pa.array(range(1, len(texts) + 1), pa.int64()),
    }
    return Documents(pa.RecordBatch.from_pydict(rows))


@pytest.fixture
def benchmark(tmp_path: Path) -> Callable[..., Benchmark]:
    def make(items: Sequence[Any], name: str = "quiz", fields: tuple[str, ...] = ("prompt",)) -> Benchmark:
        path = tmp_path / f"{name}.jsonl"
        rows = [{"prompt": item} if isinstance(item, str) else item for item in items]
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        return Benchmark(name=name, path=str(path), fields=fields)

    return make


def judged(family: Decontamination, texts: Sequence[str]) -> tuple[list[str], Account, dict[str, Any]]:
    """(texts that stay, the account, the report)."""
    family.check()
    documents = batch_of(texts)
    account = Account()
    account.take_in(len(texts), int(documents.text.num_bytes.sum()))
    judge = Judge({"decontamination": family}, account)
    kept = judge(documents)
    findings = json.loads(json.dumps(judge.findings.get("decontamination", [])))
    taken = kept.batch.column("text").to_pylist()
    assert account.documents == len(taken) + sum(documents for documents, _ in account.dropped.values())
    assert account.bytes == sum(len(t.encode()) for t in taken) + sum(lost for _, lost in account.dropped.values())
    return taken, account, family.report(findings)


# The reference, character by character and word by word.


def reference_words(text: str) -> list[tuple[str, int]]:
    """(word, where it starts), for the characters that the strategies below use."""
    words: list[tuple[str, int]] = []
    inside = False
    for place, character in enumerate(text):
        if character in "漢字ก":
            words.append((character, place))
        elif character.isalnum():
            words[-1:] = (
                [(words[-1][0] + character.lower(), words[-1][1])]
                if inside
                else [*words[-1:], (character.lower(), place)]
            )
        inside = character.isalnum() and character not in "漢字ก"
    return words


def reference_ngrams(text: str, n: int, min_words: int) -> list[tuple[str, ...]]:
    words = [word for word, _ in reference_words(text)]
    if len(words) < min_words:
        return []
    n = min(n, len(words))
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def reference_overlaps(text: str, items: list[set[tuple[str, ...]]]) -> list[float]:
    words = [word for word, _ in reference_words(text)]
    held = {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return [len(item & held) / len(item) if item else 0.0 for item in items]


# Few words, so that n-grams meet; written with various case, punctuation and scripts.
texts = st.lists(st.sampled_from(["a", "B", "é", "É.", "x-y", "--", "漢字", "ก", "\n", "7"]), max_size=25).map(" ".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    items=st.lists(texts, min_size=1, max_size=5),
    documents=st.lists(texts, min_size=1, max_size=5),
    n=st.integers(2, 5),
    shorter=st.integers(0, 2),
    max_items=st.integers(1, 3),
    max_overlap=st.sampled_from([0.0, 0.3, 0.5]),
)
def test_overlaps_are_those_of_the_reference(
    benchmark: Callable[..., Benchmark],
    items: list[str],
    documents: list[str],
    n: int,
    shorter: int,
    max_items: int,
    max_overlap: float,
) -> None:
    min_words = max(1, n - shorter)
    family = Decontamination(
        benchmarks=(benchmark(items),), ngram=n, min_words=min_words, max_items=max_items, max_overlap=max_overlap
    )
    family.check()
    ngrams = [set(reference_ngrams(item, n, min_words)) for item in items]
    common = {ngram for ngram, count in Counter(n for item in ngrams for n in item).items() if count > max_items}
    looked_for = [item - common for item in ngrams]
    overlaps = [reference_overlaps(document, looked_for) for document in documents]

    outcome = family.apply(batch_of(documents))
    report = family.report(outcome.findings)["quiz"]

    assert outcome.rules[0].values.tolist() == [max(values) for values in overlaps]
    contaminated = [max(values) > max_overlap for values in overlaps]
    assert outcome.rules[0].breaks.tolist() == contaminated
    assert report["contaminated_documents"] == sum(contaminated)
    assert report["items"] == len(items)
    assert report["items_not_looked_for"] == sum(not item for item in looked_for)
    assert report["common_ngrams"] == len(common)
    assert report["found"] == [
        {"item": i + 1, "documents": sum(v > max_overlap for v in values), "largest_overlap": max(values)}
        for i, values in enumerate(zip(*overlaps, strict=True))
        if max(values) > max_overlap
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(item=texts, documents=st.lists(texts, min_size=1, max_size=4), n=st.integers(2, 5), margin=st.integers(0, 9))
def test_cuts_are_those_of_the_reference(
    benchmark: Callable[..., Benchmark], item: str, documents: list[str], n: int, margin: int
) -> None:
    family = Decontamination(
        benchmarks=(benchmark([item]),), ngram=n, min_words=n, action=Action.CUT, margin=margin, max_cuts=1000
    )
    kept, _, _ = judged(family, documents)
    expected = [reference_cut(text, reference_ngrams(item, n, n), n, margin) for text in documents]
    # The judge drops documents of which a cut left nothing but white space, and those that came in so beside one.
    assert [text for text in kept if text.strip()] == [text for text in expected if text.strip()]


def reference_cut(text: str, ngrams: list[tuple[str, ...]], n: int, margin: int) -> str:
    words = reference_words(text)
    borders = [0, *(place for _, place in words), len(text)]
    goes = [False] * len(text)
    for i in range(len(words) - n + 1):
        if tuple(word for word, _ in words[i : i + n]) in ngrams:
            start, end = words[i][1], [*(place for _, place in words), len(text)][i + n]
            start = max(border for border in borders if border <= max(0, start - margin))
            end = min(border for border in borders if border >= min(len(text), end + margin))
            goes[start:end] = [True] * (end - start)
    return "".join(character for character, gone in zip(text, goes, strict=True) if not gone)


def test_a_document_with_a_question_is_dropped_and_named(benchmark: Callable[..., Benchmark]) -> None:
    family = Decontamination(benchmarks=(benchmark(["Something short", QUESTION]),))
    kept, account, report = judged(family, [FILLER * 5, f"{FILLER}\n{QUESTION} {FILLER}", FILLER])
    assert kept == [FILLER * 5, FILLER]
    assert account.dropped["decontamination.max_overlap"][0] == 1
    assert report["quiz"] == {
        "items": 2,
        "items_not_looked_for": 1,
        "common_ngrams": 0,
        "contaminated_documents": 1,
        "items_found": 1,
        "found": [{"item": 2, "documents": 1, "largest_overlap": 1.0}],
        "examples": [{"item": 2, "overlap": 1.0, "id": "d1", "file": "f", "row": 2}],
    }


def test_the_ledger_says_which_item_it_was(benchmark: Callable[..., Benchmark]) -> None:
    other = QUESTION.replace("river", "railway").replace("towns", "lakes")
    family = Decontamination(benchmarks=(benchmark(["nothing"], "first"), benchmark([other, QUESTION], "second")))
    family.check()
    (rule,) = family.apply(batch_of([QUESTION, FILLER])).rules
    assert rule.detail is not None
    assert rule.detail.to_pylist() == ["second:2", None]


@pytest.mark.parametrize(
    "written", [QUESTION.upper(), QUESTION.replace(" ", "\n\n\t"), QUESTION.replace(" ", " -- "), f"«{QUESTION}»"]
)
def test_case_punctuation_and_white_space_do_not_hide_it(benchmark: Callable[..., Benchmark], written: str) -> None:
    assert judged(Decontamination(benchmarks=(benchmark([QUESTION]),)), [written])[0] == []


def test_scripts_without_spaces_count_characters(benchmark: Callable[..., Benchmark]) -> None:
    question = "この川はどの丘から流れ出て海まで行くのでしょうか"
    family = Decontamination(benchmarks=(benchmark([question]),))
    texts = [f"前置きです。{question[3:17]}という問い。", f"前置きです。{question[3:12]}という問い。"]
    assert judged(family, texts)[0] == texts[1:]


def test_a_short_text_is_looked_for_whole_and_a_shorter_one_not_at_all(benchmark: Callable[..., Benchmark]) -> None:
    eight, seven = "one two three four five six seven eight", "a b c d e f g"
    family = Decontamination(benchmarks=(benchmark([eight, seven]),))
    kept, _, report = judged(family, [f"{FILLER} {eight} {FILLER}", eight[4:], f"{FILLER} {seven} {FILLER}"])
    assert kept == [eight[4:], f"{FILLER} {seven} {FILLER}"]
    assert report["quiz"]["items_not_looked_for"] == 1


def test_no_ngram_spans_two_fields(benchmark: Callable[..., Benchmark]) -> None:
    item = {"prompt": "one two three four", "answer": "five six seven eight"}
    family = Decontamination(benchmarks=(benchmark([item], fields=("prompt", "answer")),), ngram=5, min_words=5)
    assert judged(family, ["one two three four five six seven eight"])[0] != []


def test_fields_may_be_nested_lists_or_null(benchmark: Callable[..., Benchmark]) -> None:
    items = [{"q": {"text": None, "choices": ["no", QUESTION]}, "n": 4}]
    family = Decontamination(benchmarks=(benchmark(items, fields=("q.text", "q.choices", "n")),))
    assert judged(family, [QUESTION, FILLER])[0] == [FILLER]


def test_a_share_of_an_item_may_be_allowed(benchmark: Callable[..., Benchmark]) -> None:
    words = QUESTION.split()
    family = Decontamination(benchmarks=(benchmark([QUESTION]),), ngram=8, max_overlap=0.5)
    assert len(words) - 8 + 1 == 12
    half, more = " ".join(words[: 6 + 7]), " ".join(words[: 7 + 7])
    assert judged(family, [half, more])[0] == [half]


def test_what_every_item_says_is_not_looked_for(benchmark: Callable[..., Benchmark]) -> None:
    how = "Read the question below with care and then choose the best of the four answers given."
    items = [f"{how} {' '.join(f'word{i}x{j}' for j in range(20))}" for i in range(5)]
    family = Decontamination(benchmarks=(benchmark(items),), max_items=4)
    kept, _, report = judged(family, [how, items[3]])
    assert kept == [how]
    assert report["quiz"]["common_ngrams"] == len(how.split()) - 13 + 1


def test_a_margin_ends_where_the_document_does(benchmark: Callable[..., Benchmark]) -> None:
    family = Decontamination(benchmarks=(benchmark([QUESTION]),), action=Action.CUT, margin=2**31 - 1, max_cuts=1)
    kept, account, _ = judged(family, [f"é {FILLER * 50}{QUESTION} " * 100 + "é", FILLER])
    assert kept == [FILLER]
    assert sum(documents for documents, _ in account.dropped.values()) == 1


@pytest.mark.parametrize("name", ["margin", "ngram", "max_items", "max_cuts"])
def test_numbers_beyond_all_measure_are_refused(benchmark: Callable[..., Benchmark], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Decontamination.model_validate({"benchmarks": (benchmark([QUESTION]),), name: 2**64})


def test_a_cut_takes_a_margin_and_whole_words(benchmark: Callable[..., Benchmark]) -> None:
    before, after = "äöü ßèé " * 60, " ñandú çedilla" * 60
    family = Decontamination(benchmarks=(benchmark([QUESTION]),), action=Action.CUT)
    kept, account, report = judged(family, [before + QUESTION + after, FILLER])
    cut = kept[0]
    assert kept[1] == FILLER
    assert "river" not in cut
    left = cut[: cut.index("ñandú")] if "ñandú" in cut[:20] else cut[: cut.rindex("ßèé") + 4]
    assert before.startswith(left)
    assert 200 <= len(before) - len(left) <= 204
    assert account.dropped["decontamination.cut"] == (0, len((before + QUESTION + after).encode()) - len(cut.encode()))
    assert account.notes["decontamination.cut"] == 1
    assert report["quiz"]["contaminated_documents"] == 1


def test_a_document_cut_in_too_many_places_is_dropped(benchmark: Callable[..., Benchmark]) -> None:
    family = Decontamination(benchmarks=(benchmark([QUESTION]),), action=Action.CUT, margin=0, max_cuts=2)
    kept, account, _ = judged(family, [f"{FILLER}{QUESTION} " * times for times in (2, 3)])
    assert kept == [FILLER * 2]
    assert account.dropped["decontamination.max_cuts"][0] == 1


def test_a_document_that_is_a_question_leaves_nothing(benchmark: Callable[..., Benchmark]) -> None:
    family = Decontamination(benchmarks=(benchmark([QUESTION]),), action=Action.CUT)
    kept, account, _ = judged(family, [QUESTION, FILLER])
    assert kept == [FILLER]
    assert account.dropped == {"decontamination.emptied": (1, len(QUESTION))}


def test_a_compressed_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "quiz.jsonl.gz"
    path.write_bytes(gzip.compress(orjson.dumps({"prompt": QUESTION, "answer": "4"})))
    family = Decontamination(benchmarks=(Benchmark(name="quiz", path=str(path)),))
    assert judged(family, [QUESTION])[0] == []
    assert family.named_files() == {"benchmarks.quiz": str(path)}


def test_a_benchmark_that_changed_is_read_again(benchmark: Callable[..., Benchmark]) -> None:
    family = Decontamination(benchmarks=(benchmark([FILLER * 3]),))
    assert judged(family, [QUESTION])[0] == [QUESTION]
    benchmark([QUESTION])
    assert judged(family, [QUESTION])[0] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"question": "x"}',
            r"quiz.jsonl line 2 has no field 'prompt'; set the benchmark's `fields` .*\['question'\]",
        ),
        (b'{"prompt": {"a": 1}}', "line 2: 'prompt' holds dict, not text"),
        (b'{"prompt":', "line 2 is not JSON"),
        (b'["x"]', "line 2 is list, not an object"),
    ],
)
def test_bad_items_are_refused_by_name(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "quiz.jsonl"
    path.write_bytes(b'{"prompt": "x"}\n' + line + b"\n")
    benchmark = Benchmark(name="quiz", path=str(path), fields=("prompt",))
    with pytest.raises(InputError, match=message):
        Decontamination(benchmarks=(benchmark,)).check()


def test_files_without_items_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    for name, message in (("empty.jsonl", "holds no items"), ("absent.jsonl", "absent.jsonl")):
        with pytest.raises(InputError, match=message):
            Decontamination(benchmarks=(Benchmark(name="quiz", path=str(tmp_path / name)),)).check()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ngram": 5}, "min_words: 8 is more than ngram 5"),
        ({"benchmarks": [{"name": "a", "path": "x"}, {"name": "a", "path": "y"}]}, "two are called 'a'"),
        ({"enabled": True}, "benchmarks: none is given"),
    ],
)
def test_settings_that_contradict_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decontamination.model_validate(values)


@pytest.mark.usefixtures("many_tasks")
def test_from_end_to_end_with_a_report(
    clean: Callable[..., Any], write_jsonl: Callable[..., Path], benchmark: Callable[..., Benchmark]
) -> None:
    """Through `prep clean`: the same for any number of workers, and built again where a benchmark changed."""
    rows = [{"id": f"{i}", "text": f"{FILLER * 9} {i} {QUESTION if i % 3 == 0 else ''}"} for i in range(9)]
    inputs = [write_jsonl(f"{name}.jsonl", part) for name, part in (("a", rows[:5]), ("b", rows[5:]))]
    quiz = benchmark(["Too short", QUESTION])
    settings = {"profile": "none", "filter": {"decontamination": {"enabled": True, "benchmarks": [quiz.model_dump()]}}}
    one = clean(*inputs, out="one", **settings)
    assert one.ledger["decontamination.max_overlap"][0] == 3
    assert {row["id"] for row in one.rows} == {"1", "2", "4", "5", "7", "8"}
    report = orjson.loads((one.folder / "decontamination.json").read_bytes())["quiz"]
    assert (report["contaminated_documents"], report["items_found"]) == (3, 1)
    assert [example["id"] for example in report["examples"]] == ["0", "3", "6"]
    assert clean(*inputs, out="two", workers=2, **settings).content == one.content

    benchmark(["Too short", "Another question that nobody has ever asked of anybody at all, not even in jest."])
    assert len(clean(*inputs, out="one", **settings).rows) == 9
