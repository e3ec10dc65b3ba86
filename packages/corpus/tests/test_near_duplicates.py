"""Near-duplicates from end to end: field cases, planted duplicates, and what must not change what is found."""

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tokenmill_core.errors import StageError

HELPERS = Path(__file__).parent / "helpers"
sys.path.insert(0, str(HELPERS))

import reference  # noqa: E402
from dedup_stage import Deduped, deduplicate  # noqa: E402

NEAR = {"minhash": {"enabled": True}}
SMALL = 1 << 20
"""The least memory a task may have: it makes several partitions and groups of the documents below."""


def vocabulary(rng: random.Random, size: int) -> list[str]:
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(size)]


def edited(words: list[str], share: float, rng: random.Random, others: list[str]) -> list[str]:
    """The words with this share of them replaced, at random places."""
    places = set(rng.sample(range(len(words)), round(share * len(words))))
    return [rng.choice(others) if i in places else word for i, word in enumerate(words)]


@pytest.fixture(scope="module")
def planted() -> dict[str, list[str]]:
    """Documents, and for each an edited copy in another file, or two."""
    rng = random.Random(17)
    others = vocabulary(rng, 2000)
    originals = [rng.choices(others, k=rng.randint(60, 200)) for _ in range(500)]
    copies = [edited(words, rng.uniform(0, 0.2), rng, others) for words in originals]
    more = [edited(words, rng.uniform(0, 0.03), rng, others) for words in originals]
    return {
        name: [" ".join(words) for words in part] for name, part in zip("abc", (originals, copies, more), strict=True)
    }


def test_planted_near_duplicates_are_found_and_nothing_else_goes(tmp_path: Path, planted: dict[str, list[str]]) -> None:
    found = deduplicate(tmp_path, {"a": planted["a"], "b": planted["b"]}, exact="none", **NEAR)
    gone = {row["row"] - 1 for row in found.ledger}
    similarity = [
        reference.jaccard(*map(reference.shingles, pair)) for pair in zip(planted["a"], planted["b"], strict=True)
    ]
    near = [i for i, value in enumerate(similarity) if value >= 0.75]
    assert len(near) > 50
    assert set(near) == gone
    for row in found.ledger:
        assert row["kept"]["row"] == row["row"]
        assert row["kept"]["file"] == "a/a.jsonl"
        assert row["value"] == pytest.approx(similarity[row["row"] - 1])


@pytest.mark.parametrize("rule", ["pair", "component"])
def test_clusters_are_those_of_the_rule_over_all_pairs(
    tmp_path: Path, planted: dict[str, list[str]], rule: str
) -> None:
    files = {name: texts[:60] for name, texts in planted.items()}
    found = deduplicate(tmp_path, files, exact="none", minhash={"enabled": True, "cluster_rule": rule})
    texts = [text for part in files.values() for text in part]
    rules = {"pair": reference.pair_rule, "component": reference.component_rule}
    kept = rules[rule]([reference.shingles(text) for text in texts], 0.75)
    assert found.texts == [text for i, text in enumerate(texts) if kept[i] == i]


def test_nothing_depends_on_workers_memory_batches_or_hash_seed(tmp_path: Path, planted: dict[str, list[str]]) -> None:
    settings = {**NEAR, "keep": "longest", "url": True}
    files = {
        name: [{"text": text, "url": f"http://x.org/{i % 450}"} for i, text in enumerate(texts)]
        for name, texts in planted.items()
    }
    one = deduplicate(tmp_path, files, **settings)
    assert len({row["rule"] for row in one.ledger}) == 2
    small = deduplicate(tmp_path, files, out="small", workers=2, memory_bytes=SMALL, **settings)
    assert small.content == one.content
    script = f"""
import sys
sys.path.insert(0, {str(HELPERS)!r})
import dedup_stage
from pathlib import Path
if __name__ == "__main__":
    dedup_stage.BATCH_ROWS = 7
    dedup_stage.deduplicate(Path({str(tmp_path)!r}), {{}}, out="seed", memory_bytes={SMALL}, **{settings!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONHASHSEED": "77"})
    assert Deduped(tmp_path / "seed").content == one.content


def test_little_memory_makes_more_tasks(
    tmp_path: Path, planted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would compare nothing."""
    monkeypatch.setenv("DEDUP_LOG", str(tmp_path / "log"))
    deduplicate(tmp_path, planted, memory_bytes=SMALL, **NEAR)
    tasks = (tmp_path / "log").read_text().splitlines()
    assert sum(task.startswith("buckets ") for task in tasks) > 1
    assert sum(task.startswith("near_duplicate ") for task in tasks) > 3


