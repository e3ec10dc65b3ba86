"""Copies: equal bytes, or equal words, or one URL. One stays, wherever the others lie."""

import hashlib
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_core.errors import StageError, TokenmillError
from tokenmill_corpus.dedup.bloom import false_positive_rates, filter_size
from tokenmill_corpus.dedup.exact import normalised_digests, text_digests
from tokenmill_corpus.dedup.url import normalise_url

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from dedup_stage import deduplicate


def buffers(texts: list[str]) -> TextBuffers:
    return column_buffers(pa.array(texts, pa.large_string()))


def test_a_digest_is_that_of_the_utf8_bytes_wherever_the_slice_starts() -> None:
    texts = ["zero", "ein Wörtchen", "", "三"]
    found = text_digests(column_buffers(pa.array(texts, pa.large_string()).slice(1)))
    expected = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts[1:]]
    assert [row.tobytes() for row in found] == expected


def test_digests_tell_apart_texts_that_no_normal_form_may_join() -> None:
    texts = ["é", "e\u0301", "E", "e", "e ", "", "\ufeffe", "ＡＢＣ", "ABC"]
    assert len({row.tobytes() for row in text_digests(buffers(texts))}) == len(texts)


def test_normalised_digests_join_what_differs_in_case_space_and_punctuation_only() -> None:
    same = ["The cat, sat.", "the CAT  sat", " The\ncat - sat!"]
    others = ["the cat", "the cat sat on", "cat the sat", "thecat sat", "", "!!!", "...", "??", "the cat sat 1"]
    digests = [row.tobytes() for row in normalised_digests(buffers(same + others))]
    assert len(set(digests[:3])) == 1
    assert len(set(digests)) == 1 + len(others)


PARTS = st.lists(st.lists(st.sampled_from(["a", "b", "ab", "ü", "u\u0308", "a\n", "A"]), max_size=6), max_size=4)


@settings(max_examples=30, deadline=None)
@given(PARTS)
def test_a_document_stays_unless_an_earlier_one_equals_it(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]]
) -> None:
    found = deduplicate(tmp_path_factory.mktemp("exact"), {f"f{i}": part for i, part in enumerate(parts)})
    in_order = [text for part in parts for text in part]
    assert found.texts == list(dict.fromkeys(in_order))
    assert [row["text"] for row in found.ledger] == [t for i, t in enumerate(in_order) if t in in_order[:i]]
    assert all(row["rule"] == "exact_duplicate" and row["value"] == 1.0 for row in found.ledger)


def test_the_ledger_names_each_rule_and_a_document_that_stays(tmp_path: Path) -> None:
    rows = [{"id": str(i), "text": text} for i, text in enumerate(["One two.", "one two", "One two.", "ONE, TWO", "x"])]
    found = deduplicate(tmp_path, {"a": rows}, exact="normalised")
    assert [row["id"] for row in found.kept] == ["0", "4"]
    assert [(row["id"], row["rule"], row["kept"]["id"]) for row in found.ledger] == [
        ("1", "normalised_duplicate", "0"),
        ("2", "exact_duplicate", "0"),
        ("3", "normalised_duplicate", "0"),
    ]


def test_none_keeps_copies(tmp_path: Path) -> None:
    found = deduplicate(tmp_path, {"a": ["x", "x"]}, exact="none")
    assert found.texts == ["x", "x"]
    assert found.report == {}


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Example.COM:80/A/b/?q=1#top", "https://example.com/A/b?q=1"),
        ("https://example.com", "https://example.com"),
        ("https://example.com:443//", "https://example.com"),
        ("https://example.com:8080/x?", "https://example.com:8080/x"),
        ("ftp://User@example.com./x", "ftp://User@example.com/x"),
        (" http://[2001:DB8::1]:80/ ", "https://[2001:db8::1]"),
        ("http://[bad", "http://[bad"),
        ("http://a:b", "http://a:b"),
        ("not a url", "not a url"),
    ],
)
def test_urls_in_normal_form(url: str, normal: str) -> None:
    assert normalise_url(url) == normal
    assert normalise_url(normal) == normal


def test_one_document_a_url_and_those_without_stay(tmp_path: Path) -> None:
    urls = ["http://a.org/x", "https://A.org/x/#top", None, None, "", "https://a.org/y"]
    rows = [{"id": str(i), "text": f"text {i}", "url": url} for i, url in enumerate(urls)]
    found = deduplicate(tmp_path, {"a": rows}, url=True)
    assert [row["id"] for row in found.kept] == ["0", "2", "3", "4", "5"]
    assert [(row["rule"], row["kept"]["id"]) for row in found.ledger] == [("url_duplicate", "0")]


