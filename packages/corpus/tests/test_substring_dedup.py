"""Exact substring deduplication against its definition, and what must not change what is found."""

import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

HELPERS = Path(__file__).parent / "helpers"
sys.path.insert(0, str(HELPERS))

from cut_documents import build_cut, cut_documents  # noqa: E402

from tokenmill_core.stage import Work  # noqa: E402
from tokenmill_corpus.dedup import DedupSettings, windows  # noqa: E402
from tokenmill_corpus.dedup.fingerprint_order import fingerprint_order  # noqa: E402
from tokenmill_corpus.dedup.repeats import OccurrencesWriter  # noqa: E402
from tokenmill_corpus.dedup.window_hashes import fingerprint_runs, leaving_bytes  # noqa: E402
from tokenmill_corpus.dedup.windows import pieces_of  # noqa: E402

WIDTH = 32
PARTS = [
    "a" * 40,
    "ab" * 20,
    " " * 33,
    "The quick brown fox jumps over the lazy dog.",
    "Pack my box with five dozen liquor jugs, please.",
    "漢字かな交じり文は句読点で終わる。",
    "é" * 20,
    "\n",
    "x",
    "👩‍👩‍👧‍👦👩‍👩‍👧‍👦",
]
documents = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)
corpora = st.lists(st.lists(documents, max_size=5), min_size=1, max_size=3)


def substring(**more: object) -> DedupSettings:
    settings = DedupSettings.model_validate({"exact": "none", "substring": {"enabled": True, "min_bytes": WIDTH}})
    # Less memory than is worth a setting: it makes many runs and partitions of a few documents.
    return settings.model_copy(update=more)


def reference_cut(text: str, goes: list[bool]) -> str:
    """What is left of `text` when each run of bytes that goes is cut, less the parts of characters at its ends."""
    data, kept, i = text.encode(), bytearray(), 0
    while i < len(data):
        if not goes[i]:
            kept.append(data[i])
            i += 1
            continue
        end = i
        while end < len(data) and goes[end]:
            end += 1
        start, stop = i, end
        while start < stop and data[start] & 0xC0 == 0x80:
            start += 1
        while stop > start and stop < len(data) and data[stop] & 0xC0 == 0x80:
            stop -= 1
        kept += data[i:start] + data[stop:end]
        i = end
    return kept.decode()


def reference(tasks: list[list[str]], references: list[int], width: int) -> list[list[str]]:
    """Every window that the first one with its bytes ends before; the union of them is cut."""
    seen: dict[bytes, tuple[int, int, int]] = {}
    left: dict[int, list[str]] = {}
    for task in sorted(range(len(tasks)), key=lambda index: index not in references):
        left[task] = []
        for d, text in enumerate(tasks[task]):
            data = text.encode()
            goes = [False] * len(data)
            for i in range(len(data) - width + 1):
                first = seen.setdefault(data[i : i + width], (task, d, i))
                if first[:2] != (task, d) or first[2] + width <= i:
                    goes[i : i + width] = [True] * width
            left[task].append(reference_cut(text, goes))
    return [left[task] for task in range(len(tasks)) if task not in references]


@settings(max_examples=25, deadline=None)
@given(corpora, st.booleans(), st.sampled_from([3000, 1 << 20]), st.sampled_from([50, 1 << 20]))
def test_what_is_cut_is_what_the_definition_says(
    tasks: list[list[str]], against: bool, memory_bytes: int, piece: int
) -> None:
    references = [len(tasks) - 1] if against else []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_PIECE", piece)
        left = cut_documents(Path(folder), tasks, substring(memory_bytes=memory_bytes), references)
    assert left == reference(tasks, references, WIDTH)


def window_classes(data: NDArray[np.uint8], width: int) -> NDArray[np.int64]:
    """A number for each window, the same for equal ones alone: prefix doubling, as suffix arrays are built."""
    classes, length = data.astype(np.int64), 1
    while length < width:
        pairs = classes[:-length] * (classes.max() + 1) + classes[length:]
        classes, length = np.unique(pairs, return_inverse=True)[1].astype(np.int64), length * 2
    return classes


