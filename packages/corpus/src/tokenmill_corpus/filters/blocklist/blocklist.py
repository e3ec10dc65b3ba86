"""Blocklist: documents that go for where they come from, or for words in them.

Every list is a file; `lists` says what may stand in one. A document without a URL is not blocked for it.

    urls              the URL, exactly as written, is on the list
    domains           its host is a listed domain or lies below one
    url_words         a word of it (a run of ASCII letters and digits) is on the list, upper and lower case alike
    url_substrings    an entry stands anywhere in its ASCII letters and digits, read through: "badword" in b-a-d/word
    soft_url_words    more than so many different words of this list stand in it
    words             more than so many words or phrases of this list stand in the text, or they are too large a share
"""

from collections.abc import Iterator

import pyarrow as pa
from pydantic import Field

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.blocklist.urls import (
    domain_set,
    on_domain_list,
    on_url_list,
    parts_on_list,
    squeezed_set,
    url_set,
    words_on_list,
)
from tokenmill_corpus.filters.blocklist.words import count_listed, word_list
from tokenmill_corpus.filters.family import Family, Outcome, Rule, at_most, not_flagged
from tokenmill_corpus.ratios import ratio

LISTS = ("urls", "domains", "url_words", "url_substrings", "soft_url_words", "words")
"""Settings that name a file."""


class Blocklist(Family):
    """Drop what is on a list."""

    url_column: str = "url"
    """Column of the raw data with each document's URL."""
    urls: str | None = None
    """File of URLs."""
    domains: str | None = None
    """File of domains; hosts files will do."""
    url_words: str | None = None
    """File of words that no URL may have."""
    url_substrings: str | None = None
    """File of stretches that no URL may have."""
    soft_url_words: str | None = None
    """File of words of which a URL may have some."""
    max_soft_url_words: int = Field(default=1, ge=0)
    """Most different words of `soft_url_words` in a URL."""
    words: str | None = None
    """File of words and phrases for the text itself."""
    max_blocked_words: int = Field(default=0, ge=0)
    """Most places in a text where an entry of `words` begins."""
    max_blocked_word_ratio: float = Field(default=1.0, ge=0.0, le=1.0)
    """Largest share of such places among a text's words."""

    def apply(self, documents: Documents) -> Outcome:
        """A rule for each list that is given."""
        rules = list(self._url_rules(documents)) if self.columns_read() else []
        if self.words is not None:
            counts = count_listed(documents.text, word_list(self.words))
            rules.append(at_most("max_blocked_words", counts.blocked, self.max_blocked_words))
            share = ratio(counts.blocked, counts.words)
            rules.append(at_most("max_blocked_word_ratio", share, self.max_blocked_word_ratio))
        return Outcome(rules=rules)

    def _url_rules(self, documents: Documents) -> Iterator[Rule]:
        column = self._urls(documents)
        urls = column_buffers(column.fill_null("").cast(pa.large_string()))
        if self.urls is not None:
            yield not_flagged("urls", on_url_list(urls, url_set(self.urls)), column)
        if self.domains is not None:
            yield not_flagged("domains", on_domain_list(urls, domain_set(self.domains)), column)
        if self.url_words is not None:
            counts = words_on_list(urls, squeezed_set(self.url_words)[0])
            yield not_flagged("url_words", counts > 0, column)
        if self.url_substrings is not None:
            yield not_flagged("url_substrings", parts_on_list(urls, *squeezed_set(self.url_substrings)), column)
        if self.soft_url_words is not None:
            counts = words_on_list(urls, squeezed_set(self.soft_url_words)[0])
            yield at_most("max_soft_url_words", counts, self.max_soft_url_words, column)

    def _urls(self, documents: Documents) -> pa.Array:
        names = documents.batch.schema.names
        if self.url_column not in names:
            raise InputError(
                f"blocklist.url_column: the documents have no column {self.url_column!r}; they have {', '.join(names)}"
            )
        return documents.batch.column(self.url_column)

    def check(self) -> None:
        """There is a list, and every list can be read."""
        if not self.named_files():
            raise ConfigError(f"filter.blocklist: no list is given; name a file in one of {', '.join(LISTS)}")
        loaders = {
            "urls": url_set,
            "domains": domain_set,
            "url_words": squeezed_set,
            "url_substrings": squeezed_set,
            "soft_url_words": squeezed_set,
            "words": word_list,
        }
        for setting, path in self.named_files().items():
            loaders[setting].cache_clear()  # the file may have changed since this process read it last
            loaders[setting](path)

    def named_files(self) -> dict[str, str]:
        """The lists are part of what comes out."""
        return {setting: path for setting in LISTS if (path := getattr(self, setting)) is not None}

    def columns_read(self) -> tuple[str, ...]:
        """The URL, where a list is about it."""
        about_urls = self.named_files().keys() - {"words"}
        return (self.url_column,) if about_urls else ()
