"""Verification: every problem, named."""

import importlib.metadata
import os
import re

import pytest

from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.verify import Checked, find_problems


@pytest.fixture
def chain(make, tmp_path):
    make("first")
    make("second", inputs=[str(tmp_path / "first")], upper=True)
    return tmp_path / "second"


def test_what_is_whole_has_no_problems(chain):
    assert find_problems(load_manifest(str(chain)), inputs=True) == []


def test_every_damaged_file_is_named(chain):
    (chain / "letters-00000.txt").unlink()
    one = chain / "letters-00001.txt"
    one.write_bytes(one.read_bytes()[:-1])
    two = chain / "letters-00002.txt"
    two.write_bytes(two.read_bytes()[::-1])
    found = find_problems(load_manifest(str(chain)))
    assert len(found) == 3
    for name, words in ((0, "missing"), (1, "bytes on disk"), (2, "sha256 is")):
        assert f"letters-0000{name}.txt: " in found[name]
        assert words in found[name]


def test_a_file_that_cannot_be_read_is_a_problem_and_not_the_end(chain):
    path = chain / "letters-00000.txt"
    path.unlink()
    path.mkdir()
    (chain / "letters-00001.txt").unlink()
    assert len(find_problems(load_manifest(str(chain)))) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [("gamma\n", r"f2\.txt: the content changed since"), (None, r"f2\.txt: missing, but .* was made from it")],
)
def test_inputs_are_followed_to_the_raw_files(chain, raw, content, words):
    path = raw / "f2.txt"
    path.unlink()
    if content is not None:
        path.write_text(content)
    loaded = load_manifest(str(chain))
    assert find_problems(loaded) == []
    (problem,) = find_problems(loaded, inputs=True)
    assert problem.startswith(str(path))
    assert re.search(words, problem)


def test_a_damaged_input_dataset_is_named(chain, tmp_path):
    (tmp_path / "first/letters-00000.txt").unlink()
    (tmp_path / "first/raw_files.jsonl").unlink()
    loaded = load_manifest(str(chain))
    assert find_problems(loaded) == []
    found = find_problems(loaded, inputs=True)
    for name in ("letters-00000.txt: missing", "raw_files.jsonl: missing"):
        assert any(name in problem for problem in found)


def test_an_input_that_is_now_another_is_named(chain, make):
    make("first", min_letters=4)
    (problem,) = find_problems(load_manifest(str(chain)), inputs=True)
    assert "was made from documents 'letters' with digest" in problem


def test_raw_files_are_found_again_whatever_bytes_their_names_have(make, raw, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    raw.rename(folder)
    for name in (b"n\xffa.txt", b"n\xfeb.txt", rb"literal \xe9.txt"):
        (folder / os.fsdecode(name)).write_text("alpha\n")
    loaded = make("out", inputs=[str(folder)]).loaded
    assert find_problems(loaded, inputs=True) == []
    assert [node.problem for node in trace_lineage(loaded).inputs] == [""]
    (folder / os.fsdecode(b"n\xffa.txt")).write_text("changed\n")
    (folder / os.fsdecode(b"n\xfeb.txt")).unlink()
    first, second = sorted(find_problems(loaded, inputs=True), key=lambda problem: "missing" in problem)
    assert os.fsdecode(b"n\xffa.txt: the content changed") in first
    assert os.fsdecode(b"n\xfeb.txt: missing") in second


@pytest.fixture
def offered(monkeypatch):
    """offered(value): the check of `documents` as an installed package would offer it."""

    def offer(value):
        found = importlib.metadata.EntryPoints([importlib.metadata.EntryPoint("documents", value, "tokenmill.checks")])
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **query: found.select(**query))

    return offer


def test_the_check_of_a_kind_looks_at_the_content_of_whole_files(chain, tmp_path, offered):
    offered("letters_check:check_letters")
    found = find_problems(load_manifest(str(chain)), checked=(checked := Checked()))
    assert [problem.split(":")[0] for problem in found] == [f"letters-0000{n}.txt" for n in range(3)]
    assert (checked.documents, checked.tokens) == (11, 0)
    assert len(find_problems(load_manifest(str(chain)), inputs=True)) == 6
    (chain / "letters-00000.txt").unlink()
    (problem,) = find_problems(load_manifest(str(chain)))
    assert "missing" in problem


def test_what_was_read_is_counted(chain):
    loaded = load_manifest(str(chain))
    first = load_manifest(loaded.input_url(0)).manifest
    assert find_problems(loaded, checked=(alone := Checked())) == []
    assert find_problems(loaded, inputs=True, checked=(whole := Checked())) == []
    own, before = (sum(entry.bytes for entry in manifest.files) for manifest in (loaded.manifest, first))
    assert (alone.files, alone.bytes) == (len(loaded.manifest.files), own)
    raw = [os.path.getsize(row) for row in sorted((chain.parent / "raw").iterdir())]
    assert whole.files == len(loaded.manifest.files) + len(first.files) + len(raw)
    assert whole.bytes == own + before + sum(raw)


def test_a_check_that_cannot_be_loaded_is_a_problem(chain, offered):
    offered("no_such_package:check")
    (problem,) = find_problems(load_manifest(str(chain)))
    assert "its content cannot be checked: No module named 'no_such_package'; install" in problem


def test_a_check_that_breaks_off_is_a_problem(chain, offered):
    offered("letters_check:stumble")
    loaded = load_manifest(str(chain))
    found = find_problems(loaded)
    assert found[0] == "something"
    assert f"broke off: ValueError: no letters in {loaded.manifest.name}; build it again" in found[1]
