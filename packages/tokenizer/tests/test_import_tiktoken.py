"""tiktoken ranks become a tokenizer that gives tiktoken's own ids."""

import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_tokenizer import open_tokenizer
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.files.byte_characters import to_bytes
from tokenmill_tokenizer.importing.stage import STAGE, ImportTokenizerConfig
from tokenmill_tokenizer.importing.tiktoken import PUBLISHED, read_ranks
from tokenmill_tokenizer.splits import Split, SplitRule, pre_tokenizer

END = "<|endoftext|>"


@pytest.fixture(scope="module", params=Split)
def split(request: pytest.FixtureRequest) -> Split:
    found: Split = request.param
    return found


@pytest.fixture(scope="module")
def ranks(split: Split, prose: list[str]) -> dict[bytes, int]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(SplitRule(split=split))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*prose, *nasty_texts([])], trainer)
    return {to_bytes(token) or b"": index for token, index in tokenizer.get_vocab().items()}


def write(path: Path, ranks: dict[bytes, int]) -> Path:
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    path.write_bytes(b"".join(lines))
    return path


def run(path: Path, out: Path, **settings: Any) -> TokenizerManifest:
    stage = STAGE.build(ImportTokenizerConfig(**settings), [str(path)], None)
    manifest = build_stage(stage, str(out), LocalExecutor(1)).loaded.manifest
    assert isinstance(manifest, TokenizerManifest)
    return manifest


def same_ids(folder: Path, ranks: dict[bytes, int], split: Split, texts: list[str]) -> bool:
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = tiktoken.Encoding(
        "theirs", pat_str=SplitRule(split=split).regex, mergeable_ranks=ranks, special_tokens={END: 1000}
    )
    return all(ours.encode(text).ids == theirs.encode(text, allowed_special="all") for text in texts)


def test_ids_are_those_of_tiktoken(ranks: dict[bytes, int], split: Split, prose: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "ranks.txt", ranks)
    manifest = run(path, tmp_path / "out", split=split, special_tokens={END: 1000})
    assert same_ids(tmp_path / "out", ranks, split, [*prose, *nasty_texts([END])])
    assert (manifest.name, manifest.vocab_size, manifest.padded_vocab_size) == ("ranks", 1001, 1024)
    assert (manifest.special_tokens, manifest.end_of_document) == ({END: 1000}, END)
    assert manifest.notes == {}


