"""Filters: one rule family a file; the first rule that a document breaks is the reason it is dropped for."""

from tokenmill_corpus.filters.family import Edit, Family, Outcome, Rule, at_least, at_most, not_flagged
from tokenmill_corpus.filters.judge import Judge, OnDrop, OnEdit, edit_only

__all__ = [
    "Edit",
    "Family",
    "Judge",
    "OnDrop",
    "OnEdit",
    "Outcome",
    "Rule",
    "at_least",
    "at_most",
    "edit_only",
    "not_flagged",
]
