"""Families one after the other: reasons, edits, and an account that balances whatever they do."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.documents import Account
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters import Edit, Family, Judge, Outcome, Rule, at_least, at_most


def documents(texts: list[str]) -> Documents:
    columns = {"id": pa.nulls(len(texts), pa.string()), "text": pa.array(texts, pa.large_string())}
    return Documents(pa.RecordBatch.from_pydict(columns))


def buffers(texts: list[str]) -> TextBuffers:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return TextBuffers(np.frombuffer(b"".join(encoded), np.uint8), offsets)


class Bytes(Family):
    """Keeps what is long enough, and not too long."""

    min_bytes: int = 0
    max_bytes: int = 10**9

    def apply(self, documents: Documents) -> Outcome:
        num_bytes = documents.text.num_bytes
        return Outcome(
            (at_least("min_bytes", num_bytes, self.min_bytes), at_most("max_bytes", num_bytes, self.max_bytes))
        )


class Replace(Family):
    """Replaces one string by another, and drops what holds a third."""

    old: str
    new: str
    max_forbidden: int = 10**9

    def apply(self, documents: Documents) -> Outcome:
        texts = documents.batch.column("text").to_pylist()
        new = buffers([text.replace(self.old, self.new) for text in texts])
        counts = np.array([text.count(self.old) for text in texts])
        edit = Edit(new, {"replaced": documents.text.num_bytes - new.num_bytes}, {"replaced": counts})
        forbidden = np.array([text.count("!") for text in texts])
        return Outcome((at_most("max_forbidden", forbidden, self.max_forbidden),), edit)


def run(texts: list[str], **families: Family) -> tuple[list[str], Account]:
    batch, account = documents(texts), Account()
    account.take_in(len(texts), int(batch.text.num_bytes.sum()))
    kept = Judge(families, account)(batch)
    return kept.batch.column("text").to_pylist(), account


def test_the_first_rule_broken_is_the_reason_and_thresholds_are_kept() -> None:
    kept, account = run(
        ["a", "bb", "ccc", "dddd", "eeeee"], size=Bytes(min_bytes=2, max_bytes=4), big=Bytes(min_bytes=3)
    )
    assert kept == ["ccc", "dddd"]
    assert account.dropped == {"size.min_bytes": (1, 1), "size.max_bytes": (1, 5), "big.min_bytes": (1, 2)}


def test_an_edit_is_on_the_account_and_later_families_see_it() -> None:
    kept, account = run(["aXXb", "XX", "c"], cut=Replace(old="X", new=""), size=Bytes(min_bytes=2))
    assert kept == ["ab"]
    assert account.dropped == {"cut.replaced": (0, 2), "cut.emptied": (1, 2), "size.min_bytes": (1, 1)}
    assert account.notes == {"cut.replaced": 2}


def test_an_edit_may_make_a_document_longer() -> None:
    kept, account = run(["aXb", "X!"], cut=Replace(old="X", new="<long>", max_forbidden=0))
    assert kept == ["a<long>b"]
    assert account.dropped == {"cut.max_forbidden": (1, 2), "cut.replaced": (0, -5)}


@given(
    texts=st.lists(st.text("ab!é\n", max_size=8), max_size=8),
    old=st.sampled_from("abé"),
    new=st.sampled_from(["", "b", "é", "long"]),
    limits=st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2)),
)
def test_documents_and_bytes_balance_whatever_families_do(
    texts: list[str], old: str, new: str, limits: tuple[int, int, int]
) -> None:
    least, most, forbidden = limits
    kept, account = run(
        texts, a=Bytes(min_bytes=least), b=Replace(old=old, new=new, max_forbidden=forbidden), c=Bytes(max_bytes=most)
    )
    assert account.documents == len(kept) + sum(count for count, _ in account.dropped.values())
    num_bytes = sum(len(text.encode()) for text in kept)
    assert account.bytes == num_bytes + sum(num_bytes for _, num_bytes in account.dropped.values())


def test_scores_are_columns_and_rows_stay_together() -> None:
    batch = documents(["a", "bb", "ccc"]).with_columns({"mark": pa.array(["1", "2", "3"])})
    kept = Judge({"size": Bytes(min_bytes=2)}, Account(), scores=True)(batch)
    assert kept.batch.select(["mark", "size.bytes"]).to_pylist() == [
        {"mark": "2", "size.bytes": 2.0},
        {"mark": "3", "size.bytes": 3.0},
    ]


def test_dropped_documents_are_told_with_their_rule() -> None:
    heard: list[Any] = []

    def on_drop(documents: Documents, drops: Any, reason: str, rule: Rule) -> None:
        heard.append((drops.tolist(), reason, rule.threshold))

    Judge({"size": Bytes(min_bytes=2, max_bytes=2)}, Account(), on_drop=on_drop)(documents(["a", "bb", "ccc"]))
    assert heard == [([True, False, False], "size.min_bytes", 2.0), ([False, False, True], "size.max_bytes", 2.0)]
