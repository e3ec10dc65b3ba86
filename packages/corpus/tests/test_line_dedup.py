"""Lines and paragraphs across documents: what counts as the same, what is cut, and what is left of separators."""

import json
import sys
import tempfile
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from cut_documents import build_cut, cut_documents, texts_left

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.stage import Work
from tokenmill_corpus.dedup import DedupSettings
from tokenmill_corpus.dedup.cuts import Cuts, apply_cuts

LONG = "Subscribe to our newsletter for more."
OTHER = "Nothing of this stands anywhere else."


def dedup(what: str = "lines", memory_bytes: int = 1 << 20, **settings: Any) -> DedupSettings:
    values = {"exact": "none", what: {"enabled": True, **settings}}
    return DedupSettings.model_validate(values).model_copy(update={"memory_bytes": memory_bytes})


def cut(texts: list[str], what: str = "lines", **settings: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return cut_documents(Path(folder), [texts], dedup(what, **settings))[0]


# The reference: line by line, with dictionaries.


def reference_key(unit: str, exact: bool) -> object:
    """What is compared; None for what is compared with nothing."""
    if exact:
        return unit.strip()
    words, word = [], ""
    for character in unit:
        if character.isalnum() or unicodedata.category(character)[0] == "M":
            character = "0" if character.isdigit() else character.lower()
            if character in "漢字":
                words += [word, character]
                word = ""
            else:
                word += character
        else:
            words, word = [*words, word], ""
    return tuple(w for w in [*words, word] if w) or None


def reference_units(text: str, by_paragraph: bool) -> list[list[int]]:
    """For each unit, which of the text's lines it consists of."""
    units: list[list[int]] = []
    open_paragraph = False
    for number, line in enumerate(text.split("\n")):
        if not line.strip():
            open_paragraph = False
        elif by_paragraph and open_paragraph:
            units[-1].append(number)
        else:
            units.append([number])
            open_paragraph = True
    return units


def reference_cut(text: str, goes: set[int]) -> str:
    """`text` without the lines that go: where blank lines would meet, and at the end, those behind go as well."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
        ending = "\n"
    else:
        ending = ""
    kept: list[str] = []
    after_cut = False
    for number, line in enumerate(lines):
        blank = not line.strip()
        if number in goes or (blank and after_cut and (not kept or not kept[-1].strip())):
            after_cut = True
            continue
        kept.append(line)
        after_cut = False
    if after_cut:
        while kept and not kept[-1].strip():
            kept.pop()
        if kept and not ending:
            kept[-1] = kept[-1].removesuffix("\r")
    return "\n".join(kept) + (ending if kept else "")


def reference(
    tasks: list[list[str]], references: list[int], *, by_paragraph: bool, exact: bool, at_least: int, max_copies: int
) -> list[list[str]]:
    found: dict[object, list[tuple[int, int, int]]] = {}
    units: dict[tuple[int, int, int], list[int]] = {}
    for task in sorted(range(len(tasks)), key=lambda index: index not in references):
        for d, text in enumerate(tasks[task]):
            for u, numbers in enumerate(reference_units(text, by_paragraph)):
                unit = "\n".join(text.split("\n")[number] for number in numbers)
                units[task, d, u] = numbers
                key = reference_key(unit, exact)
                if key is not None and len(unit.strip()) >= at_least:
                    found.setdefault(key, []).append((task, d, u))
    gone = {place for places in found.values() if len(places) > max_copies for place in places[1:]}
    left = []
    for task, texts in enumerate(tasks):
        lines_gone = [
            {n for (t, e, u), numbers in units.items() if (t, e) == (task, d) and (t, e, u) in gone for n in numbers}
            for d in range(len(texts))
        ]
        left.append([reference_cut(text, goes) for text, goes in zip(texts, lines_gone, strict=True)])
    return [texts for task, texts in enumerate(left) if task not in references]


lines = st.sampled_from(
    [
        "",
        " ",
        "\t",
        "a line",
        "A  Line!",
        "  a line",
        "page 12",
        "Page 34",
        "}",
        "---",
        "漢字 é",
        "漢字É",
        "b",
        "\r",
        "c\r",
    ]
)
documents = st.lists(lines, max_size=9).map("\n".join)
corpora = st.lists(st.lists(documents, max_size=5), min_size=1, max_size=3)


@settings(max_examples=25, deadline=None)
@given(
    tasks=corpora,
    against=st.booleans(),
    by_paragraph=st.booleans(),
    exact=st.booleans(),
    at_least=st.sampled_from([0, 2, 7]),
    max_copies=st.integers(1, 3),
    memory_bytes=st.sampled_from([2000, 1 << 20]),
)
def test_what_is_cut_is_what_the_definition_says(
    tasks: list[list[str]],
    against: bool,
    by_paragraph: bool,
    exact: bool,
    at_least: int,
    max_copies: int,
    memory_bytes: int,
) -> None:
    references = [len(tasks) - 1] if against else []
    expected = reference(
        tasks, references, by_paragraph=by_paragraph, exact=exact, at_least=at_least, max_copies=max_copies
    )
    config = dedup(
        "paragraphs" if by_paragraph else "lines",
        memory_bytes,
        compare="exact" if exact else "normalised",
        min_characters=at_least,
        max_copies=max_copies,
    )
    with tempfile.TemporaryDirectory() as folder:
        assert cut_documents(Path(folder), tasks, config, references) == expected


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{LONG}\nb\n", "b\n"),
        (f"a\n{LONG}\nb\n", "a\nb\n"),
        (f"a\n{LONG}\n", "a\n"),
        (f"a\n{LONG}", "a"),
        (f"a\r\n{LONG}\r\nb", "a\r\nb"),
        (f"a\r\n{LONG}", "a"),
        (f"a\n\n{LONG}\n\nb", "a\n\nb"),
        (f"a\n\n\n{LONG}\n\nb", "a\n\n\nb"),
        (f"a\n{LONG}\n\nb", "a\n\nb"),
        (f"a\n\n{LONG}\nb", "a\n\nb"),
        (f"{LONG}\n\nb", "b"),
        (f"a\n\n{LONG}\n\n", "a\n"),
        (f"a\n\n{LONG}\n\n{LONG}", "a"),
        (f"a\n{LONG}\n\n{LONG}", "a"),
        (LONG, ""),
        (f"\n\n{LONG}\n\n", ""),
        (f"a {LONG}", f"a {LONG}"),
    ],
)
def test_a_cut_line_takes_its_separators(text: str, left: str) -> None:
    assert cut([LONG, text]) == [LONG, left]


def test_a_cut_paragraph_takes_its_separator() -> None:
    paragraph = f"{LONG}\n{OTHER}"
    texts = [paragraph, f"a\n\n{paragraph}\n\n\nb", f"{paragraph}\n\n{LONG}", f"a\n\n{paragraph}"]
    assert cut(texts, "paragraphs") == [paragraph, "a\n\nb", LONG, "a"]


def test_what_is_the_same_is_a_setting() -> None:
    texts = [f"{LONG} 12", f"  {LONG.upper()} 47!"]
    assert cut(texts) == [texts[0], ""]
    assert cut(texts, compare="exact") == texts
    assert cut([LONG, f"  {LONG}\t"], compare="exact") == [LONG, ""]


def test_short_lines_stay() -> None:
    texts = ["}\nreturn result", "}\nreturn result"]
    assert cut(texts) == texts
    assert cut(texts, min_characters=1, compare="exact") == [texts[0], ""]


def test_max_copies_leaves_what_is_rare() -> None:
    assert cut([LONG] * 3, max_copies=3) == [LONG] * 3
    assert cut([LONG] * 4, max_copies=3) == [LONG, "", "", ""]


def test_documents_to_clean_of_come_first(tmp_path: Path) -> None:
    tasks = [[LONG, OTHER], [f"x\n{LONG}"]]
    assert cut_documents(tmp_path, tasks, dedup(), references=[1]) == [["", OTHER]]


def test_passes_follow_one_another_and_bytes_add_up(tmp_path: Path) -> None:
    """Lines, then paragraphs made alike by that, then runs of bytes; each is accounted for under its own name."""
    run = "abcdefghijklmnopqrstuvwxyz0123456789"
    texts = [
        f"{LONG}\n\nOne paragraph of two\nlines that is here.",
        f"One paragraph of two\n{LONG}\nlines that is here.\n\nNew {run} text",
        f"Later {run} on",
    ]
    settings = DedupSettings.model_validate(
        {
            "exact": "none",
            "lines": {"enabled": True, "min_characters": 25},
            "paragraphs": {"enabled": True},
            "substring": {"enabled": True, "min_bytes": 32},
        }
    )
    assert cut_documents(tmp_path, [texts], settings) == [[texts[0], f"New {run} text", "Lateron"]]
    _, removed = texts_left(Work(tmp_path), settings, 0)
    assert removed == {
        "duplicate_line": len(LONG) + 1,
        "duplicate_paragraph": len("One paragraph of two\nlines that is here.\n\n"),
        "repeated_substring": len(run) + 2,
    }


def test_what_only_a_dropped_document_says_is_no_repeat(tmp_path: Path) -> None:
    rows = [
        {"text": f"{OTHER}\nshort", "url": "https://a.org/x"},
        {"text": f"{LONG}\nand much more than that", "url": "https://a.org/x"},
        {"text": f"{OTHER}\n{LONG}", "url": "https://a.org/y"},
    ]
    written = build_cut(tmp_path, {"a": rows}, url=True, keep="longest", lines={"enabled": True})
    texts = [json.loads(line) for line in written["kept-00000.jsonl"].splitlines()]
    assert texts == [rows[1]["text"], OTHER]


spans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 6)), max_size=8)


def cuts_of(found: list[tuple[int, int, int]], lengths: list[int], reason: str) -> Cuts:
    columns = np.array(
        [(d, min(a, lengths[d]), min(a + n, lengths[d])) for d, a, n in found if d < len(lengths)], np.int64
    ).reshape(-1, 3)
    return Cuts.union(*columns.T, reason=reason)


@settings(deadline=None)
@given(st.lists(st.text("abcdefgh", max_size=15), min_size=1, max_size=4), spans, spans)
def test_cuts_after_cuts_are_cuts_of_the_whole(texts: list[str], first: list[Any], second: list[Any]) -> None:
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    text = TextBuffers(data, np.cumsum([0, *map(len, texts)]))
    one = cuts_of(first, list(map(len, texts)), "one")
    between, removed_one = apply_cuts(text, one)
    two = cuts_of(second, between.num_bytes.tolist(), "two")
    after, removed_two = apply_cuts(between, two)

    combined = one.then(two)
    left, removed = apply_cuts(text, combined)
    assert bytes(left.data) == bytes(after.data)
    assert left.offsets.tolist() == after.offsets.tolist()
    assert {name: lost.tolist() for name, lost in removed.items()} == {
        "one": removed_one["one"].tolist(),
        "two": removed_two["two"].tolist(),
    }
    assert (combined.start < combined.end).all()
    places = list(zip(combined.document.tolist(), combined.start.tolist(), combined.end.tolist(), strict=True))
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(places))


@settings(deadline=None)
@given(st.lists(st.text("abcd", max_size=9), min_size=1, max_size=5), spans)
def test_cuts_of_some_documents(texts: list[str], found: list[Any]) -> None:
    cuts = cuts_of(found, list(map(len, texts)), "one")
    chosen = np.arange(0, len(texts), 2)
    some = "".join(texts[i] for i in chosen)
    text = TextBuffers(np.frombuffer(some.encode(), np.uint8), np.cumsum([0, *(len(texts[i]) for i in chosen)]))
    expected = []
    for i in chosen:
        goes = {k for d, a, b in zip(cuts.document, cuts.start, cuts.end, strict=True) if d == i for k in range(a, b)}
        expected.append("".join(c for k, c in enumerate(texts[i]) if k not in goes))
    left, _ = apply_cuts(text, cuts.of(chosen))
    assert bytes(left.data).decode() == "".join(expected)
    assert left.num_bytes.tolist() == list(map(len, expected))
