"""The report's figures against plain counting, its samples, groups and sources."""

import itertools
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.readers import ReadOptions
from tokenmill_tokenizer.report import Measure, Report, build_report
from tokenmill_tokenizer.report.spelling import sampling
from tokenmill_tokenizer.report.words import count_words

TEXTS = [
    "The quick brown fox sees the lazy dog.",
    "город Straße 東京都 e\u0301 👍🏽",
    "x",
    "\tdef f(x): return x + 1\n\n\n",
    "<|endoftext|> stands here as text",
    "The quick brown fox jumped over the lazy dog, again and again and again.",
]


def write(path: Path, texts: Sequence[str], **columns: Sequence[Any]) -> str:
    rows = [{"text": text} | {name: values[i] for name, values in columns.items()} for i, text in enumerate(texts)]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return str(path)


def report_on(tokenizer: Path, *inputs: str, **settings: Any) -> Report:
    return build_report([str(tokenizer)], inputs, ReadOptions(), **settings)


def find(report: Report, source: str | None, group: str | None = None, tokenizer: int = 0) -> Measure:
    name = report.tokenizers[tokenizer].tokenizer
    [found] = [m for m in report.measures if (m.tokenizer, m.source, m.group) == (name, source, group)]
    return found


def test_figures_are_those_of_plain_counting(trained: Any, tmp_path: Path) -> None:
    report = report_on(trained.path, write(tmp_path / "texts.jsonl", TEXTS))
    tokenizer = Tokenizer.from_file(str(trained.path))
    tokenizer.encode_special_tokens = True
    ids = [index for text in TEXTS for index in tokenizer.encode(text, add_special_tokens=False).ids]
    size = {index: len(tokenizer.id_to_token(index)) for index in set(ids)}  # a character stands for a byte
    measure = find(report, "texts")
    assert (measure.documents, measure.bytes) == (len(TEXTS), sum(len(text.encode()) for text in TEXTS))
    assert measure.tokens == len(ids)
    assert measure.bytes_per_token == pytest.approx(measure.bytes / len(ids), abs=1e-6)
    assert measure.used == len(set(ids))
    assert measure.used_share == pytest.approx(len(set(ids)) / (tokenizer.get_vocab_size() - 1), abs=1e-6)
    assert measure.single_byte_share == pytest.approx(sum(size[i] == 1 for i in ids) / len(ids), abs=1e-6)
    assert (measure.round_trip_failures, measure.first_failure) == (0, None)
    vocabulary = report.tokenizers[0]
    assert vocabulary.rank_frequency[0] == (1, max(Counter(ids).values()))
    assert vocabulary.coverage[-1] == (len(set(ids)), 1.0)
    by_length = Counter(size[i] for i in ids)
    assert dict(enumerate(vocabulary.lengths_in_text)) == {
        n: by_length[n] for n in range(len(vocabulary.lengths_in_text))
    }
    assert sum(vocabulary.lengths_in_text) == len(ids)
    assert sum(vocabulary.lengths) == vocabulary.ordinary_tokens == tokenizer.get_vocab_size() - 1


def test_longest_tokens_come_with_their_counts(trained: Any, tmp_path: Path, prose: list[str]) -> None:
    vocabulary = report_on(trained.path, write(tmp_path / "prose.jsonl", prose)).tokenizers[0]
    tokenizer = Tokenizer.from_file(str(trained.path))
    longest = max(len(token) for token, i in tokenizer.get_vocab().items() if i)
    assert vocabulary.longest_by_bytes[0].bytes == longest == len(vocabulary.lengths) - 1
    ids = Counter(i for text in prose for i in tokenizer.encode(text).ids)
    assert {token.count == ids[token.id] for token in vocabulary.longest_by_characters} == {True}


def test_sources_and_groups_add_up(trained: Any, tmp_path: Path) -> None:
    languages = ["en", "ru", None, "code", "en", "en"]
    first = write(tmp_path / "first.jsonl", TEXTS, lang=languages)
    second = write(tmp_path / "second.jsonl", [*TEXTS[::-1], "more"], lang=["en"] * 7)
    report = report_on(trained.path, first, f"two={second}", by="lang")
    names = [(m.source, m.group) for m in report.measures]
    groups = ["(none)", "code", "en", "ru"]
    assert names == [(None, None), ("first", None), *(("first", g) for g in groups), ("two", None), ("two", "en")]
    for unit in ("documents", "bytes", "words", "tokens", "round_trip_failures"):
        of = {name: getattr(measure, unit) for name, measure in zip(names, report.measures, strict=True)}
        assert of[(None, None)] == of[("first", None)] + of[("two", None)]
        assert of[("first", None)] == sum(of[("first", group)] for group in groups)
    alone = report_on(trained.path, write(tmp_path / "en.jsonl", [TEXTS[0], TEXTS[4], TEXTS[5]]))
    kept = {"source", "group", "first_failure"}
    assert find(report, "first", "en").model_dump(exclude=kept) == find(alone, "en").model_dump(exclude=kept)
    assert find(report, None).used >= find(report, "two").used


