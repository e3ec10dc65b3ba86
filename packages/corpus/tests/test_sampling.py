"""Keeping a share of the documents."""

import pyarrow as pa
import pytest

from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.sampling import Sampling

TEXTS = [f"document number {i}" for i in range(4000)]


def kept(
    texts: list[str], ids: list[str | None] | None = None, groups: list[str] | None = None, **options: object
) -> set[str]:
    columns = {"text": pa.array(texts, pa.large_string()), "id": pa.array(ids or [None] * len(texts), pa.string())}
    if groups is not None:
        columns["source"] = pa.array(groups)
    outcome = Sampling(**options).apply(Documents(pa.RecordBatch.from_pydict(columns)))
    broken = [any(rule.breaks[d] for rule in outcome.rules) for d in range(len(texts))]
    return {text for text, drop in zip(texts, broken, strict=True) if not drop}


def test_about_the_share_is_kept() -> None:
    assert 340 < len(kept(TEXTS, share=0.1)) < 460
    assert kept(TEXTS, share=1.0) == set(TEXTS)
    assert kept(TEXTS, share=0.0) == set()


def test_order_and_company_do_not_matter() -> None:
    sample = kept(TEXTS, share=0.3)
    assert kept(TEXTS[::-1], share=0.3) == sample
    assert kept(TEXTS[:1000], share=0.3) == sample & set(TEXTS[:1000])


def test_a_smaller_share_is_part_of_a_larger_one_and_a_seed_is_another_sample() -> None:
    tenth, third = kept(TEXTS, share=0.1), kept(TEXTS, share=0.33)
    assert tenth < third
    other = kept(TEXTS, share=0.1, seed=1)
    assert len(tenth & other) < 100 < len(other)


def test_the_sample_is_fixed() -> None:
    assert kept(TEXTS[:40], share=0.1) == {
        "document number 7",
        "document number 10",
        "document number 13",
        "document number 19",
        "document number 33",
    }


def test_by_id_the_text_does_not_matter() -> None:
    ids: list[str | None] = [str(i) for i in range(1000)]
    first = kept(TEXTS[:1000], ids, share=0.5, by="id")
    changed = kept([text + "!" for text in TEXTS[:1000]], ids, share=0.5, by="id")
    assert {text + "!" for text in first} == changed
    assert kept(TEXTS[:1000], share=0.5, by="id") == kept(TEXTS[:1000], share=0.5), "without ids, by the text"


def test_groups_have_rates_of_their_own() -> None:
    groups = ["web", "books"] * 2000
    sample = kept(TEXTS, groups=groups, share=0.1, column="source", rates={"books": 1.0})
    books = set(TEXTS[1::2])
    assert books < sample
    assert 120 < len(sample - books) < 280


def test_rates_need_a_column_that_is_there() -> None:
    with pytest.raises(ConfigError, match=r"sampling\.column"):
        Sampling(rates={"a": 0.5}).check()
    with pytest.raises(ConfigError, match=r"no column 'source'.*text, id"):
        kept(["a"], column="source", rates={"a": 0.5})
    assert Sampling(column="source", rates={"a": 0.5}).columns_read() == ("source",)
