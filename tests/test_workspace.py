"""The workspace hangs together: versions, pins, contracts, and the published sample."""

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenmill_core.cli.root import prep
from tokenmill_core.lineage import Node, trace_lineage
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.verify import find_problems

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "corpus", "tokenizer", "shards", "trainer")
ALLOWED_SIBLINGS = {
    "core": set(),
    "corpus": {"core"},
    "tokenizer": {"core"},
    "shards": {"core", "tokenizer"},
    "trainer": {"core", "tokenizer", "shards"},
}


def project(package: str) -> dict:
    return tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]


def test_all_packages_have_one_version():
    versions = {package: project(package)["version"] for package in PACKAGES}
    assert len(set(versions.values())) == 1, versions
    for package in PACKAGES:
        init = (ROOT / "packages" / package / "src" / f"tokenmill_{package}" / "__init__.py").read_text()
        assert f'__version__ = "{versions[package]}"' in init, package


@pytest.mark.parametrize("package", PACKAGES)
def test_siblings_are_pinned_to_the_same_version(package):
    version = project("core")["version"]
    siblings = {d for d in project(package)["dependencies"] if d.startswith("tokenmill-")}
    names = {re.split(r"[=<>~]", d)[0].removeprefix("tokenmill-") for d in siblings}
    assert names <= ALLOWED_SIBLINGS[package]
    assert siblings == {f"tokenmill-{name}=={version}" for name in names}


def test_torch_is_pinned_for_development_and_open_in_the_package():
    requirements = (ROOT / "requirements-dev.txt").read_text()
    assert re.search(r"^torch==\d", requirements, re.MULTILINE)
    assert any(re.fullmatch(r"torch>=\d+\.\d+", d) for d in project("trainer")["dependencies"])


def test_the_published_sample_is_whole():
    mixture = load_manifest(str(ROOT / "manifests/sample/data/mixture.json"))
    assert find_problems(mixture, inputs=True) == []
    leaves = set()

    def walk(node: Node) -> None:
        leaves.update([node.name] if node.kind == "raw" else [])
        for child in node.inputs:
            walk(child)

    walk(trace_lineage(mixture))
    assert leaves == {"notes", "code"}


def test_the_published_sample_is_what_its_recipe_builds(tmp_path):
    sample = ROOT / "manifests/sample"
    work = tmp_path / "sample"
    (work / "raw/code").mkdir(parents=True)
    for name in ("recipe.toml", "raw/notes.jsonl", "raw/code/mill.py"):
        (work / name).write_bytes((sample / name).read_bytes())
    result = CliRunner().invoke(prep, ["run", str(work / "recipe.toml")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for step in ("notes", "code", "tokenizer", "notes-tokens", "code-tokens"):
        built, published = (load_manifest(str(root / "data" / step)).manifest for root in (work, sample))
        assert built.ledger == published.ledger
        assert built.counts == published.counts
        if built.tools == published.tools:
            assert built == published