def test_the_same_text_is_put_before_every_tokenizer(
    train: Callable[..., Any], prose: list[str], tmp_path: Path
) -> None:
    small, large = train(prose, vocab_size=270), train(prose, vocab_size=400)
    path = write(tmp_path / "prose.jsonl", prose)
    report = build_report([f"small={small.folder}", f"large={large.path}"], [path], ReadOptions())
    assert [m.tokenizer for m in report.measures] == ["small", "large"]
    assert find(report, "prose").bytes == find(report, "prose", tokenizer=1).bytes
    assert find(report, "prose").tokens > find(report, "prose", tokenizer=1).tokens
    alone = build_report([f"large={large.path}"], [path], ReadOptions())
    assert alone.measures[0] == report.measures[1]
    assert alone.tokenizers[0] == report.tokenizers[1]


def test_a_sample_depends_on_the_texts_alone(trained: Any, tmp_path: Path) -> None:
    texts = [f"{n} {'word ' * (n % 30)}" for n in range(3000)]
    total = sum(map(len, texts))
    shuffled = random.Random(1).sample(texts, len(texts))
    halves = tmp_path / "halves"
    halves.mkdir()
    write(halves / "a.jsonl", shuffled[:1000])
    write(halves / "b.jsonl", shuffled[1000:])
    limit = total // 5
    reports = [
        report_on(trained.path, f"texts={path}", sample_bytes=limit)
        for path in (write(tmp_path / "texts.jsonl", texts), str(halves))
    ]
    assert reports[0] == reports[1]
    [source] = reports[0].sources
    assert (source.documents, source.bytes) == (3000, total)
    assert limit - 200 < source.sampled_bytes <= limit
    assert find(reports[0], "texts").documents == source.sampled_documents


def test_a_larger_sample_holds_the_smaller_one(trained: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "texts.jsonl", [f"text number {n}" for n in range(500)])
    sizes = [report_on(trained.path, path, sample_bytes=n).tokenizers[0].lengths_in_text for n in (500, 2000, 0)]
    for smaller, larger in itertools.pairwise(sizes):
        assert all(a <= b for a, b in zip(smaller, larger, strict=False))
    report = report_on(trained.path, path, sample_bytes=0)
    assert sampling(report) == "All documents of every source were measured."
    assert "at most 500 B of text" in sampling(report_on(trained.path, path, sample_bytes=500))
    [whole] = report.sources
    assert whole.sampled_documents == whole.documents == 500


def test_one_document_is_measured_though_it_is_over_the_limit(trained: Any, tmp_path: Path) -> None:
    report = report_on(trained.path, write(tmp_path / "long.jsonl", ["long " * 1000]), sample_bytes=10)
    assert report.sources[0].sampled_bytes == 5000


def test_rows_that_give_no_document_are_counted(trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b'{"text": "one"}\nnot json\n{"text": null}\n{"text": "two"}\n')
    [source] = report_on(trained.path, str(path)).sources
    assert (source.documents, source.bytes, source.sampled_documents) == (2, 6, 2)
    assert sum(source.dropped.values()) == 2


def test_a_source_without_text(trained: Any, tmp_path: Path) -> None:
    for limit in (0, 1000):
        report = report_on(trained.path, write(tmp_path / "empty.jsonl", ["", ""]), sample_bytes=limit)
        measure = find(report, "empty")
        assert (measure.documents, measure.tokens, measure.used_share) == (0, 0, 0)
        assert (measure.bytes_per_token, measure.tokens_per_word) == (None, None)
        assert report.sources[0].dropped == {"empty_text": 2}


def test_without_input_the_vocabulary_speaks_alone(trained: Any) -> None:
    report = report_on(trained.path)
    assert (report.sources, report.measures, report.round_trip_failures) == ((), (), 0)
    vocabulary = report.tokenizers[0]
    assert vocabulary.lengths[1] == 256
    assert vocabulary.longest_by_bytes[0].count is None
    assert {"never_used", "in_one_document"}.isdisjoint(one.reason for one in vocabulary.suspicious)


