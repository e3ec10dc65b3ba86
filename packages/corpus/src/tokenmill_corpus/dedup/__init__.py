"""Deduplication: which of several equal documents stays."""

from tokenmill_corpus.dedup.exact import DIGEST_DTYPE, Digests, first_occurrences, text_digests

__all__ = ["DIGEST_DTYPE", "Digests", "first_occurrences", "text_digests"]
