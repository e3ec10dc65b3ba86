"""Copies by Bloom filter: none is missed, and as many others go by accident as was computed."""

import sys
from pathlib import Path

import pytest

from tokenmill_corpus.dedup.bloom import false_positive_rates, filter_size

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from dedup_stage import deduplicate


def test_the_size_of_a_filter_gives_the_rate_asked_for() -> None:
    for num_keys in (100, 12_345):
        for rate in (0.5, 0.01, 1e-6):
            num_bits, num_probes = filter_size(num_keys, rate)
            assert false_positive_rates(num_keys + 1, num_bits, num_probes)[-1] == pytest.approx(rate, rel=0.15)


def test_every_copy_goes_and_by_accident_about_as_many_as_computed(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(4000)]
    bloom = {"enabled": True, "false_positive_rate": 0.1, "seed": 3}
    found = deduplicate(tmp_path, {"a": texts, "b": texts[:500]}, bloom=bloom)
    assert len(found.texts) == len(set(found.texts))
    accidents = 4000 - len(found.texts)
    expected = found.report["bloom_duplicate"]["expected_false_positives"]
    assert expected == pytest.approx(accidents, rel=0.25)
    assert 50 < accidents < 200
    assert {(row["rule"], row["kept"]) for row in found.ledger} == {("bloom_duplicate", None)}
    assert found.report["bloom_duplicate"]["dropped"] == accidents + 500


def test_at_a_low_rate_nothing_goes_but_copies_and_the_first_stays(tmp_path: Path) -> None:
    texts = [f"text {i % 300}" for i in range(1000)]
    found = deduplicate(tmp_path, {"a": texts[:450], "b": texts[450:]}, bloom={"enabled": True})
    assert found.texts == texts[:300]


def test_another_seed_errs_on_other_documents(tmp_path: Path) -> None:
    texts = {"a": [f"text {i}" for i in range(1000)]}

    def run(seed: int, out: str) -> list[str]:
        bloom = {"enabled": True, "false_positive_rate": 0.1, "seed": seed}
        return deduplicate(tmp_path, texts, out=out, bloom=bloom).texts

    assert run(1, "one") == run(1, "again")
    assert run(1, "one") != run(2, "two")


def test_what_is_also_in_another_corpus_goes_wherever_its_file_comes(tmp_path: Path) -> None:
    files = {"a": ["x", "y"], "against-b": ["y"], "z": ["y", "z"]}
    found = deduplicate(tmp_path, files, bloom={"enabled": True}, exact="normalised")
    assert found.texts == ["x", "z"]
