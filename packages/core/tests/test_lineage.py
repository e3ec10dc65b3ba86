"""The tree of what a dataset was made from."""

import json
import shutil

import pytest

from tokenmill_core.errors import VerificationError
from tokenmill_core.lineage import read_raw_files, trace_lineage
from tokenmill_core.manifest_io import load_manifest


@pytest.fixture
def chain(make, tmp_path):
    """raw ─▶ first ─▶ second."""
    make("first")
    make("second", inputs=[str(tmp_path / "first")], upper=True)
    return tmp_path / "second"


def test_the_tree_leads_down_to_the_raw_files(chain, raw):
    root = trace_lineage(load_manifest(str(chain)))
    first = root.inputs[0]
    leaf = first.inputs[0]
    assert [(node.kind, node.name, node.problem) for node in (root, first, leaf)] == [
        ("documents", "letters", ""),
        ("documents", "letters", ""),
        ("raw", "raw", ""),
    ]
    assert root.stage == "letters v1"
    assert first.digest == load_manifest(first.path).manifest.digest
    assert (leaf.path, leaf.counts["files"]) == (str(raw), 4)
    assert leaf.counts["bytes"] == sum(path.stat().st_size for path in raw.iterdir())
    assert json.loads(json.dumps(root.to_json()))["inputs"][0]["inputs"][0]["path"] == str(raw)


def test_the_tree_moves_with_its_folders(chain, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("raw", "first", "second"):
        (tmp_path / name).rename(moved / name)
    root = trace_lineage(load_manifest(str(moved / "second")))
    assert root.inputs[0].inputs[0].path == str(moved / "raw")
    assert not root.inputs[0].problem
    assert not root.inputs[0].inputs[0].problem


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (lambda first, make: shutil.rmtree(first), "no such file or folder"),
        (lambda first, make: make("first", min_letters=4), "was made from documents 'letters' with digest"),
        (lambda first, make: (first / "manifest.json").write_text("{}"), "no manifest, since it has no kind"),
    ],
)
def test_a_link_that_leads_nowhere_or_elsewhere_is_shown(chain, tmp_path, make, break_it, problem):
    break_it(tmp_path / "first", make)
    (node,) = trace_lineage(load_manifest(str(chain))).inputs
    assert problem in node.problem
    assert node.inputs == ()


def test_raw_files_that_are_gone_are_shown(chain, tmp_path, raw):
    (raw / "f2.txt").unlink()
    leaf = trace_lineage(load_manifest(str(chain))).inputs[0].inputs[0]
    assert leaf.problem == f"1 of 4 raw files are not at {raw} any more: f2.txt"


@pytest.mark.parametrize("damage", [None, lambda content: b"{broken\n", lambda content: content[::-1]])
def test_a_damaged_listing_of_raw_files_is_shown_and_not_read(make, tmp_path, damage):
    loaded = make().loaded
    path = tmp_path / "out/raw_files.jsonl"
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(content))
    with pytest.raises(VerificationError, match=r"raw_files\.jsonl"):
        read_raw_files(loaded)
    assert "raw_files.jsonl" in trace_lineage(loaded).inputs[0].problem
