"""Which native rule answers to which check of datatrove's filters, each with the others switched off.

In datatrove a threshold of 0 switches a check off; where it does not, one that nothing can pass beyond does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill_corpus.filters.c4 import C4
from tokenmill_corpus.filters.datatrove import DatatroveFilter
from tokenmill_corpus.filters.family import Family
from tokenmill_corpus.filters.fineweb import FineWeb
from tokenmill_corpus.filters.gopher_quality import GopherQuality
from tokenmill_corpus.filters.gopher_repetition import GopherRepetition


@dataclass(frozen=True)
class Pair:
    """A native rule and datatrove's check."""

    family: Family
    name: str
    """`<family>.<rule>`; the rule is a setting, or what an edit counts."""
    datatrove: DatatroveFilter
    """With this check alone."""
    reason: str
    """datatrove's name for it."""
    baseline: DatatroveFilter | None = None
    """The filter without the check, where it acts by changing the text."""

    @property
    def rule(self) -> str:
        """The name without the family's."""
        return self.name.partition(".")[2]

    @property
    def datatrove_name(self) -> str:
        """The check, with its filter's name."""
        return f"{self.datatrove.short_name}.{self.reason}"


_NO_REPETITION: dict[str, Any] = {
    **dict.fromkeys(("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac"), 0),
    "top_n_grams": [],
    "dup_n_grams": [],
}
_NO_QUALITY: dict[str, Any] = dict.fromkeys(
    (
        *("min_doc_words", "max_doc_words", "min_avg_word_length", "max_avg_word_length", "max_symbol_word_ratio"),
        *("max_bullet_lines_ratio", "max_ellipsis_lines_ratio", "max_non_alpha_words_ratio", "min_stop_words"),
    ),
    0,
)
_NO_C4: dict[str, Any] = {
    **dict.fromkeys(("min_num_sentences", "min_words_per_line", "max_word_length"), -1),
    **dict.fromkeys(("remove_citations", "filter_no_terminal_punct", "filter_lorem_ipsum", "filter_javascript"), False),
    **dict.fromkeys(("filter_curly_bracket", "filter_policy"), False),
}
_NO_FINEWEB: dict[str, Any] = {
    "line_punct_thr": 0,
    "short_line_thr": 1,
    "char_duplicates_ratio": 1,
    "new_line_ratio": 1_000_000_000,
}
_NATIVE_NO_C4: dict[str, Any] = {
    **dict.fromkeys(("drop_lorem_ipsum", "drop_curly_brackets", "remove_citations"), False),
    **dict.fromkeys(("require_terminal_punctuation", "remove_javascript_lines", "remove_policy_lines"), False),
    **dict.fromkeys(("min_words_per_line", "min_sentences"), 0),
    "max_word_length": 1_000_000_000,
}


def pairs() -> tuple[Pair, ...]:
    """All of them."""
    return (*_repetition(), *_quality(), *_c4(), *_fineweb())


def _repetition() -> Iterator[Pair]:
    def pair(rule: str, reason: str, **check: Any) -> Pair:
        which = DatatroveFilter(name="GopherRepetitionFilter", **{**_NO_REPETITION, **check})
        return Pair(native, f"gopher_repetition.{rule}", which, reason)

    native = GopherRepetition()
    yield pair("max_duplicate_paragraph_ratio", "dup_para_frac", dup_para_frac=0.3)
    yield pair("max_duplicate_paragraph_character_ratio", "dup_para_char_frac", dup_para_char_frac=0.2)
    yield pair("max_duplicate_line_ratio", "dup_line_frac", dup_line_frac=0.3)
    yield pair("max_duplicate_line_character_ratio", "dup_line_char_frac", dup_line_char_frac=0.2)
    for n, share in ((2, 0.2), (3, 0.18), (4, 0.16)):
        yield pair(f"max_top_{n}gram_character_ratio", f"top_{n}_gram", top_n_grams=[[n, share]])
    for n, share in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)):
        yield pair(f"max_duplicate_{n}gram_character_ratio", f"duplicated_{n}_n_grams", dup_n_grams=[[n, share]])