def test_ranks_with_gaps_give_tokens_that_no_merge_comes_to(
    ranks: dict[bytes, int], split: Split, prose: list[str], tmp_path: Path
) -> None:
    chance = random.Random(split)
    long = sorted(token for token in ranks if len(token) > 1)
    for token in chance.sample(long, len(long) // 3):
        ranks = {other: rank for other, rank in ranks.items() if other != token}
    shuffled = {token: rank * 3 for token, rank in chance.sample(sorted(ranks.items()), len(ranks))}
    kept = {token: rank if rank < 999 else rank + 1000 for token, rank in shuffled.items()}
    run(write(tmp_path / "ranks.tiktoken", kept), tmp_path / "out", split=split, special_tokens={END: 1000})
    texts = [*prose, *nasty_texts([END]), *(token.decode(errors="replace") for token in kept)]
    assert same_ids(tmp_path / "out", kept, split, texts)
    exported = (tmp_path / "out" / "tokenizer.tiktoken").read_bytes()
    assert read_ranks(exported) == kept


def test_an_import_is_the_same_each_time_and_opens(ranks: dict[bytes, int], prose: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "gpt2.tiktoken", {token: rank for token, rank in ranks.items() if rank < 50256})
    first, second = (run(path, tmp_path / name) for name in ("first", "second"))
    assert first.digest == second.digest
    opened = open_tokenizer(str(tmp_path / "first"))
    assert (opened.vocab_size, opened.padded_vocab_size, opened.end_of_document_id) == (50257, 50304, 50256)
    assert [file.path for file in first.files] == [
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.tiktoken",
        "tokenizer.tiktoken.json",
        "raw_files.jsonl",
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_name_of_a_published_encoding_says_split_and_special_tokens(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"{name}.tiktoken", {bytes([byte]): byte for byte in range(256)})
    manifest = run(path, tmp_path / "out")
    assert manifest.special_tokens == PUBLISHED[name].special_tokens
    ours = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    cut = ours.pre_tokenizer.pre_tokenize_str("it's camelCase 12345")
    assert cut == pre_tokenizer(SplitRule(split=PUBLISHED[name].split)).pre_tokenize_str("it's camelCase 12345")


def test_a_pattern_stands_in_for_a_split(prose: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "x.tiktoken", {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"a ": 257})
    run(path, tmp_path / "out", pattern=r"[a ]+", special_tokens={END: 300})
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("ab a b").ids == [97, 98, 32, 257, 98]


def test_a_word_can_be_special_where_it_is_never_looked_up_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tiktoken", _bytes(ab=256))
    settings: dict[str, Any] = {"split": "gpt2", "special_tokens": {"PAD": 300}}
    run(path, tmp_path / "out", **settings)
    ours = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ours.encode_special_tokens = True
    assert ours.encode("PAD").ids == [80, 65, 68]
    with pytest.raises(InputError, match=r"'PAD' is one piece to the split, .*, such as <\|PAD\|>"):
        run(write(tmp_path / "y.tiktoken", _bytes(xyz=256)), tmp_path / "other", **settings)


def _bytes(**more: int) -> dict[bytes, int]:
    return {bytes([byte]): byte for byte in range(256)} | {token.encode(): rank for token, rank in more.items()}


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({}, None, r"do not say how text is cut; give --split \(gpt2, cl100k, .* the names gpt2, r50k_base"),
        ({"pattern": "x{1,2}+"}, None, r"'\{1,2\}\+' in .* means one thing"),
        ({"split": "gpt2", "special_tokens": {END: 65}}, None, r"= 65: this id is that of 'A'; give another"),
        ({"split": "gpt2", "special_tokens": {END: 400, "<|b|>": 400}}, None, "this id is that of '<|endoftext|>'"),
        ({"split": "gpt2", "special_tokens": {"A": 300}}, None, r"'A' = 300: this is the token of id 65 already"),
        ({"split": "gpt2", "special_tokens": {END: -1}}, None, "= -1: a token has characters, and its id is 0 or more"),
        ({"split": "gpt2", "special_tokens": {END: 1 << 24}}, None, "has the id 16777216; ids must be below 16777216"),
        (
            {"split": "gpt2"},
            lambda content: content + b"QUI= 4000000000\n",
            "token 'AB' has the id 4000000000; ids must",
        ),
        ({"split": "gpt2"}, lambda content: content[:63], "bytes have no token, such as 0x"),
        ({"split": "gpt2"}, lambda content: content + b"QUI= 65\n", "two tokens have the same rank"),
        (
            {"split": "gpt2"},
            lambda content: content + b"QQ== 300\n",
            "line 257: 'QQ== 300' has the token of rank 65 again",
        ),
        (
            {"split": "gpt2"},
            lambda content: content + b"QUI= x\n",
            "line 257: 'QUI= x' is not a base64 token and its rank",
        ),
        ({"split": "gpt2"}, lambda content: content + b"Q*I= 300\n", "line 257: .* is not a base64 token"),
        ({"split": "gpt2"}, lambda content: content + b"QUI= -3\n", "its rank is 0 or more"),
        ({"split": "gpt2", "end_of_document": "<|stop|>"}, None, r"end_of_document: x has no token '<\|stop\|>'"),
    ],
)
def test_what_cannot_be_is_refused(
    settings: dict[str, Any], change: Callable[[bytes], bytes] | None, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.tiktoken", _bytes())
    if change is not None:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        run(path, tmp_path / "out", **settings)
    assert not (tmp_path / "out" / "manifest.json").exists()
