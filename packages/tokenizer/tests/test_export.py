"""Files for other libraries: tiktoken and transformers give the ids of the `tokenizer.json`, or are refused."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.files.export import tiktoken_ranks, tiktoken_settings, tokenizer_config
from tokenmill_tokenizer.splits import Split, SplitRule, pre_tokenizer

SPECIALS = ["<|endoftext|>", "<|pad|>"]


def learn(rule: SplitRule, texts: list[str], vocab_size: int = 600) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(rule)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*texts, *nasty_texts([])], trainer)
    return tokenizer


def json_of(tokenizer: Tokenizer) -> bytes:
    return tokenizer.to_str().encode()


def open_with_tiktoken(tokenizer_json: bytes) -> tiktoken.Encoding:
    lines = tiktoken_ranks(tokenizer_json).splitlines()
    ranks = {base64.b64decode(token): int(index) for token, index in map(bytes.split, lines)}
    return tiktoken.Encoding("mine", mergeable_ranks=ranks, **json.loads(tiktoken_settings(tokenizer_json)))


@pytest.fixture(scope="module", params=[*Split, r"\p{L}+", r"[a-z]+|[^a-z]{2,3}"])
def learnt(request: pytest.FixtureRequest, prose: list[str]) -> Tokenizer:
    rule = SplitRule(split=request.param) if request.param in list(Split) else SplitRule(pattern=request.param)
    return learn(rule, prose)


def test_tiktoken_gives_the_same_ids(learnt: Tokenizer, prose: list[str]) -> None:
    theirs = open_with_tiktoken(json_of(learnt))
    assert theirs.n_vocab == learnt.get_vocab_size()
    for text in [*prose, *nasty_texts(SPECIALS)]:
        ids = learnt.encode(text).ids
        assert theirs.encode(text, allowed_special="all") == ids
        assert theirs.decode(ids) == text


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40))
def test_tiktoken_gives_the_same_ids_for_any_text(text: str, fuzzed: tuple[Tokenizer, tiktoken.Encoding]) -> None:
    ours, theirs = fuzzed
    assert theirs.encode(text, allowed_special="all") == ours.encode(text).ids


@pytest.fixture(scope="module")
def fuzzed(prose: list[str]) -> tuple[Tokenizer, tiktoken.Encoding]:
    ours = learn(SplitRule(split=Split.O200K), prose)
    return ours, open_with_tiktoken(json_of(ours))


@pytest.mark.parametrize("set_of_characters", [r"\s", r"\p{L}", r"\p{N}"])
def test_both_libraries_know_the_same_characters(set_of_characters: str) -> None:
    everything = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    ranks = {bytes([byte]): byte for byte in range(256)}
    theirs = tiktoken.Encoding("any", pat_str=set_of_characters, mergeable_ranks=ranks, special_tokens={})
    ours = pre_tokenizers.Split(Regex(set_of_characters), "removed", invert=True)
    assert theirs.decode(theirs.encode_ordinary(everything)) == "".join(
        text for text, _ in ours.pre_tokenize_str(everything)
    )


def test_special_tokens_keep_their_ids(learnt: Tokenizer) -> None:
    theirs = open_with_tiktoken(json_of(learnt))
    assert theirs.encode("a<|pad|><|endoftext|>", allowed_special="all")[1:] == [1, 0]
    learnt.encode_special_tokens = True
    assert theirs.encode("a<|pad|>", disallowed_special=()) == learnt.encode("a<|pad|>").ids


def test_ids_with_gaps_have_no_count(prose: list[str]) -> None:
    document = json.loads(json_of(learn(SplitRule(), prose)))
    assert json.loads(tiktoken_settings(json.dumps(document).encode()))["explicit_n_vocab"] == 600
    document["added_tokens"].append({**document["added_tokens"][0], "content": "<|late|>", "id": 700})
    document["model"]["vocab"]["<|late|>"] = 700
    gaps = json.loads(tiktoken_settings(json.dumps(document).encode()))
    assert "explicit_n_vocab" not in gaps
    assert gaps["special_tokens"] == {"<|endoftext|>": 0, "<|pad|>": 1, "<|late|>": 700}
    assert open_with_tiktoken(json.dumps(document).encode()).n_vocab == 701


def _changed(change: Callable[[Any], None]) -> Callable[[Tokenizer], bytes]:
    def run(tokenizer: Tokenizer) -> bytes:
        document = json.loads(json_of(tokenizer))
        change(document)
        return json.dumps(document).encode()

    return run


def _with(name: str, value: Any) -> Callable[[Tokenizer], bytes]:
    def run(tokenizer: Tokenizer) -> bytes:
        setattr(tokenizer, name, value)
        return json_of(tokenizer)

    return run


def _with_added(token: AddedToken) -> Callable[[Tokenizer], bytes]:
    def run(tokenizer: Tokenizer) -> bytes:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        return json_of(tokenizer)

    return run


def _swap_last_merges(document: Any) -> None:
    merges = document["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]


def _drop_a_merge(document: Any) -> None:
    del document["model"]["merges"][-1]


def _cut(pattern: str, behavior: str = "isolated") -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior), byte_level])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_with("normalizer", normalizers.NFC()), r"it normalises texts \(NFC\)"),
        (_with("pre_tokenizer", pre_tokenizers.Whitespace()), "does not work on bytes"),
        (_with("pre_tokenizer", None), "does not work on bytes"),
        (_with("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)), "puts a space in front"),
        (
            _with("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(False)])),
            r"cuts texts 2 times \(Digits, Split\)",
        ),
        (_with("pre_tokenizer", _cut(r"\s+", "removed")), "no Split by a regex that isolates"),
        (
            _with("pre_tokenizer", _cut(r"\p{N}{1,3}+|\s+")),
            r"'\{1,3\}\+' in .* means one thing .*; write \(\?>X\{1,3\}\)",
        ),
        (_with("pre_tokenizer", _cut(r"[$]|x$")), r"pattern: '\$' in .* means one thing to tokenizers"),
        (_with("pre_tokenizer", _cut(r"[\w']+|\s+")), r"pattern: '\\\\w' in .* means one thing to tokenizers"),
        (_with("pre_tokenizer", _cut(r"[[:alpha:]]+")), r"pattern: '\[:alpha:\]' in .* means one thing"),
        (_with("pre_tokenizer", _cut("x*")), r"pattern: 'x\*' matches where there is nothing.*; use \+ for \*"),
        (_with("pre_tokenizer", _cut("x|(?=y)|")), "matches where there is nothing"),
        (_with("pre_tokenizer", _cut("y*(?=x)|k")), "matches where there is nothing"),
        (_with("pre_tokenizer", _cut("ab(?i)c|ss")), "of groups write"),
        (_with("pre_tokenizer", _cut("(?x) a b # c")), "of groups write"),
        (_with("pre_tokenizer", _cut("(?~ss)")), "of groups write"),
        (_with("pre_tokenizer", _cut(r"(?<q>a)\k<q>")), "means one thing"),
        (_with("pre_tokenizer", _cut(r"\141+")), "means one thing"),
        (_with_added(AddedToken("<x>", special=False)), "'<x>' is an added token that is not special"),
        (_with_added(AddedToken("<|pad|>2", special=True)), r"'<\|pad\|>2' begins with another, '<\|pad\|>'"),
        (_with_added(AddedToken("<x>", special=True, lstrip=True)), "'<x>' has lstrip"),
        (_changed(lambda d: d["model"].update(dropout=0.1)), "dropout 0.1"),
        (_changed(lambda d: d["model"].update(type="WordPiece")), "its model is WordPiece, not BPE"),
        (_changed(lambda d: d["model"]["vocab"].pop("!")), "1 bytes have no token, such as 0x21"),
        (_changed(lambda d: d["model"]["vocab"].update({"漢字": 900})), "'漢字' .id 900. does not stand for bytes"),
        (_changed(_swap_last_merges), "not in the order of their tokens' ids"),
        (_changed(_drop_a_merge), "not in the order of their tokens' ids"),
    ],
)
def test_what_tiktoken_cannot_say_is_refused(
    change: Callable[[Tokenizer], bytes], reason: str, prose: list[str]
) -> None:
    content = change(learn(SplitRule(), prose, 300))
    with pytest.raises(InputError, match=reason):
        tiktoken_ranks(content)


def test_a_token_that_merges_never_come_to_is_refused_unless_looked_up(prose: list[str]) -> None:
    document = json.loads(json_of(learn(SplitRule(), prose)))
    document["model"]["vocab"]["qzqzq"] = 600
    with pytest.raises(InputError, match="1 of its tokens are never merged to"):
        tiktoken_ranks(json.dumps(document).encode())
    document["model"]["ignore_merges"] = True
    content = json.dumps(document).encode()
    assert open_with_tiktoken(content).encode("qzqzq") == Tokenizer.from_buffer(content).encode("qzqzq").ids == [600]


def test_transformers_loads_the_folder_with_the_same_ids(learnt: Tokenizer, prose: list[str], tmp_path: Path) -> None:
    learnt.save(str(tmp_path / "tokenizer.json"))
    config = tokenizer_config(
        [*SPECIALS, "<|x|>"],
        end_of_document="<|endoftext|>",
        padding="<|pad|>",
        chat_template="{{ messages[0]['content'] }}<|pad|>",
        model_max_length=128,
    )
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    learnt.encode_special_tokens = False
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.eos_token, theirs.pad_token, theirs.bos_token) == ("<|endoftext|>", "<|pad|>", None)
    assert "<|x|>" in theirs.all_special_tokens
    assert theirs.model_max_length == 128
    for text in [*prose[:20], *nasty_texts(SPECIALS)[:60], "a , b 's"]:
        ids = theirs.encode(text)
        assert ids == learnt.encode(text).ids
        assert theirs.decode(ids) == text
    assert theirs.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi<|pad|>"


def test_settings_of_transformers_say_no_more_than_there_is() -> None:
    config = json.loads(tokenizer_config(["<eos>"], end_of_document="<eos>"))
    assert config == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<eos>",
    }