def test_what_a_normalizer_changes_does_not_come_back(trained: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(trained.path))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(tmp_path / "lower.json"))
    texts = ["lower", "Upper", "lower again", "UPPER AGAIN"]
    report = report_on(tmp_path / "lower.json", write(tmp_path / "texts.jsonl", texts), sample_bytes=0)
    measure = find(report, "texts")
    assert (measure.round_trip_failures, measure.first_failure) == (2, "texts/texts.jsonl:2")
    assert report.round_trip_failures == 2


def sentencepiece_like(path: Path, texts: list[str]) -> Path:
    """BPE on characters with a mark for spaces, and bytes for what is unknown."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "</s>", *bytes_], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    config = orjson.loads(tokenizer.to_str())
    config["added_tokens"] = config["added_tokens"][:2]
    path.write_bytes(orjson.dumps(config))
    return path


def test_a_vocabulary_of_characters(prose: list[str], tmp_path: Path) -> None:
    path = sentencepiece_like(tmp_path / "spm.json", prose)
    texts = [*prose, "unknown 東 character", " leading space"]
    report = report_on(path, write(tmp_path / "texts.jsonl", texts))
    [vocabulary] = report.tokenizers
    assert not vocabulary.byte_level
    measure = find(report, "texts")
    assert (measure.round_trip_failures, measure.documents) == (0, len(texts))
    counts = {one.reason: one.count for one in vocabulary.suspicious}
    assert (counts["unreachable"], counts["unreachable_part"]) == (0, 0)
    assert any(token.token.startswith("' ") for token in vocabulary.longest_by_characters)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("don't panic", 2),
        ("f(x)=y+1 -- nothing", 2),
        ("  3.14\n\n…  ", 1),
        ("東京都 2024年", 5),
        ("สวัสดี", 4),
        ("abc漢字def", 4),
        ("e\u0301te\u0301 naïve\u00a0Straße", 3),
        ("!!! ???", 0),
    ],
)
def test_words(text: str, words: int) -> None:
    assert count_words(column_buffers(pa.array([text], pa.large_string()))).tolist() == [words]


@given(st.lists(st.text(st.characters(codec="utf-8", max_codepoint=0x7FF)), max_size=4))
def test_words_of_spaced_scripts_are_those_of_split(texts: list[str]) -> None:
    found = count_words(column_buffers(pa.array(texts, pa.large_string())))
    # Separators that `str.split` takes for white space and Unicode does not.
    plain = [text.translate(dict.fromkeys(range(0x1C, 0x20), "a")) for text in texts]
    expected = [sum(any(map(_is_letter_or_number, word)) for word in text.split()) for text in plain]
    if not any(character in text for text in texts for character in map(chr, range(0x1C, 0x20))):
        assert found.tolist() == expected
    assert (found <= np.array([len(text) for text in texts], np.int64)).all()


def _is_letter_or_number(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def test_names_are_of_their_own(trained: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "texts.jsonl", TEXTS)
    with pytest.raises(ConfigError, match=r"two tokenizers are called 'a'.*NAME=PATH"):
        build_report([f"a={trained.path}", f"a={trained.folder}"], [path], ReadOptions())
    with pytest.raises(ConfigError, match="two sources are called 'texts'"):
        build_report([str(trained.path)], [path, f"texts={path}"], ReadOptions())
    odd = write(tmp_path / "a=b.jsonl", TEXTS)
    assert report_on(trained.path, odd).sources[0].name == "a=b"


def test_the_files_of_a_source_can_be_its_groups(trained: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", [name] * 3)
    report = report_on(trained.path, f"both={tmp_path}/*.jsonl", by="file")
    folder = tmp_path.name
    assert [m.group for m in report.measures] == [None, f"{folder}/a.jsonl", f"{folder}/b.jsonl"]


def test_a_column_to_break_down_by(trained: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "texts.jsonl", [str(n) for n in range(300)], key=[f"k{n}" for n in range(300)])
    with pytest.raises(InputError, match="'texts': no document has a 'lang'"):
        report_on(trained.path, path, by="lang")
    with pytest.raises(ConfigError, match="by: carry: '' cannot be carried"):
        report_on(trained.path, path, by="")
    with pytest.raises(InputError, match="'key' has more than 256 values"):
        report_on(trained.path, path, by="key")
