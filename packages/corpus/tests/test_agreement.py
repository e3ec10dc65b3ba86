"""How often native rules and datatrove's decide alike."""

import io
import json

import pyarrow as pa
import pytest
from rich.console import Console

from tokenmill_corpus.agreement import Report, agreement

pytest.importorskip("datatrove")

LINE = "The people of the town have walked down to the river, and number {} of them came back before the day was over."
PROSE = "\n".join(LINE.format(word) for word in ("one", "two", "three", "four", "five", "six"))
TEXTS = {
    "prose": PROSE,
    "short": "Too short.",
    "empty": "",
    "blank": "\n \n",
    "lines": "the same line again and again\n" * 9,
    "hashes": "#one #two #three " * 30,
    "bullets": "\n".join(f"- item of the list that has number {i}" for i in range(20)),
    "numbers": " ".join(str(i * 7919) for i in range(200)),
    "javascript": PROSE + "\nPlease enable JavaScript in your browser.",
    "policy": PROSE + "\nRead our privacy policy before you go on.",
    "lorem": PROSE + "\nLorem ipsum dolor sit amet.",
    "bracket": PROSE + "\nif (x) { return one; }.",
    "citations": PROSE + "\nAs others have found before us.[12]",
    "unended": PROSE + "\nno full stop here",
    "headings": "\n".join(f"Heading {i}" for i in range(30)),
}


@pytest.fixture(scope="module")
def report() -> Report:
    names, texts = list(TEXTS), list(TEXTS.values())
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([*names[:-1], None], pa.string()),
            "text": pa.array(texts, pa.large_string()),
            "file": pa.array(["some/file"] * len(texts)),
            "row": pa.array(range(len(texts)), pa.int64()),
        }
    )
    return agreement([batch.slice(0, 5), batch.slice(5)])


def test_every_row_counts_every_document(report: Report) -> None:
    assert report.documents == len(TEXTS)
    assert report.bytes == sum(len(text.encode()) for text in TEXTS.values())
    assert len(report.rows) == 36
    for row in report.rows:
        assert row.both_keep + row.both_drop + row.only_native + row.only_datatrove == len(TEXTS), row.rule


@pytest.mark.parametrize(
    ("rule", "dropped"),
    [
        ("gopher_repetition.max_duplicate_line_ratio", {"lines"}),
        ("gopher_quality.max_hash_ratio", {"hashes"}),
        ("gopher_quality.max_bullet_line_ratio", {"bullets"}),
        ("gopher_quality.min_alphabetic_token_ratio", {"numbers", "hashes", "bullets", "headings", "short"}),
        ("c4.javascript_lines", {"javascript"}),
        ("c4.policy_lines", {"policy"}),
        ("c4.drop_lorem_ipsum", {"lorem"}),
        ("c4.drop_curly_brackets", {"bracket"}),
        ("c4.citations", {"citations"}),
        ("fineweb.max_short_line_ratio", {"short", "headings", "lines"}),
    ],
)
def test_rules_are_judged_one_by_one(report: Report, rule: str, dropped: set[str]) -> None:
    """Whatever else a document breaks, both sides drop it for this rule; texts without a word are another matter."""
    [row] = [row for row in report.rows if row.rule == rule]
    differ = {*row.only_native_examples, *row.only_datatrove_examples}
    assert differ <= {"empty", "blank"}, row
    odd = 2 - len(differ)
    assert len(dropped) <= row.both_drop <= len(dropped) + odd, row


def test_documents_that_differ_are_named(report: Report) -> None:
    differing = [row for row in report.rows if row.only_native or row.only_datatrove]
    assert differing
    for row in differing:
        assert len(row.only_native_examples) == min(row.only_native, 5)
        assert len(row.only_datatrove_examples) == min(row.only_datatrove, 5)
        assert {*row.only_native_examples, *row.only_datatrove_examples} <= {*TEXTS, "some/file:14"}
        assert row.agreement < 1


def test_the_report_is_data_and_a_table(report: Report) -> None:
    data = json.loads(json.dumps(report.to_json()))
    assert data["rows"][0]["agreement"] == pytest.approx(report.rows[0].agreement, abs=1e-6)
    console = Console(width=200, file=io.StringIO())
    console.print(report.table())
    assert "gopher_quality.min_words" in console.file.getvalue()


def test_nothing_to_compare() -> None:
    empty = agreement([])
    assert empty.documents == 0
    assert {row.agreement for row in empty.rows} == {1.0}
