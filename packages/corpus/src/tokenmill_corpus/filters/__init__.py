"""Filters: one rule family a file; the first rule that a document breaks is the reason it is dropped for."""

from tokenmill_corpus.filters.native import NativeFilter
from tokenmill_corpus.filters.rules import Verdict, apply_rules

__all__ = ["NativeFilter", "Verdict", "apply_rules"]
