"""Recipes: the order of steps, what a mistake is told as, and what is built again."""

import importlib.metadata
from pathlib import Path

import pytest

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.pipeline import load_recipe, order_of_steps, run_recipe


@pytest.fixture(autouse=True)
def letters_is_installed(monkeypatch):
    """The `letters` stage as an installed package would offer it."""
    entry = importlib.metadata.EntryPoint("letters", "letters:STAGE", "tokenmill.stages")
    found = importlib.metadata.EntryPoints([entry])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **query: found.select(**query))


RECIPE = """
out = "made"

[steps.last]
stage = "letters"
inputs = ["@middle"]
config = { upper = true }

[steps.middle]
stage = "letters"
inputs = ["@first"]

[steps.first]
stage = "letters"
inputs = ["raw"]
config = { min_letters = 2 }

[steps.aside]
stage = "letters"
inputs = ["raw/f0.txt"]
out = "../aside"
name = "zero"
"""


@pytest.fixture
def recipe(tmp_path, raw):
    """A recipe in a folder beside its raw files: the paths in it must be its own, wherever it is run."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    raw.rename(folder / "raw")
    path = folder / "r.toml"
    path.write_text(RECIPE)
    return path


def run(path: Path, *overrides: str) -> dict[str, bool]:
    """Step ─▶ whether it was built, in the order in which they were."""
    told = []
    built = run_recipe(
        str(path), load_recipe(str(path), overrides), LocalExecutor(1), lambda name, _: told.append(name)
    )
    assert told == list(built)
    return {name: not each.up_to_date for name, each in built.items()}


def test_steps_run_after_what_they_refer_to_and_otherwise_as_they_stand(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(recipe) == dict.fromkeys(["first", "aside", "middle", "last"], True)
    assert {path.name for path in (tmp_path / "recipes/made").iterdir()} == {"first", "middle", "last"}
    assert load_manifest(str(tmp_path / "aside")).manifest.name == "zero"
    assert (tmp_path / "recipes/made/last/letters-00001.txt").read_text() == "ALPHA 1\nGAMMA X\n"


def test_only_what_depends_on_a_change_is_built_again(recipe):
    run(recipe)
    assert run(recipe) == dict.fromkeys(["first", "aside", "middle", "last"], False)
    changed = run(recipe, "steps.middle.config.upper=true")
    assert [name for name, was_built in changed.items() if was_built] == ["middle", "last"]
    recipe.write_text(RECIPE.replace("upper = true", "upper = false"))
    back = run(recipe, "steps.middle.config.upper=true")
    assert [name for name, was_built in back.items() if was_built] == ["last"]


def test_the_order_is_known_without_running(recipe):
    assert order_of_steps("r", load_recipe(str(recipe))) == ["first", "aside", "middle", "last"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["@middle"]', '["@midle"]', r"r\.toml: steps\.last\.inputs: no step 'midle'; the steps are last, middle"),
        ('["@first"]', '["@last"]', r"r\.toml: these steps wait for each other: (last -> middle|middle -> last)"),
        ('["raw"]\nconfig', '["@first"]\nconfig', "wait for each other: first -> first"),
        (
            '"letters"\ninputs = ["@middle"]',
            '"leters"\ninputs = []',
            r"steps\.last\.stage: no stage 'leters'; installed",
        ),
        (
            "min_letters",
            "min_leters",
            r"steps\.first\.config: unknown setting 'min_leters'; did you mean 'min_letters'",
        ),
        ("min_letters = 2", "min_letters = 'x'", r"steps\.first\.config: min_letters: .*\(got 'x'\)"),
        ('name = "zero"', 'nam = "zero"', r"r\.toml: unknown setting 'steps\.aside\.nam'; did you mean 'name'\?"),
        ('out = "made"', "", r"r\.toml: out: this setting is required"),
        ('out = "../aside"', 'out = "made/last"', r"steps\.aside\.out: step 'last' writes to .*made/last too"),
        ("stage =", "stage", "not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place_before_anything_runs(recipe, old, new, message):
    assert RECIPE.count(old) >= 1
    recipe.write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        run(recipe)
    assert not (recipe.parent / "made").exists()


def test_no_steps_are_no_recipe(recipe):
    recipe.write_text('out = "x"\n[steps]\n')
    with pytest.raises(ConfigError, match=r"steps: .*at least 1"):
        run(recipe)


def test_paths_with_signs_of_their_own_are_paths(recipe):
    for name in ("raw/date=2024", "raw/@home", "raw/a@first"):
        (recipe.parent / name).mkdir()
        (recipe.parent / name / "x.txt").write_text("word\n")
        recipe.write_text(RECIPE.replace('["raw/f0.txt"]', f'["{name}"]'))
        run(recipe)
        assert load_manifest(str(recipe.parent.parent / "aside")).manifest.counts.documents == 1


def test_a_file_of_a_steps_output_can_be_named(recipe):
    recipe.write_text(RECIPE.replace('["raw/f0.txt"]', '["@last/letters-00000.txt"]'))
    assert list(run(recipe)) == ["first", "middle", "last", "aside"]


def test_a_missing_input_names_the_path(recipe):
    recipe.write_text(RECIPE.replace('["raw"]', '["rw"]'))
    with pytest.raises(InputError, match=r"no such file or folder: '.*/recipes/rw'"):
        run(recipe)
