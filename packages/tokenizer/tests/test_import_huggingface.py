"""A `tokenizer.json` is imported byte for byte, and what is none is refused by what it looks like."""

import base64
import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_core.manifest_io import load_manifest
from tokenmill_tokenizer.cli_import import import_tokenizer

DEEP = f'{{"model": {"[" * 200_000}{"]" * 200_000}}}'


def foreign(path: Path, *special: str | AddedToken) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def run(*arguments: str | Path) -> TokenizerManifest:
    result = CliRunner().invoke(import_tokenizer, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return load_manifest(str(arguments[arguments.index("--out") + 1]), TokenizerManifest).manifest


def test_a_file_is_kept_byte_for_byte(tmp_path: Path) -> None:
    path = foreign(tmp_path / "theirs.json", "<pad>", "</s>", "<|x|>")
    manifest = run(path, "--out", tmp_path / "out", "--padding", "<pad>", "--pad-to-multiple", "100")
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == path.read_bytes()
    assert (manifest.name, manifest.vocab_size, manifest.padded_vocab_size) == ("theirs", 259, 300)
    assert manifest.special_tokens == {"<pad>": 256, "</s>": 257, "<|x|>": 258}
    assert (manifest.end_of_document, manifest.beginning_of_document, manifest.padding) == ("</s>", None, "<pad>")
    assert manifest.inputs[0].kind == "raw"
    assert "theirs.json" in (tmp_path / "out" / "raw_files.jsonl").read_text()
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == "</s>"


def test_a_second_import_is_up_to_date_and_json_says_so(tmp_path: Path) -> None:
    path = foreign(tmp_path / "theirs.json", "</s>")
    run(path, "--out", tmp_path / "out")
    again = CliRunner().invoke(import_tokenizer, [str(path), "--out", str(tmp_path / "out"), "--json"])
    printed = json.loads(again.stdout)
    assert (printed["up_to_date"], printed["kind"], printed["vocab_size"]) == (True, "tokenizer", 257)


def test_settings_of_transformers_say_what_tokens_are_for(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "llama" / "tokenizer.json", "<a>", "<b>", "<c>", "<d>").parent
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<a>", "pad_token": {"content": "<c>"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<b>"}, "bos_token": "<d>"}))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "model.safetensors").write_bytes(random.Random(0).randbytes(100))
    manifest = run(folder, "--out", tmp_path / "out")
    assert (manifest.end_of_document, manifest.beginning_of_document, manifest.padding) == ("<b>", "<d>", "<c>")
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_bytes())
    assert config["chat_template"] == "{{ messages }}"
    assert config["additional_special_tokens"] == ["<a>"]
    rows = [json.loads(line) for line in (tmp_path / "out" / "raw_files.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == [
        "chat_template.jinja",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    chosen = run(folder, "--out", tmp_path / "chosen", "--end-of-document", "<a>", "--beginning-of-document", "<b>")
    assert (chosen.end_of_document, chosen.beginning_of_document) == ("<a>", "<b>")


def test_one_token_for_both_ends_closes_documents(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "gpt" / "tokenizer.json", "<|endoftext|>").parent
    both = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(both))
    manifest = run(folder, "--out", tmp_path / "out")
    assert (manifest.end_of_document, manifest.beginning_of_document) == ("<|endoftext|>", None)


def test_a_tokenizer_without_special_tokens_has_no_roles(tmp_path: Path) -> None:
    manifest = run(foreign(tmp_path / "bare.json"), "--out", tmp_path / "out")
    assert (manifest.end_of_document, manifest.special_tokens, manifest.vocab_size) == (None, {}, 256)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", b'{"a": 0, "b": 1}', "looks like the vocabulary of GPT-2's two files; name the tokenizer.json"),
        ("merges.txt", b"#version: 0.2\na b\n", "looks like the merges of GPT-2's two files"),
        ("tekken.json", b'{"config": {}, "vocab": [{"rank": 0}]}', "looks like Mistral's tekken format"),
        ("tokenizer_config.json", b'{"tokenizer_class": "X"}', "looks like transformers' settings of a tokenizer"),
        ("x.json", b'{"kind": "x", "n": 1}', "looks like JSON with the keys kind, n"),
        ("x.json", b'{"model": 1', r"begins like JSON and is none \(.*\); download it again"),
        pytest.param("x.json", DEEP.encode(), r"x\.json: begins like JSON and is none \(.*recursion", id="deep"),
        ("x.json", b'{"model": {"type": "Odd"}}', "not a tokenizer.json that tokenizers can load"),
        ("x.model", b"version https://git-lfs.github.com/spec/v1\n", "looks like a pointer of Git LFS"),
        ("x.model", b"<!DOCTYPE html><p>Not found", "looks like a web page; download the file itself"),
        ("x.model", b"PK\x03\x04", "looks like a zip archive"),
        ("x.bin", b"\x00\x01\x02\x03", r"it is 4 bytes that begin b'.x00"),
        ("x.bin", b"", "it is 0 bytes"),
    ],
)
def test_what_is_no_tokenizer_is_refused_by_its_looks(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        run(tmp_path / name, "--out", tmp_path / "out")


def test_settings_that_a_tokenizer_json_says_itself_are_refused(tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", "</s>")
    for options in (["--split", "gpt2"], ["--pattern", "x"], ["--special", "<|b|>=300"]):
        with pytest.raises(InputError, match="says this itself, only tiktoken ranks do not; leave it out"):
            run(path, "--out", tmp_path / "out", *options)


@pytest.mark.parametrize("role", ["--end-of-document", "--beginning-of-document", "--padding"])
def test_roles_are_tokens_that_are_there(role: str, tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", "</s>")
    with pytest.raises(InputError, match=r"has no token '<\|no\|>'; name one that it has, such as '</s>'"):
        run(path, "--out", tmp_path / "out", role, "<|no|>")


def test_folders_and_datasets_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(
        InputError, match=r"no tokenizer\.json in this folder; name the file to import: tokenizer\.model"
    ):
        run(tmp_path / "empty", "--out", tmp_path / "out")
    run(foreign(tmp_path / "x.json", "</s>"), "--out", tmp_path / "out")
    with pytest.raises(InputError, match="this is a dataset already"):
        run(tmp_path / "out", "--out", tmp_path / "again")
    with pytest.raises(InputError, match="no such file or folder"):
        run(tmp_path / "none.json", "--out", tmp_path / "again")


def test_options_that_cannot_be_read_are_wrong_usage(tmp_path: Path) -> None:
    path = foreign(tmp_path / "x.json", "</s>")
    for options, message in (
        (["--special", "<|x|>"], "is not TOKEN=ID"),
        (["--special", "<|x|>=" + "9" * 5000], "is not TOKEN=ID"),
        (["--special", "<|x|>=1", "--special", "<|x|>=2"], "is given twice"),
        (["--split", "gpt5"], "'gpt2', 'cl100k'"),
    ):
        result = CliRunner().invoke(import_tokenizer, [str(path), "--out", str(tmp_path / "out"), *options])
        assert result.exit_code == 2
        assert message in result.output
    for options, message in (
        (["--set", "pading=x"], "did you mean 'padding'"),
        (["--split", "gpt2", "--pattern", "x"], "pattern: 'x' and split gpt2 both say how to cut; leave one out"),
        (["--pattern", "(x"], r"'\(x' is no regular expression in Oniguruma's syntax"),
        (["--pad-to-multiple", "0"], "pad_to_multiple: .*0"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(path, "--out", tmp_path / "out", *options)


def test_a_special_token_may_hold_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "gpt2.tiktoken").write_bytes(b"".join(_rank_line(byte) for byte in range(256)))
    manifest = run(tmp_path / "gpt2.tiktoken", "--out", tmp_path / "out", "--special", "<|a=b|>=300")
    assert manifest.special_tokens == {"<|a=b|>": 300}


def _rank_line(byte: int) -> bytes:
    return base64.b64encode(bytes([byte])) + b" %d\n" % byte


def test_settings_beside_that_are_damaged_are_refused(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "x" / "tokenizer.json", "</s>").parent
    damaged = (("tokenizer_config.json", "{"), ("special_tokens_map.json", "[]"), ("tokenizer_config.json", DEEP))
    for name, content in damaged:
        (folder / name).write_text(content)
        with pytest.raises(InputError, match=rf"{name}: not (JSON|a JSON object)"):
            run(folder, "--out", tmp_path / "out")
        (folder / name).unlink()
    (folder / "chat_template.jinja").write_bytes("é".encode("latin-1"))
    with pytest.raises(InputError, match=r"chat_template\.jinja: not UTF-8"):
        run(folder, "--out", tmp_path / "out")


def document(vocabulary: dict[str, int], added: dict[str, int]) -> str:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokens = [{"id": index, "content": token, **flags} for token, index in added.items()]
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": tokens, "model": model})


@pytest.mark.parametrize(
    ("vocabulary", "added", "message"),
    [
        ({"a": 0, "b": 1 << 24}, {}, "x.json: token 'b' has the id 16777216; ids must be below 16777216"),
        ({"a": 0, "b": 1 << 33}, {}, "token 'b' has the id 8589934592"),
        ({"a": 0}, {"</s>": 4_000_000_000}, "token '</s>' has the id 4000000000; ids must be below 16777216"),
        ({"a": 0}, {"</s>": 5}, "special token '</s>' has the id 5 in the file and 1 with tokenizers; write the id 1"),
        ({"a": 0}, {"</s>": 0}, "special token '</s>' has the id 0 in the file and 1 with tokenizers; write the id 1"),
    ],
)
def test_ids_that_cannot_be_are_refused(
    vocabulary: dict[str, int], added: dict[str, int], message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text(document(vocabulary, added))
    with pytest.raises(InputError, match=message):
        run(tmp_path / "x.json", "--out", tmp_path / "out")


def test_ids_with_gaps_that_the_model_has_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(document({"a": 0, "</s>": 9}, {"</s>": 9}))
    manifest = run(tmp_path / "x.json", "--out", tmp_path / "out")
    assert (manifest.special_tokens, manifest.vocab_size) == ({"</s>": 9}, 10)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("utf-8-sig", "a byte order mark"), ("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16")],
)
def test_other_encodings_are_named(encoding: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(document({"a": 0}, {}), encoding)
    with pytest.raises(InputError, match=rf"x\.json: .*{message}; save it as UTF-8 without byte order mark"):
        run(tmp_path / "x.json", "--out", tmp_path / "out")