def test_real_text_is_cut_as_a_suffix_array_would(tmp_path: Path) -> None:
    """Source code, with repeats of its own and planted ones, through many runs and partitions."""
    width, rng = 64, random.Random(5)
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))[:40]]
    for _ in range(60):
        source, target = rng.choice(texts), rng.randrange(len(texts))
        start, place = rng.randrange(len(source)), rng.randrange(len(texts[target]) + 1)
        part = source[start : start + rng.randint(width // 2, 6 * width)]
        texts[target] = texts[target][:place] + part + texts[target][place:]

    data = np.frombuffer("".join(texts).encode(), np.uint8)
    bounds = np.cumsum([0, *(len(text.encode()) for text in texts)])
    classes = window_classes(data, width)
    inside = np.concatenate([np.arange(a, b - width + 1) for a, b in pairwise(bounds)])
    _, first, inverse = np.unique(classes[inside], return_index=True, return_inverse=True)
    repeats = inside[inside - inside[first[inverse]] >= width]
    goes = np.zeros(len(data) + 1, np.int64)
    np.add.at(goes, repeats, 1)
    np.add.at(goes, repeats + width, -1)
    covered = (np.cumsum(goes)[:-1] > 0).tolist()
    expected = [reference_cut(t, covered[a:b]) for t, a, b in zip(texts, bounds, bounds[1:], strict=False)]
    assert len(repeats) > 10_000

    settings = substring(memory_bytes=1_000_000)
    settings = settings.model_copy(update={"substring": settings.substring.model_copy(update={"min_bytes": width})})
    left = cut_documents(tmp_path, [texts[:15], texts[15:]], settings)
    assert [*left[0], *left[1]] == expected


def test_the_first_occurrence_stays(tmp_path: Path) -> None:
    boilerplate = "Alle Rechte vorbehalten. Nachdruck, auch auszugsweise, nur mit Genehmigung: "
    texts = [f"ü {boilerplate} ö", f"Ein Anfang. {boilerplate} Ein Ende.", f"日本{boilerplate}語"]
    assert cut_documents(tmp_path, [texts], substring()) == [[texts[0], "Ein Anfang.Ein Ende.", "日本語"]]


def test_characters_that_share_bytes_stay_whole(tmp_path: Path) -> None:
    shared = "0123456789abcdefghijklmnopqrstuvwxyz"
    texts = [f"é{shared}é", f"©{shared}è"]
    assert "é".encode()[1] == "©".encode()[1]
    assert cut_documents(tmp_path, [texts], substring()) == [[texts[0], "©è"]]


def test_a_repeat_of_itself_leaves_the_first_time(tmp_path: Path) -> None:
    assert cut_documents(tmp_path, [["z" * 1000]], substring()) == [["z" * WIDTH]]


def test_shorter_repeats_and_those_across_documents_stay(tmp_path: Path) -> None:
    whole = "0123456789abcdefghijklmnopqrstuvwxyz"
    texts = [whole, whole[: WIDTH - 1], whole[WIDTH - 1 :], "-" + whole[: WIDTH - 1]]
    assert cut_documents(tmp_path, [texts], substring()) == [texts]


def test_fingerprints_are_those_of_the_polynomials() -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 300).astype(np.uint8)
    keys, checks = np.empty((2, 200), np.uint64)
    fingerprint_runs(data, 0, 200, 100, leaving_bytes(100), keys, checks)
    again, other = np.empty((2, 1), np.uint64)
    for i in (1, 99, 199):
        fingerprint_runs(data, i, 1, 100, leaving_bytes(100), again, other)
        assert (keys[i], checks[i]) == (again[0], other[0])
    assert len(np.unique(keys)) == len(np.unique(checks)) == 200


def test_a_run_holds_what_memory_allows_however_much_is_added_at_once(tmp_path: Path) -> None:
    work = Work(tmp_path)
    (tmp_path / "parts").mkdir()
    writer = OccurrencesWriter(work, "parts", 0, memory_bytes=10 * 128)
    keys = np.arange(35, dtype=np.uint64)
    writer.add(keys[:4], keys[:4], np.arange(4))
    writer.add(keys[4:], keys[4:], np.arange(4, 35))
    assert writer.report(35).extra == {"runs": 4, "places": 35}
    runs = [np.load(tmp_path / "parts" / f"000000.{run:04d}.npy") for run in range(4)]
    assert [run["place"].tolist() for run in runs] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 30)),
        list(range(30, 35)),
    ]


def test_pieces_bound_what_is_held_and_have_each_window_once() -> None:
    sizes, width = [3_500_000, 0, 100, 10, 900_000, 700_000, 64, 63], 64
    offsets = np.cumsum([7, *sizes])
    places = []
    for start, piece in pieces_of(offsets, width):
        assert piece[-1] - piece[0] < (1 << 20) + width
        assert start == piece[0] - 7
        places += [np.arange(a, b - width + 1) for a, b in pairwise(piece)]
    expected = [np.arange(a, b - width + 1) for a, b in pairwise(offsets)]
    assert np.array_equal(np.concatenate(places), np.concatenate(expected))


def test_a_window_longer_than_any_document_costs_nothing() -> None:
    offsets = np.cumsum([0, 5000, 300, 80])
    assert list(pieces_of(offsets, 2**31 - 1)) == []


def test_fingerprints_sort_by_both_halves_and_stay_in_order() -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 50, 3000):
        keys, checks = rng.integers(0, 9, (2, size)).astype(np.uint64)
        assert fingerprint_order(keys, checks).tolist() == np.lexsort((checks, keys)).tolist()


def corpus() -> dict[str, list[str]]:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(300)]
    shared = [" ".join(rng.choices(words, k=30)) for _ in range(20)]
    texts = [
        " ".join(rng.choices(words, k=20)) + rng.choice(shared) + f" {i}\n\n" + rng.choice(shared) for i in range(90)
    ]
    return {"a": texts[:40], "b": texts[40:70], "against-c": texts[70:]}


ALL = {
    "lines": {"enabled": True},
    "paragraphs": {"enabled": True},
    "substring": {"enabled": True, "min_bytes": WIDTH},
}


def test_workers_change_nothing(tmp_path: Path) -> None:
    one = build_cut(tmp_path, corpus(), out="one", **ALL)
    assert build_cut(tmp_path, {}, out="two", workers=2, **ALL) == one
    assert sum(map(len, one.values())) < sum(len(text) for texts in corpus().values() for text in texts) / 2


@pytest.mark.parametrize("phase", ["substring-anchors", "substring-repeats", "substring-cuts", "lines-cuts"])
def test_a_killed_build_goes_on_to_the_same_end(tmp_path: Path, phase: str) -> None:
    clean = build_cut(tmp_path, corpus(), out="clean", **ALL)
    script = f"import cut_documents, pathlib; cut_documents.build_cut(pathlib.Path({str(tmp_path)!r}), {{}}, **{ALL!r})"
    environment = {**os.environ, "PYTHONPATH": str(HELPERS), "DEDUP_DIE": phase, "PYTHONHASHSEED": "7"}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert killed.returncode == 9
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert build_cut(tmp_path, {}, **ALL) == clean
