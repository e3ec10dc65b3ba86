"""Blocklist: documents that go for their URL, its domain, or words in them."""

from tokenmill_corpus.filters.blocklist.blocklist import LISTS, Blocklist

__all__ = ["LISTS", "Blocklist"]
