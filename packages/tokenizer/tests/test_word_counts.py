"""Counting words: exact, in any order, in memory that is bounded by going to disk."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_tokenizer.splits import SplitRule, pre_tokenizer
from tokenmill_tokenizer.training import WordCounter, Words, WordTable, word_counter
from tokenmill_tokenizer.training.word_files import read_words, word_files, write_words


def as_dict(words: Words) -> dict[bytes, int]:
    data, offsets = words.data.tobytes(), words.offsets.tolist()
    found = [data[a:b] for a, b in itertools.pairwise(offsets)]
    assert len(set(found)) == len(found)
    return dict(zip(found, words.counts.tolist(), strict=True))


def add(table: WordTable, words: list[bytes]) -> None:
    table.add(np.frombuffer(b"".join(words), np.uint8), 0, np.cumsum([len(word) for word in words], dtype=np.int64))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=20) | st.sampled_from([b"a", b"ab", b"a" * 8, b"a" * 16]), max_size=80))
def test_each_word_is_counted(words: list[bytes]) -> None:
    table = WordTable()
    add(table, words)
    assert as_dict(table.words()) == Counter(words)
    assert list(as_dict(table.words())) == list(dict.fromkeys(words)), "in the order in which they first came"


def test_a_table_grows() -> None:
    words = [b"w%d" % (n % 9000) for n in range(30_000)] + [b"long" * 100_000]
    table = WordTable()
    add(table, words)
    assert as_dict(table.words()) == Counter(words)


def test_tables_add_up_and_say_where_words_stand() -> None:
    one, two, both = WordTable(), WordTable(), WordTable()
    add(one, [b"a", b"bb", b"a"])
    add(two, [b"ccc", b"bb", b"bb"])
    starts = [both.add_words(table.words()).tolist() for table in (one, two)]
    assert as_dict(both.words()) == {b"a": 2, b"bb": 3, b"ccc": 1}
    assert starts == [[0, 1], [3, 1]]
    both.clear()
    assert as_dict(both.words()) == {}


@pytest.mark.parametrize("words", [[], [b"one"], [b"\x00", b"\xff\xfe", b"x" * 5000]])
def test_words_come_back_from_disk(tmp_path: Path, words: list[bytes]) -> None:
    table = WordTable()
    add(table, words)
    write_words(tmp_path / "w.arrow", table.words())
    assert as_dict(read_words(tmp_path / "w.arrow")) == Counter(words)


@pytest.mark.parametrize("max_table_bytes", [1, 256 << 20])
def test_pieces_are_counted_the_same_in_little_memory(
    tmp_path: Path, prose: list[str], max_table_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_counter, "MAX_TABLE_BYTES", max_table_bytes)
    monkeypatch.setattr(word_counter, "CHUNK_BYTES", 500)
    texts = pa.array(["dropped", *prose, "", "tail  "], pa.large_string())[1:]
    counter = WordCounter(SplitRule(), tmp_path, 7)
    counter.add(column_buffers(texts))
    counter.close()
    files = word_files(tmp_path, 7)
    assert (len(files) > 5) == (max_table_bytes == 1)
    found = sum((Counter(as_dict(read_words(file))) for file in files), Counter())
    cut = pre_tokenizer(SplitRule())
    pieces = [text[a:b].encode() for text in texts.to_pylist() for _, (a, b) in cut.pre_tokenize_str(text)]
    assert found == Counter(pieces)
