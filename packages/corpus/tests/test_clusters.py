"""Clusters of near-duplicates, checked against the same rules over sets in plain Python."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.dedup.clusters import Clusters, Incidence, cluster
from tokenmill_corpus.dedup.sets import ShingleSets, as_table, jaccard
from tokenmill_corpus.dedup.settings import MinHash

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import reference


def as_sets(sets: list[set[int]]) -> ShingleSets:
    last = np.cumsum([len(s) for s in sets], dtype=np.int64)
    hashes = np.array([value for s in sets for value in sorted(s)], np.uint64)
    return ShingleSets(hashes, last - [len(s) for s in sets], last)


def run(sets: list[set[int]], buckets: list[list[int]], num_references: int = 0, **options: object) -> Clusters:
    """Cluster documents with these sets, that lie in these buckets."""
    pairs = [(document, bucket) for document, those in enumerate(buckets) for bucket in those]
    documents, names = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    incidence = Incidence.of(documents, names.astype(np.uint64), len(sets))
    minhash = MinHash(**options)
    return cluster(minhash, incidence, as_sets(sets) if minhash.verify else None, num_references)


SET = st.sets(st.integers(1, 60), min_size=1)
SETS = st.lists(st.sets(st.integers(1, 9), min_size=1), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(SETS, st.sampled_from([0.25, 0.5, 0.75, 1.0]))
def test_both_rules_in_one_bucket_are_those_of_the_definition(sets: list[set[int]], least: float) -> None:
    for rule, expected in (("pair", reference.pair_rule), ("component", reference.component_rule)):
        found = run(sets, [[7]] * len(sets), min_jaccard=least, cluster_rule=rule)
        assert found.kept.tolist() == expected(sets, least)
        for document, kept in enumerate(found.kept):
            if kept != document:
                assert found.similarity[document] == pytest.approx(reference.jaccard(sets[document], sets[kept]))


@settings(max_examples=200, deadline=None)
@given(SET, SET, st.sampled_from([0.1, 0.5, 0.7, 0.75, 0.9, 1.0]))
def test_similarity_is_exact_and_the_threshold_itself_is_enough(one: set[int], other: set[int], least: float) -> None:
    table = as_table(np.array(sorted(one), np.uint64))
    true = reference.jaccard(one, other)
    found = jaccard(table, len(one), np.array(sorted(other), np.uint64), least)
    assert found == (true if true >= least else 0.0)


def test_only_documents_that_share_a_bucket_are_compared() -> None:
    found = run([{1}, {1}, {1}], [[1], [2], [2]])
    assert found.kept.tolist() == [0, 1, 1]
    assert found.num_compared == 1


def test_the_first_of_several_is_kept_whatever_the_buckets_are_called() -> None:
    for names in ([9, 1], [1, 9]):
        found = run([{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3}], [[names[0]], [names[1]], names], min_jaccard=0.7)
        assert found.kept.tolist() == [0, 1, 0]


def test_without_verifying_a_shared_bucket_is_enough() -> None:
    buckets = [[1], [1, 2], [2], [3]]
    found = run([set()] * 4, buckets, verify=False)
    assert found.kept.tolist() == [0, 0, 2, 3]
    assert np.isnan(found.similarity).all()
    assert run([set()] * 4, buckets, verify=False, cluster_rule="component").kept.tolist() == [0, 0, 0, 3]


def test_a_component_that_is_too_large_is_taken_apart_and_reported() -> None:
    chain = [set(range(i, i + 4)) for i in range(1, 7)]
    together = run(chain, [[1]] * 6, min_jaccard=0.6, cluster_rule="component", max_cluster=6)
    assert together.kept.tolist() == [0] * 6
    assert together.similarity[5] == 0.0
    assert together.taken_apart == []
    apart = run(chain, [[1]] * 6, min_jaccard=0.6, cluster_rule="component", max_cluster=5)
    assert apart.kept.tolist() == reference.pair_rule(chain, 0.6) == [0, 0, 2, 2, 4, 4]
    assert apart.taken_apart == [6]


def test_references_stay_and_are_leaders_though_they_are_near_duplicates() -> None:
    found = run([{1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}], [[1]] * 3, num_references=2, min_jaccard=0.8)
    assert found.kept.tolist() == [0, 1, 1]


def test_a_giant_bucket_costs_no_more_than_its_leaders_for_each_document() -> None:
    num_documents, max_leaders = 5000, 4
    sets = [{i * 10 + j for j in range(1, 5)} for i in range(num_documents)]
    found = run(sets, [[1]] * num_documents, max_leaders=max_leaders)
    assert found.num_compared <= num_documents * max_leaders
    assert found.num_capped == 1
    assert found.kept.tolist() == list(range(num_documents))
    copies = run([{1, 2, 3}] * num_documents, [[1, 2, 3]] * num_documents)
    assert copies.num_compared == num_documents - 1
