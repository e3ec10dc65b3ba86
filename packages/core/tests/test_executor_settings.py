"""`--executor`, `--executor-config` and `--executor-set`."""

import sys

import pytest

from tokenmill_core.cli.options import make_executor
from tokenmill_core.errors import ConfigError
from tokenmill_core.executor import LocalExecutor, RayExecutor, open_executor
from tokenmill_core.executor.slurm import SlurmSettings


@pytest.fixture
def toml(tmp_path):
    """toml(text): the path of a file of it."""

    def write(text):
        (tmp_path / "executor.toml").write_text(text)
        return str(tmp_path / "executor.toml")

    return write


@pytest.fixture
def with_ray(monkeypatch):
    pytest.importorskip("ray")
    pytest.importorskip("datatrove")


def test_settings_come_from_the_file_and_options_win(toml, with_ray):
    path = toml('[executor]\naddress = "auto"\ncpus_per_worker = 2\n')
    executor = open_executor("ray", 3, path, ["cpus_per_worker=4"])
    assert isinstance(executor, RayExecutor)
    assert executor.num_workers == 3
    assert (executor.settings.address, executor.settings.cpus_per_worker) == ("auto", 4)


@pytest.mark.parametrize(
    ("name", "text", "overrides", "message"),
    [
        (
            "ray",
            "[executor]\nadress = 'auto'\n",
            [],
            r"executor\.toml: executor: unknown setting 'adress'; did you mean",
        ),
        ("ray", "", ["cpus_per_worker=0"], r"executor: cpus_per_worker: Input should be greater .* \(got 0\)"),
        ("slurm", "[executor]\npartition = 'cpu'\n", [], "executor: time_limit: this setting is required"),
        ("local", "[executor]\npartition = 'cpu'\n", [], "unknown setting 'partition'"),
        ("ray", "address = 'auto'\n", [], r"expected one table, \[executor\] \(got address\)"),
        ("ray", "", ["address"], "--executor-set 'address': expected the form"),
    ],
)
def test_wrong_settings_are_refused_by_name(toml, name, text, overrides, message):
    with pytest.raises(ConfigError, match=message):
        open_executor(name, 1, toml(text), overrides)


def test_without_its_extra_an_executor_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "datatrove", None)
    with pytest.raises(ConfigError, match=r"needs datatrove and ray: run pip install 'tokenmill-core\[ray\]'"):
        open_executor("ray", 1)


def test_without_slurm_its_executor_says_so(monkeypatch, tmp_path):
    pytest.importorskip("datatrove")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no sbatch on PATH"):
        open_executor("slurm", 1, None, ["partition=cpu", "time_limit=1:00:00"])


def test_a_cluster_is_told_how_many_workers(with_ray):
    options = {"workers": None, "executor_config": None, "executor_set": ()}
    with make_executor(options | {"executor": "local"}) as executor:
        assert isinstance(executor, LocalExecutor)
    with pytest.raises(ConfigError, match="--executor ray needs --workers N"):
        make_executor(options | {"executor": "ray"}).__enter__()


@pytest.mark.parametrize(("value", "text"), [("90", "90"), ("12:00:00", "12:00:00"), ('"7-0:0:0"', "7-0:0:0")])
def test_a_time_limit_is_taken_as_slurm_writes_it(value, text):
    from tokenmill_core.config import parse_value

    assert SlurmSettings(partition="cpu", time_limit=parse_value(value)).time_limit == text
