"""What no line of the packages may do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "packages").glob("*/src/**/*.py"))
PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unpickling(tree: ast.AST) -> Iterator[str]:
    """Every way in `tree` to run code that a file brings with it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in PICKLERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PICKLERS:
            yield node.module or ""
        elif isinstance(node, ast.Call):
            call, keywords = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            if call in {"np.load", "numpy.load"} and keywords.get("allow_pickle") != "False":
                yield f"{call} without allow_pickle=False"
            elif keywords.get("allow_pickle") == "True":
                yield f"{call}(allow_pickle=True)"
            elif call == "torch.load" and keywords.get("weights_only") != "True":
                yield "torch.load without weights_only=True"
            elif call.endswith("read_pickle") or call in {"yaml.load", "eval", "exec"}:
                yield call


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "packages")))
def test_nothing_is_unpickled(path):
    assert list(unpickling(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from cloudpickle import loads",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "numpy.lib.format.read_array(f, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
    ],
)
def test_the_rule_would_catch_it(line):
    assert list(unpickling(ast.parse(line)))


def test_there_is_something_to_look_at():
    assert len(SOURCES) > 60