@pytest.mark.parametrize(
    "phase", ["filter", "exact_duplicate", "buckets", "components", "near_duplicate", "duplicates"]
)
def test_a_run_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, planted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    files = {name: texts[:300] for name, texts in planted.items()}
    settings = {"memory_bytes": SMALL, **NEAR}
    whole = deduplicate(tmp_path, files, out="whole", **settings)
    script = f"""
import sys
sys.path.insert(0, {str(HELPERS)!r})
from pathlib import Path
from dedup_stage import deduplicate
if __name__ == "__main__":
    deduplicate(Path({str(tmp_path)!r}), {{}}, out="killed", **{settings!r})
"""
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ, "DEDUP_DIE": phase})
    assert killed.returncode == 9
    assert not (tmp_path / "killed" / "manifest.json").exists()
    monkeypatch.setenv("DEDUP_LOG", str(tmp_path / "log"))
    again = deduplicate(tmp_path, {}, out="killed", **settings)
    assert again.content == whole.content
    first_task = (tmp_path / "log").read_text().splitlines()[0]
    assert first_task.split()[0] == phase


def test_what_other_settings_left_is_not_used(tmp_path: Path, planted: dict[str, list[str]]) -> None:
    """Field case B13: near-duplicates found by one threshold are never dropped by another one."""
    files = {name: texts[:100] for name, texts in planted.items()}
    fresh = deduplicate(tmp_path, files, out="fresh", minhash={"enabled": True, "min_jaccard": 0.95})
    script = f"""
import sys
sys.path.insert(0, {str(HELPERS)!r})
from pathlib import Path
from dedup_stage import deduplicate
deduplicate(Path({str(tmp_path)!r}), {{}}, out="out", minhash={{"enabled": True, "min_jaccard": 0.5}})
"""
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ, "DEDUP_DIE": "duplicates"})
    assert killed.returncode == 9
    found = deduplicate(tmp_path, {}, out="out", minhash={"enabled": True, "min_jaccard": 0.95})
    assert found.content == fresh.content


