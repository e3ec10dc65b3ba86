"""Lines, paragraphs and their duplicates, against the same definitions in plain Python."""

import itertools

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.documents import Documents

LINES = st.sampled_from(
    ["twice", "thrice ", " ", "\r", "città", "cittÅ", "　全角　", "\u00a0x\u2003", "\x85", "a", "日本"]
)
TEXTS = st.lists(LINES | st.text(max_size=4), max_size=12).flatmap(
    lambda lines: st.lists(st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]), min_size=len(lines), max_size=len(lines))
    .map(lambda ends: "".join(itertools.chain.from_iterable(zip(lines, ends, strict=True))))
)  # fmt: skip


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def duplicates_of(text: str) -> tuple[float, float, float, float]:
    stripped = [line.strip() for line in text.split("\n")]
    paragraphs = [list(group) for filled, group in itertools.groupby(stripped, bool) if filled]
    return (*repeated([[line] for line in lines_of(text)]), *repeated(paragraphs))


def repeated(items: list[list[str]]) -> tuple[float, float]:
    """(share of items equal to an earlier one, share of their characters)."""
    again = [item for place, item in enumerate(items) if item in items[:place]]
    characters = [sum(len(line) for item in group for line in item) for group in (again, items)]
    return len(again) / max(1, len(items)), characters[0] / max(1, characters[1])


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS | st.text(), max_size=4))
def test_lines_and_duplicates_are_those_of_the_definitions(texts: list[str]) -> None:
    found = documents(*texts)
    lines, duplicates = found.lines, found.duplicates
    for d, text in enumerate(texts):
        rows = range(lines.first[d], lines.last[d])
        assert [text.encode()[lines.starts[k] : lines.ends[k]].decode() for k in rows] == lines_of(text)
        assert [lines.characters[k] for k in rows] == list(map(len, lines_of(text)))
        ratios = (duplicates.line_ratio, duplicates.line_character_ratio)
        ratios += (duplicates.paragraph_ratio, duplicates.paragraph_character_ratio)
        assert tuple(values[d] for values in ratios) == duplicates_of(text)


def test_lines_that_end_in_bytes_that_look_like_white_space_stay_distinct() -> None:
    """`à` ends in the byte A0 and `Å` in 85: both are white space as code points, neither is as a byte."""
    assert documents("città\ncittÅ\nvilla").duplicates.line_ratio.tolist() == [0]


def test_an_article_scores_as_its_single_spaced_copy() -> None:
    paragraphs = [f"Paragraph {i} has a few words.\nAnd a second line {i % 2}." for i in range(6)]
    single, triple = "\n\n".join(paragraphs), "\n\n\n\n".join(paragraphs)
    found = documents(single, triple, triple.replace("\n", "\r\n")).duplicates
    for ratios in (found.line_ratio, found.line_character_ratio, found.paragraph_ratio):
        assert len(set(ratios.tolist())) == 1
    assert found.line_ratio[0] == 4 / 12


def test_a_paragraph_repeats_only_as_a_whole_and_in_order() -> None:
    found = documents("a\nb\n\nb\na\n\na\n\na\nb", "a\nb\n\na\nb").duplicates
    assert found.paragraph_ratio.tolist() == [1 / 4, 1 / 2]


def test_many_lines_fill_no_set() -> None:
    lines = [str(i) for i in range(50_000)]
    found = documents("\n".join(lines), "x", "\n".join(lines + lines)).duplicates
    assert found.line_ratio.tolist() == [0, 0, 0.5]


def test_blank_documents_and_slices() -> None:
    whole = documents("a\na", "", "\n \n\r\n", "b\nc\nb\nb")
    assert whole.duplicates.line_ratio.tolist() == [1 / 2, 0, 0, 1 / 2]
    part = Documents(whole.batch.slice(2, 2))
    assert part.duplicates.line_ratio.tolist() == [0, 1 / 2]
    assert part.lines.num_lines.tolist() == [0, 4]
    assert documents().duplicates.line_ratio.tolist() == []
