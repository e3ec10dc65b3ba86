"""Lists of URLs, domains and words."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tokenmill_core.errors import InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.blocklist import Blocklist
from tokenmill_corpus.filters.family import Rule

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write(*lines, name=...): the path of a list."""

    def write(*lines: str, name: str = "list.txt") -> str:
        path = tmp_path / name
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def rules(texts: list[str], url_values: list[str | None] | None = None, /, **options: object) -> dict[str, Rule]:
    columns = {"text": pa.array(texts, pa.large_string())}
    if url_values is not None:
        columns["url"] = pa.array(url_values, pa.string())
    documents = Documents(pa.RecordBatch.from_pydict(columns))
    return {rule.setting: rule for rule in Blocklist(**options).apply(documents).rules}


def blocked(url_values: list[str | None], /, **options: object) -> list[bool]:
    [rule] = rules(["x"] * len(url_values), url_values, **options).values()
    return rule.breaks.tolist()


def test_urls_exactly(write: Write) -> None:
    path = write("# a comment", "", "http://a.example/x?y=1", "  https://b.example/  ")
    urls = ["http://a.example/x?y=1", "http://a.example/x", "https://b.example/", None, ""]
    assert blocked(urls, urls=path) == [True, False, True, False, False]


def test_domains_and_what_lies_below_them(write: Write) -> None:
    path = write("Bad.example", "*.worse.example", "bücher.example # books", "co.test")
    urls = [
        "http://bad.example",
        "https://www.BAD.example:8080/path",
        "//user:bad@deep.sub.bad.example./?q#f",
        "bad.example/no-scheme",
        "http://notbad.example/",
        "http://bad.example.org/",
        "http://ok.example/bad.example",
        "http://ok.example/?u=http://bad.example",
        "http://worse.example/x",
        "http://www.Bücher.example/",
        "http://xn--bcher-kva.example",
        "http://a.co.test",
        "http://ok.example:80@bad.example/",
        None,
        "",
        "http://",
    ]
    hits = [True, True, True, True, False, False, False, False, True, True, True, True, True, False, False, False]
    assert blocked(urls, domains=path) == hits


def test_hosts_files_and_gzip(write: Write) -> None:
    path = write("127.0.0.1 localhost", "0.0.0.0 ads.example track.example # two", "::1 six.example", name="hosts.gz")
    urls: list[str | None] = ["http://x.ads.example/", "http://track.example", "http://six.example", "http://example"]
    assert blocked(urls, domains=path) == [True, True, True, False]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("http://x.example/", r"list.txt:2: 'http://x.example/' is no domain"),
        ("two words", r"list.txt:2: 'two words' is not one domain"),
        ("-x.example", r"list.txt:2: '-x.example' is no domain"),
        ("a..example", r"list.txt:2: 'a..example' is no domain"),
        ("ü" * 70 + ".example", r"list.txt:2: .* is no domain"),
    ],
)
def test_bad_lines_are_named(write: Write, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Blocklist(domains=write("good.example", line)).check()


def test_unreadable_lists_are_named(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.txt: no such list"):
        Blocklist(words="absent.txt").check()
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"one\ntwo\nm\xfcll\n")
    with pytest.raises(InputError, match=r"latin.txt:3: not UTF-8: b'\\xfc'"):
        Blocklist(words=str(latin)).check()
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"some words\n" * 1000)[:30])
    with pytest.raises(InputError, match=r"cut\.gz: a damaged gzip file"):
        Blocklist(urls=str(cut)).check()


def test_words_of_urls(write: Write) -> None:
    urls: list[str | None] = [
        "http://x.example/Casino-online",
        "http://casinos.example/",
        "http://a.example/a_casino",
        None,
    ]
    assert blocked(urls, url_words=write("casino")) == [True, False, True, False]


def test_stretches_of_urls_are_read_through_punctuation(write: Write) -> None:
    urls: list[str | None] = [
        "http://x.example/c-a-s/IN-O",
        "http://mycasino7.example/",
        "http://cas.example/ono",
        None,
    ]
    assert blocked(urls, url_substrings=write("casino", "bingo")) == [True, True, False, False]


def test_some_words_of_urls_only_count_together(write: Write) -> None:
    path = write("hot", "girls", "wild")
    urls: list[str | None] = ["http://hot.example/", "http://hot.example/hot-HOT", "http://hot.example/wild", None]
    [rule] = rules(["x"] * 4, urls, soft_url_words=path).values()
    assert rule.values.tolist() == [1, 1, 2, 0], "different words count, not their repeats"
    assert rule.breaks.tolist() == [False, False, True, False]
    assert blocked(urls, soft_url_words=path, max_soft_url_words=2) == [False] * 4


TEXTS = [
    "A rabbit, a Rabbit; the RABBITS' rabbit-hole.",
    "rabbits",
    "white\n  Rabbit here, and white. Rabbit there",
    "Eine STRASSE in ΣΊΣΥΦΟΣ",
    "これは関数です",
    "",
    "…",
]


def counts(path: str) -> list[int]:
    return rules(TEXTS, words=path)["max_blocked_words"].values.astype(int).tolist()


def test_words_of_texts(write: Write) -> None:
    assert counts(write("rabbit")) == [3, 0, 2, 0, 0, 0, 0], "whole words, whatever their case"
    assert counts(write("White  rabbit", name="phrase")) == [0, 0, 2, 0, 0, 0, 0], "phrases, over whatever parts words"
    assert counts(write("white", "white rabbit", name="both")) == [0, 0, 2, 0, 0, 0, 0], "a place counts once"
    assert counts(write("σίσυφος", "strasse", name="case")) == [0, 0, 0, 2, 0, 0, 0]
    assert counts(write("関数", name="unspaced")) == [0, 0, 0, 0, 1, 0, 0], "anywhere in unspaced scripts"
    assert counts(write("# only", "", "!!!", name="nothing")) == [0] * 7


def test_thresholds_are_kept_themselves(write: Write) -> None:
    path = write("rabbit")
    assert rules(TEXTS, words=path, max_blocked_words=2)["max_blocked_words"].breaks.tolist() == [True] + [False] * 6
    share = rules(TEXTS, words=path, max_blocked_words=9, max_blocked_word_ratio=0.375)["max_blocked_word_ratio"]
    assert share.values.tolist() == [3 / 8, 0, 2 / 7, 0, 0, 0, 0]
    assert not share.breaks.any()
    share = rules(TEXTS, words=path, max_blocked_words=9, max_blocked_word_ratio=0.374)["max_blocked_word_ratio"]
    assert share.breaks.tolist() == [True] + [False] * 6


def test_without_lists_nothing_is_asked_for(write: Write) -> None:
    assert rules(["x"]) == {}
    assert Blocklist(words=write("a")).columns_read() == ()
    family = Blocklist(domains=write("a.example"), url_column="source_url")
    assert family.columns_read() == ("source_url",)
    assert list(family.named_files()) == ["domains"]


def test_a_missing_column_is_named(write: Write) -> None:
    with pytest.raises(InputError, match=r"blocklist\.url_column: the documents have no column 'url'; they have text"):
        rules(["x"], domains=write("a.example"))


def test_a_large_list(write: Write) -> None:
    path = write(*(f"site{i}.example" for i in range(20_000)), name="large.txt")
    urls: list[str | None] = [f"http://www.site{i}.example/" for i in range(0, 40_000, 7)]
    assert blocked(urls, domains=path) == [i < 20_000 for i in range(0, 40_000, 7)]
