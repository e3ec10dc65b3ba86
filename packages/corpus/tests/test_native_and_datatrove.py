"""The native rules beside datatrove's own filters, on the English documentation that Python carries.

docs/filters.md says why the two differ where they do.
"""

from pydoc_data.topics import topics

import pyarrow as pa
import pytest

pytest.importorskip("datatrove", reason="the extra `datatrove` is not installed")
pytest.importorskip("spacy", reason="the extra `datatrove` is not installed")

from tokenmill_corpus.agreement import Report, agreement

LEAST = 0.95
LESS = {"c4.short_lines": 0.85}
"""Rules on which the two agree less: in datatrove blank lines are short ones."""
DRAWN = ("+", "|", "*", "=")
"""How lines of drawn tables and the underlines of headings begin: the two see different tokens in them."""


def prose(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(DRAWN))


@pytest.fixture(scope="module")
def report() -> Report:
    texts = [prose(text) for _, text in sorted(topics.items())][::2]
    columns = {
        "text": pa.array(texts, pa.large_string()),
        "id": pa.nulls(len(texts), pa.string()),
        "file": pa.array(["topics"] * len(texts)),
        "row": pa.array(range(len(texts)), pa.int64()),
    }
    return agreement([pa.RecordBatch.from_pydict(columns)])


def test_rules_agree_on_english(report: Report) -> None:
    assert report.documents >= 20
    found = {row.rule: row.agreement for row in report.rows}
    assert {rule: share for rule, share in found.items() if share < LESS.get(rule, LEAST)} == {}


def test_rules_act_on_some_of_the_documents_and_not_on_others(report: Report) -> None:
    acted = [row for row in report.rows if row.both_drop and row.both_keep]
    assert len(acted) >= 8, [row.rule for row in acted]