def test_a_worker_that_is_killed_is_an_error_and_the_rest_is_kept(
    tmp_path: Path, planted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = deduplicate(tmp_path, planted, out="whole", memory_bytes=SMALL, **NEAR)
    monkeypatch.setenv("DEDUP_DIE", "near_duplicate")
    with pytest.raises(StageError, match="killed"):
        deduplicate(tmp_path, {}, out="out", workers=2, memory_bytes=SMALL, **NEAR)
    monkeypatch.delenv("DEDUP_DIE")
    assert deduplicate(tmp_path, {}, out="out", memory_bytes=SMALL, **NEAR).content == whole.content


def test_short_documents(tmp_path: Path) -> None:
    """Field case B9."""
    texts = ["cat", "dog", "cat", "", "!!!", "only four words here"]
    for exact in ("document", "none"):
        found = deduplicate(tmp_path, {"a": texts}, out=exact, exact=exact, minhash={"enabled": True, "ngram": 5})
        assert found.texts == ["cat", "dog", "", "!!!", "only four words here"]
        assert [row["kept"]["row"] for row in found.ledger] == [1]


def test_documents_without_words_are_duplicates_of_nothing(tmp_path: Path) -> None:
    texts = ["!!!", "...", "\n\n", "", "?", "---"]
    assert deduplicate(tmp_path, {"a": texts}, **NEAR).texts == texts


def test_other_scripts(tmp_path: Path) -> None:
    """Field case B11."""
    scripts = {
        "arabic": ["القُرْآنُ كِتَابٌ {}", "أُحِبُّ", "كُتُبًا", "بَيْتٌ", "مَدْرَسَة", "قَلَمٌ"],
        "hindi": ["यह एक {} वाक्य है", "हिन्दी", "किताब", "पानी", "घर", "नदी"],
        "thai": ["วันนี้ฉันไป{}กับเพื่อน", "ตลาด", "โรงเรียน", "ทะเล", "ภูเขา", "วัด"],
        "chinese": ["今天我去{}看朋友", "北京", "上海", "广州", "杭州", "成都"],
        "japanese": ["昨日わたしは{}を食べました", "すし", "ラーメン", "うどん", "そば", "天ぷら"],
        "hebrew": ["אֲנִי אוֹהֵב {} מְאוֹד", "סֵפֶר", "לֶחֶם", "מַיִם", "יָם", "הַר"],
        "emoji": ["{}", "👨‍👩‍👧", "👨‍👩‍👦", "👩‍👩‍👧", "👨‍👨‍👦", "👩‍👩‍👦‍👦"],
    }
    texts = [form.format(word) for form, *words in scripts.values() for word in words]
    assert len(texts) == 35
    found = deduplicate(tmp_path, {"a": texts}, exact="normalised", **NEAR)
    assert found.texts == texts


def chain() -> list[str]:
    rng = random.Random(3)
    words = [f"word{i}" for i in range(100)]
    order = rng.sample(range(100), 80)
    documents = [list(words)]
    for step in range(9):
        words = list(words)
        for place in order[step * 8 : step * 8 + 8]:
            words[place] = f"new{step}x{place}"
        documents.append(words)
    return [" ".join(words) for words in documents]


def test_a_chain_in_which_each_document_resembles_the_one_before(tmp_path: Path) -> None:
    """Field case B12. By pairs a document goes only for one that it resembles itself; by component the report shows
    the size, the document that stays, and how little the others resemble it."""
    texts = chain()
    sets = [reference.shingles(text, 1) for text in texts]
    least = 0.8
    assert all(reference.jaccard(one, other) >= least for one, other in pairwise(sets))
    assert reference.jaccard(sets[0], sets[-1]) < 0.2
    minhash = {"enabled": True, "ngram": 1, "min_jaccard": least}
    pair = deduplicate(tmp_path, {"a": [{"id": f"d{i}", "text": t} for i, t in enumerate(texts)]}, minhash=minhash)
    assert [row["id"] for row in pair.kept] == ["d0", "d2", "d4", "d6", "d8"]
    assert all(row["value"] >= least for row in pair.ledger)
    assert pair.report["cluster_sizes"] == {"2": 5}
    component = deduplicate(tmp_path, {}, out="component", minhash={**minhash, "cluster_rule": "component"})
    assert [row["id"] for row in component.kept] == ["d0"]
    assert component.report["cluster_sizes"] == {"10": 1}
    assert component.report["largest_clusters"] == [
        {"documents": 10, "kept": {"id": "d0", "file": "a/a.jsonl", "row": 1}}
    ]
    assert component.ledger[-1]["value"] == pytest.approx(reference.jaccard(sets[0], sets[-1]))
    capped = deduplicate(tmp_path, {}, out="capped", minhash={**minhash, "cluster_rule": "component", "max_cluster": 9})
    assert capped.kept == pair.kept
    assert capped.report["near_duplicate"]["components_taken_apart"] == [10]


def test_ids_may_collide_or_be_missing(tmp_path: Path) -> None:
    """Field case B13: documents are known by their place."""
    near = "a b c d e f g h i j k l m n o p q r s t u v w x y z and so on to the very end of it all"
    rows = [
        {"id": "7", "text": near},
        {"id": "7", "text": "another text altogether, with an id that is taken"},
        {"text": "no id at all, and nobody minds it"},
        {"id": '"7"', "text": near + " now"},
    ]
    found = deduplicate(tmp_path, {"a": rows}, **NEAR)
    assert [row["row"] for row in found.kept] == [1, 2, 3]
    (gone,) = found.ledger
    assert (gone["id"], gone["row"], gone["kept"]["id"], gone["kept"]["row"]) == ('"7"', 4, "7", 1)


def test_against_another_corpus(tmp_path: Path, planted: dict[str, list[str]]) -> None:
    """What resembles a document of the other corpus goes; the other corpus itself is neither cleaned nor written."""
    files = {"against-b": [*planted["c"], planted["c"][0]], "z": planted["a"][:100]}
    found = deduplicate(tmp_path, files, **NEAR)
    near = [
        reference.jaccard(reference.shingles(one), reference.shingles(other)) >= 0.75
        for one, other in zip(planted["a"][:100], planted["c"], strict=False)
    ]
    assert any(near)
    assert found.texts == [text for text, goes in zip(planted["a"], near, strict=False) if not goes]
    assert {row["kept"]["file"] for row in found.ledger} == {"against-b/against-b.jsonl"}


def test_the_report_counts_no_document_of_another_corpus(tmp_path: Path) -> None:
    """By component the document in the middle links two of the other corpus."""
    texts = chain()
    minhash = {"enabled": True, "ngram": 1, "min_jaccard": 0.8, "cluster_rule": "component"}
    found = deduplicate(tmp_path, {"a": [texts[1]], "against-b": [texts[0], texts[2]]}, minhash=minhash)
    assert found.report["near_duplicate"]["dropped"] == len(found.ledger) == 1


def test_a_copy_of_a_near_duplicate_is_led_to_the_document_that_stays(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(100)]
    near = " ".join([*words[:99], "other"])
    found = deduplicate(tmp_path, {"a": [" ".join(words), near, near]}, **NEAR)
    assert [(row["rule"], row["kept"]["row"]) for row in found.ledger] == [
        ("near_duplicate", 1),
        ("exact_duplicate", 1),
    ]
    assert found.ledger[0]["value"] == found.ledger[1]["value"] == pytest.approx(95 / 97)


def test_the_value_of_a_chain_does_not_depend_on_how_documents_fall_into_files(tmp_path: Path) -> None:
    """1 is like 0, 2 has the words of 1, and 3 is a copy of 2: all are as similar to 0 as 1 is."""
    words = [f"w{i}" for i in range(100)]
    near = " ".join([*words[:99], "other"])
    texts = [" ".join(words), near, near.upper(), near.upper()]
    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    for parts in ([rows], [[row] for row in rows], [rows[:1], rows[1:3], rows[3:]]):
        files = {f"f{i}": part for i, part in enumerate(parts)}
        folder = tmp_path / str(len(parts))
        folder.mkdir()
        ledger = deduplicate(folder, files, exact="normalised", **NEAR).ledger
        assert [(row["id"], row["rule"], row["kept"]["id"]) for row in ledger] == [
            ("1", "near_duplicate", "0"),
            ("2", "normalised_duplicate", "0"),
            ("3", "exact_duplicate", "0"),
        ]
        assert [row["value"] for row in ledger] == [pytest.approx(95 / 97)] * 3


def test_order_of_files_decides_only_who_stays(tmp_path: Path, planted: dict[str, list[str]]) -> None:
    """With a policy that does not go by order, the same documents stay whatever the files are called."""
    names = {"a": planted["a"], "b": planted["b"]}
    turned = {"y": planted["b"], "z": planted["a"]}
    one = tmp_path / "one"
    two = tmp_path / "two"
    one.mkdir()
    two.mkdir()
    settings = {**NEAR, "keep": "score", "score_column": "score"}

    def scored(files: dict[str, list[str]]) -> dict[str, list[dict]]:
        ranked = {text: i for i, text in enumerate(sorted(set(planted["a"] + planted["b"])))}
        return {name: [{"text": t, "score": ranked[t]} for t in texts] for name, texts in files.items()}

    assert sorted(deduplicate(one, scored(names), **settings).texts) == sorted(
        deduplicate(two, scored(turned), **settings).texts
    )


def test_characters_as_units(tmp_path: Path) -> None:
    minhash = {"enabled": True, "unit": "character", "ngram": 5, "min_jaccard": 0.6}
    texts = ["internationalisation of software", "internationalization of software", "something else entirely"]
    found = deduplicate(tmp_path, {"a": texts}, minhash=minhash)
    assert found.texts == [texts[0], texts[2]]
    one, other = ({text[i : i + 5] for i in range(len(text) - 4)} for text in texts[:2])
    assert found.ledger[0]["value"] == pytest.approx(reference.jaccard(one, other))


def test_no_documents_at_all(tmp_path: Path) -> None:
    found = deduplicate(tmp_path, {"a": []}, exact="normalised", url=True, **NEAR)
    assert found.kept == []
    assert found.report["near_duplicate"]["buckets"] == 0