def _quality() -> Iterator[Pair]:
    def pair(rule: str, reason: str, **check: Any) -> Pair:
        which = DatatroveFilter(name="GopherQualityFilter", **{**_NO_QUALITY, **check})
        return Pair(native, f"gopher_quality.{rule}", which, reason)

    native = GopherQuality()
    yield pair("min_words", "gopher_short_doc", min_doc_words=50)
    yield pair("max_words", "gopher_long_doc", max_doc_words=100_000)
    yield pair("min_mean_word_length", "gopher_below_avg_threshold", min_avg_word_length=3)
    yield pair("max_mean_word_length", "gopher_above_avg_threshold", max_avg_word_length=10)
    # One threshold in datatrove, asked of the hash first: what breaks both rules counts for the hash alone.
    yield pair("max_hash_ratio", "gopher_too_many_hashes", max_symbol_word_ratio=0.1)
    yield pair("max_ellipsis_ratio", "gopher_too_many_ellipsis", max_symbol_word_ratio=0.1)
    yield pair("max_bullet_line_ratio", "gopher_too_many_bullets", max_bullet_lines_ratio=0.9)
    yield pair("max_ellipsis_line_ratio", "gopher_too_many_end_ellipsis", max_ellipsis_lines_ratio=0.3)
    yield pair("min_alphabetic_token_ratio", "gopher_below_alpha_threshold", max_non_alpha_words_ratio=0.8)
    yield pair("min_stop_words", "gopher_enough_stop_words", min_stop_words=2)


def _c4() -> Iterator[Pair]:
    baseline = DatatroveFilter(name="C4QualityFilter", **_NO_C4)

    def pair(rule: str, native: dict[str, Any], reason: str, check: dict[str, Any], by_text: bool = True) -> Pair:
        which = DatatroveFilter(name="C4QualityFilter", **{**_NO_C4, **check})
        family = C4(**{**_NATIVE_NO_C4, **native})
        return Pair(family, f"c4.{rule}", which, reason, baseline if by_text else None)

    terminal, filter_terminal = {"require_terminal_punctuation": True}, {"filter_no_terminal_punct": True}
    yield pair("long_word_lines", {"max_word_length": 1000}, "too_long_word", {"max_word_length": 1000})
    yield pair("citations", {"remove_citations": True}, "remove_citations", {"remove_citations": True})
    yield pair("no_terminal_punctuation_lines", terminal, "no_terminal_punc", filter_terminal)
    yield pair("short_lines", {"min_words_per_line": 3}, "too_few_words", {"min_words_per_line": 3})
    yield pair("javascript_lines", {"remove_javascript_lines": True}, "javascript", {"filter_javascript": True})
    yield pair("policy_lines", {"remove_policy_lines": True}, "policy", {"filter_policy": True})
    for rule, native, reason, check in (
        ("drop_lorem_ipsum", {"drop_lorem_ipsum": True}, "lorem_ipsum", {"filter_lorem_ipsum": True}),
        ("drop_curly_brackets", {"drop_curly_brackets": True}, "curly_bracket", {"filter_curly_bracket": True}),
        ("min_sentences", {"min_sentences": 5}, "too_few_sentences", {"min_num_sentences": 5}),
    ):
        yield pair(rule, native, reason, check, by_text=False)


def _fineweb() -> Iterator[Pair]:
    def pair(rule: str, reason: str, **check: Any) -> Pair:
        which = DatatroveFilter(name="FineWebQualityFilter", **{**_NO_FINEWEB, **check})
        return Pair(native, f"fineweb.{rule}", which, reason)

    native = FineWeb()
    yield pair("min_terminal_line_ratio", "line_punct_ratio", line_punct_thr=0.12)
    yield pair("max_short_line_ratio", "short_line_ratio", short_line_thr=0.67)
    yield pair("max_duplicate_line_character_ratio", "char_dup_ratio", char_duplicates_ratio=0.01)
    yield pair("max_line_break_ratio", "list_ratio", new_line_ratio=0.3)