def test_a_document_that_stayed_by_one_method_and_went_by_another_is_not_named(tmp_path: Path) -> None:
    """2 is a copy of 1, which goes for its URL in favour of 0."""
    rows = [
        {"id": "0", "text": "first", "url": "http://a.org"},
        {"id": "1", "text": "second", "url": "http://a.org"},
        {"id": "2", "text": "second", "url": "http://b.org"},
    ]
    found = deduplicate(tmp_path, {"a": rows}, url=True)
    assert [(row["id"], row["rule"], row["kept"]["id"]) for row in found.ledger] == [
        ("1", "url_duplicate", "0"),
        ("2", "exact_duplicate", "0"),
    ]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"keep": "first"}, {"0", "3"}),
        ({"keep": "longest"}, {"2", "3"}),
        ({"keep": "score", "score_column": "score"}, {"1", "3"}),
        ({"keep": "priority", "priority": ("c", "b")}, {"2", "3"}),
        ({"keep": "priority", "priority": ("b",)}, {"1", "3"}),
    ],
)
def test_which_of_several_copies_stays(tmp_path: Path, policy: dict, kept: set[str]) -> None:
    files = {
        "a": [{"id": "0", "text": "The same", "score": -1.0}, {"id": "3", "text": "another"}],
        "b": [{"id": "1", "text": "the same.", "score": 2.5}],
        "c": [{"id": "2", "text": "the  same!!!", "score": None}],
    }
    found = deduplicate(tmp_path, files, exact="normalised", **policy)
    assert {row["id"] for row in found.kept} == kept
    assert {row["kept"]["id"] for row in found.ledger} == kept - {"3"}


def test_scores_may_be_text_and_what_is_no_number_comes_last(tmp_path: Path) -> None:
    scores = ["", "n/a", " nan ", None, " 9 ", "1e1\n", "-inf"]
    rows = [{"id": score, "text": "the same"} for score in scores]
    policy = {"keep": "score", "score_column": "id"}
    found = deduplicate(tmp_path, {"a": rows[:3], "b": rows[3:]}, **policy)
    assert [row["id"] for row in found.kept] == ["1e1\n"]
    found = deduplicate(tmp_path, {"a": rows[:3], "b": [rows[-1]]}, out="least", **policy)
    assert [row["id"] for row in found.kept] == ["-inf"]


@pytest.mark.parametrize("column", ["quality", "id"])
def test_a_score_that_is_not_there_is_named(tmp_path: Path, column: str) -> None:
    with pytest.raises((TokenmillError, StageError), match=f"score_column '{column}'"):
        deduplicate(tmp_path, {"a": [{"text": "x", "id": "seven"}]}, keep="score", score_column=column)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep": "priority"}, "priority"),
        ({"keep": "score"}, "score_column"),
        ({"score_column": "x"}, "score_column"),
        ({"bloom": {"enabled": True}, "exact": "none"}, "bloom.enabled"),
        ({"bloom": {"enabled": True}, "keep": "longest"}, "Bloom"),
        ({"memory_bytes": 10}, "memory_bytes"),
        ({"memory_bytes": 2**63}, "memory_bytes"),
        ({"minhash": {"min_jaccard": 0}}, "min_jaccard"),
        ({"minhash": {"seed": 2**63}}, "minhash.seed"),
        ({"minhash": {"ngram": 2**70}}, "minhash.ngram"),
        ({"minhash": {"num_bands": 10**12}}, "minhash.num_bands"),
        ({"minhash": {"rows_per_band": 10**12}}, "minhash.rows_per_band"),
        ({"bloom": {"seed": 2**64}}, "bloom.seed"),
        ({"substring": {"min_bytes": 2**31}}, "substring.min_bytes"),
        ({"lines": {"max_copies": 2**64}}, "lines.max_copies"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deduplicate(tmp_path, {"a": ["x"]}, **wrong)


@pytest.mark.parametrize("bloom", [False, True])
def test_the_report_counts_no_document_of_another_corpus(tmp_path: Path, bloom: bool) -> None:
    files = {"a": ["x", "x", "y", "z"], "against-b": ["y", "y", "y", "w"]}
    found = deduplicate(tmp_path, files, bloom={"enabled": bloom, "false_positive_rate": 0.001})
    assert found.texts == ["x", "z"]
    report = found.report["bloom_duplicate" if bloom else "exact_duplicate"]
    assert report["dropped"] == len(found.ledger) == 2
    if bloom:
        # Two of the other corpus are in the filter when the first of the two that stay comes.
        num_bits, num_probes = filter_size(8, 0.001)
        expected = false_positive_rates(4, num_bits, num_probes)[2:].sum()
        assert report["expected_false_positives"] == pytest.approx(expected)
        assert report["expected_false_positive_rate"] == pytest.approx(expected / 2)
