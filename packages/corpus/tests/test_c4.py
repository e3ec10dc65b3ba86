"""C4's rules: lines that are cut, what that takes from a document, and which documents go."""

import re
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.c4 import C4
from tokenmill_corpus.filters.family import Outcome

TEXT = 'One sentence is here. Here is two! And is this three? So it says "four." It ends with five.'
CITATION = re.compile(r"\[(?:[0-9]*|edit|citation needed)\]")
POLICY = re.compile("terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies")
TERMINALS, QUOTES = ".?!。！？।", "\"'”’」"
PIECES = (
    *("One", "two three.", "Is it?", "end...", "'quoted'", "”", "[12]", "[]", "[edit]", "[citation needed]", "[ 1 ]"),
    *("[1", "{", "Lorem Ipsum", "JavaScript", "terms of use", "Terms Of use.", "uses cookies.", "use cookie", "w" * 12),
    *("日本語。", "文「です」。そう", "हिन्दी।", "3.14", "e.g. x", "\u3000", "…", ")", "]."),
    *(" ", " ", " ", "\n", "\n", "\r\n", "\n\n"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def texts_of(text: TextBuffers) -> list[str]:
    return [bytes(text.data[a:b]).decode() for a, b in zip(text.offsets[:-1], text.offsets[1:], strict=True)]


def apply(*texts: str, **settings: object) -> Outcome:
    return C4(**settings).apply(documents(*texts))


def cut(text: str, **settings: object) -> tuple[str, dict[str, int]]:
    """(what is left, lines and marks cut by reason)."""
    edit = apply(text, **settings).edit
    assert edit is not None
    return texts_of(edit.text)[0], {name: int(count[0]) for name, count in edit.count.items() if count[0]}


def is_unspaced(character: str) -> bool:
    return "\u3041" <= character <= "\u30ff" or "\u4e00" <= character <= "\u9fff"


class Reference:
    """The family's rules on one text, in plain Python."""

    def __init__(self, text: str, max_word_length: int) -> None:
        self.count: Counter[str] = Counter()
        self.kept: list[str] = []
        for line in filter(None, map(str.strip, text.split("\n"))):
            shorter = CITATION.sub("", line).lstrip(" " if CITATION.match(line) else "").rstrip()
            reason = self.reason(line, shorter, max_word_length)
            if reason:
                self.count[reason] += 1
                continue
            self.count["citations"] += len(CITATION.findall(line))
            self.kept.append(shorter)
        self.sentences = sum(map(self.num_sentences, self.kept))

    def reason(self, line: str, shorter: str, max_word_length: int) -> str | None:
        words = [part for part in re.split(r"\s+|([\u3041-\u30ff\u4e00-\u9fff])", line) if part]
        if max(map(len, words)) > max_word_length:
            return "long_word_lines"
        if not shorter or shorter[-1] not in TERMINALS + QUOTES or shorter.endswith("..."):
            return "no_terminal_punctuation_lines"
        if len(words) < 3:
            return "short_lines"
        if "javascript" in line.lower():
            return "javascript_lines"
        return "policy_lines" if POLICY.search(line.lower()) else None

    @staticmethod
    def num_sentences(line: str) -> int:
        ends = rf"[{TERMINALS}][{TERMINALS}{QUOTES}「)\]]*(?=\s|[\u3041-\u30ff\u4e00-\u9fff]|$)"
        return sum(bool(part.strip()) for part in re.split(ends, line)[:-1]) + bool(re.split(ends, line)[-1].strip())


@settings(max_examples=400, deadline=None)
@given(st.lists(TEXTS, max_size=3))
def test_lines_are_cut_as_defined(texts: list[str]) -> None:
    outcome = apply(*texts, max_word_length=10)
    assert outcome.edit is not None
    found = texts_of(outcome.edit.text)
    lorem_ipsum, curly_bracket, sentences = (rule.values for rule in outcome.rules)
    for d, text in enumerate(texts):
        reference = Reference(text, max_word_length=10)
        assert found[d] == "\n".join(reference.kept)
        count = {name: int(values[d]) for name, values in outcome.edit.count.items()}
        assert count == {name: reference.count[name] for name in count}
        assert lorem_ipsum[d] == ("lorem ipsum" in text.lower())
        assert curly_bracket[d] == ("{" in text)
        assert sentences[d] == reference.sentences
        removed = sum(int(values[d]) for values in outcome.edit.removed.values())
        assert removed == len(text.encode()) - len(found[d].encode())
        assert all(values[d] >= 0 for values in outcome.edit.removed.values())


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        (TEXT, 5),
        ("No end at all", 1),
        ("Version 3.14 is out. (It is new.) See a.b.c!", 3),
        ("What?! Really... Yes.", 3),
        ("これは文です。次の文です！「そう。」終わり", 4),
        ("Он сказал: «Да.» И ушёл.", 2),
        ("...", 1),
        (". . .", 3),
    ],
)
def test_sentences_by_hand(line: str, sentences: int) -> None:
    outcome = apply(line, require_terminal_punctuation=False, min_words_per_line=0)
    assert outcome.rules[2].values.tolist() == [sentences]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"This word is long: {'x' * 1001}.", "long_word_lines"),
        ("This line has no end", "no_terminal_punctuation_lines"),
        ("This one trails off...", "no_terminal_punctuation_lines"),
        ("Too short.", "short_lines"),
        ("Please enable JavaScript in it.", "javascript_lines"),
        ("Read our Privacy Policy now.", "policy_lines"),
    ],
)
def test_each_reason_has_its_name(line: str, reason: str) -> None:
    outcome = apply(f"{TEXT}\n  {line}\n\n{TEXT}")
    assert outcome.edit is not None
    assert texts_of(outcome.edit.text) == [f"{TEXT}\n{TEXT}"]
    assert {name: int(n[0]) for name, n in outcome.edit.removed.items() if n[0]} == {
        reason: len(line),
        "white_space": 4,
    }


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("This line has no end", {"require_terminal_punctuation": False}),
        ("Too short.", {"min_words_per_line": 2}),
        ("Please enable JavaScript in it.", {"remove_javascript_lines": False}),
        ("Read our Privacy Policy now.", {"remove_policy_lines": False}),
        (f"This word is long: {'x' * 1000}.", {"max_word_length": 1001}),
        ("A fact [1] is here.[edit]", {"remove_citations": False, "require_terminal_punctuation": False}),
    ],
)
def test_each_rule_can_be_switched_off(line: str, setting: dict[str, object]) -> None:
    assert cut(line, **setting) == (line, {})


