"""A whole recipe of real stages: run from anywhere, built again only where something changed."""

import json
from pathlib import Path

import pytest

from tokenmill_core.errors import VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.pipeline import load_recipe, run_recipe
from tokenmill_core.verify import find_problems

MIXTURE = """
[steps.mixture]
stage = "mix"
inputs = ["prose=@prose-tokens:0.75", "logs=@log-tokens:0.25"]
config = { temperature = 2.0 }
"""
TOKENS = """
out = "data"

[steps.prose-tokens]
stage = "tokenize"
inputs = ["@prose"]
config = { tokenizer = "@tokenizer" }

[steps.log-tokens]
stage = "tokenize"
inputs = ["raw/day=1/logs.jsonl"]
config = { tokenizer = "@tokenizer" }

[steps.tokenizer]
stage = "train-tokenizer"
inputs = ["@prose"]
config = { vocab_size = 270 }

[steps.prose]
stage = "clean"
inputs = ["raw/prose"]
config = { filter = { length = { min_words = 2 } } }
"""
RECIPE = TOKENS + MIXTURE


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The recipe beside its raw files; the current folder is another."""
    home = tmp_path / "my recipes [v1]"
    (home / "raw/day=1").mkdir(parents=True)
    (home / "raw/prose").mkdir()
    for number in range(3):
        rows = [{"text": f"the cat {number} sat on mat {row} and looked at row {row * number}"} for row in range(20)]
        lines = "".join(json.dumps(row) + "\n" for row in [*rows, {"text": "one"}])
        (home / f"raw/prose/{number}.jsonl").write_text(lines)
    (home / "raw/day=1/logs.jsonl").write_text("".join(json.dumps({"text": f"GET /{n} 200"}) + "\n" for n in range(50)))
    (home / "r.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return home / "r.toml"


def run(path: Path, *overrides: str, workers: int = 1) -> list[str]:
    """The steps that were built, in order."""
    built = run_recipe(str(path), load_recipe(str(path), overrides), LocalExecutor(workers), lambda name, outcome: None)
    return [name for name, outcome in built.items() if not outcome.up_to_date]


def test_a_recipe_runs_from_anywhere_and_then_is_up_to_date(recipe):
    assert run(recipe) == ["prose", "tokenizer", "prose-tokens", "log-tokens", "mixture"]
    assert run(recipe) == []
    mixture = load_manifest(str(recipe.parent / "data/mixture.json"))
    assert [source.name for source in mixture.manifest.sources] == ["logs", "prose"]
    assert find_problems(mixture, inputs=True) == []


def test_a_tokenizer_file_is_found_beside_the_recipe(recipe):
    recipe.write_text(TOKENS)
    run(recipe)
    (recipe.parent / "own").mkdir()
    (recipe.parent / "own/tokenizer.json").write_bytes((recipe.parent / "data/tokenizer/tokenizer.json").read_bytes())
    assert run(recipe, "steps.log-tokens.config.tokenizer=own/tokenizer.json") == ["log-tokens"]


@pytest.mark.parametrize(
    ("override", "rebuilt"),
    [
        ("steps.mixture.config.temperature=3.0", ["mixture"]),
        ("steps.log-tokens.config.append_end_of_document=true", []),
        ("steps.log-tokens.name=lines", ["log-tokens", "mixture"]),
        ("steps.tokenizer.config.vocab_size=265", ["tokenizer", "prose-tokens", "log-tokens", "mixture"]),
        (
            "steps.prose.config.filter.length.min_words=1",
            ["prose", "tokenizer", "prose-tokens", "log-tokens", "mixture"],
        ),
    ],
)
def test_only_what_depends_on_a_changed_setting_is_built_again(recipe, override, rebuilt):
    run(recipe)
    assert sorted(run(recipe, override)) == sorted(rebuilt)
    assert run(recipe, override) == []


def test_one_and_two_workers_make_the_same_bytes(recipe, tmp_path):
    run(recipe)
    run(recipe, "out=again", workers=2)
    first, second = (
        {
            str(path.relative_to(recipe.parent / out)): path.read_bytes()
            for path in (recipe.parent / out).rglob("*")
            if path.is_file()
        }
        for out in ("data", "again")
    )
    assert len(first) > 12
    assert first == second


def test_a_damaged_step_stops_what_reads_it(recipe):
    run(recipe)
    shard = recipe.parent / "data/prose/part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[::-1])
    with pytest.raises(VerificationError, match=r"part-00000\.parquet: sha256 is"):
        run(recipe, "steps.prose-tokens.config.append_end_of_document=false")