def test_citations_are_cut_and_the_end_is_judged_without_them() -> None:
    assert cut("[1] A fact is here. [12]\nOther [edit] facts [a] are[].") == (
        "A fact is here.\nOther  facts [a] are.",
        {"citations": 4},
    )


def test_a_line_of_nothing_but_citations_leaves_nothing() -> None:
    text, count = cut("[1] [2] [3]", require_terminal_punctuation=False)
    assert (text, count) == ("", {"citations": 3})


def test_words_of_lines_in_scripts_without_spaces() -> None:
    assert cut("これは文です。") == ("これは文です。", {})
    assert cut("文。")[1] == {"short_lines": 1}
    assert cut("漢" * 2000 + "。")[1] == {}


def test_documents_are_dropped_for_sentences_phrases_and_brackets() -> None:
    texts = ["", "\n\n\n", "word", "!!!", TEXT, TEXT + " Lorem IPSUM dolor.", TEXT + "\nif (x) {", TEXT[:-20]]
    broken = {rule.setting: rule.breaks.tolist() for rule in apply(*texts).rules}
    assert broken == {
        "drop_lorem_ipsum": [False] * 5 + [True, False, False],
        "drop_curly_brackets": [False] * 6 + [True, False],
        "min_sentences": [True] * 4 + [False, False, False, True],
    }
    assert apply(TEXT, min_sentences=6).rules[2].breaks.tolist() == [True]
    off = apply(*texts, drop_lorem_ipsum=False, drop_curly_brackets=False, min_sentences=0)
    assert not any(rule.breaks.any() for rule in off.rules)


def test_slices_and_empty_batches() -> None:
    whole = documents("gone", TEXT, "", f"{TEXT}\nx\n{TEXT}", "gone")
    part = C4().apply(Documents(whole.batch.slice(1, 3)))
    assert part.edit is not None
    assert texts_of(part.edit.text) == [TEXT, "", f"{TEXT}\n{TEXT}"]
    assert part.rules[2].values.tolist() == [5, 0, 10]
    empty = apply().edit
    assert empty is not None
    assert len(empty.text) == 0
