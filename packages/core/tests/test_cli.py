"""The command line: what is printed, what it exits with, and what a mistake costs."""

import importlib.metadata
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tokenmill_core.cli import root
from tokenmill_core.cli.root import prep
from tokenmill_core.manifest_io import load_manifest

OWN_COMMANDS = {"show", "verify", "lineage", "diff", "run"}


@pytest.fixture
def chain(make, tmp_path):
    make("first")
    make("second", inputs=[str(tmp_path / "first")], min_letters=4)
    return tmp_path / "second"


def exit_code_of(arguments: list[str], capsys) -> tuple[int, str, str]:
    """`prep` with `arguments` as the shell would run it, but in this process: exit code, output, errors."""
    old, sys.argv = sys.argv, ["prep", *arguments]
    try:
        code = root._exit_code(prep, "prep", "Stopped.")
    finally:
        sys.argv = old
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def cli(capsys):
    return lambda *arguments: exit_code_of([str(a) for a in arguments], capsys)


def test_show(chain, cli):
    code, out, _ = cli("show", chain)
    assert code == 0
    manifest = load_manifest(str(chain)).manifest
    assert f"documents letters ({manifest.digest[:12]}), 6 of 11 documents" in out
    assert "dropped 5 (" in out
    assert "min_letters = 4" in out
    for entry in manifest.files:
        assert f"{entry.sha256[:12]}" in out
    code, out, _ = cli("show", chain, "--json")
    assert json.loads(out) == json.loads((chain / "manifest.json").read_text())


def test_verify_says_ok_or_names_the_file(chain, cli, tmp_path):
    code, out, _ = cli("verify", chain, tmp_path / "first")
    sizes = [[entry.bytes for entry in load_manifest(str(path)).manifest.files] for path in (chain, tmp_path / "first")]
    shown = [f"ok ({len(each)} files, {sum(each):,} bytes checked)" for each in sizes]
    assert (code, out) == (0, f"{chain}: {shown[0]}\n{tmp_path / 'first'}: {shown[1]}\n")
    file = chain / "letters-00001.txt"
    file.write_bytes(file.read_bytes()[:-1])
    code, out, _ = cli("verify", chain, tmp_path / "first")
    assert code == 3
    assert str(file) in out
    assert f"{tmp_path / 'first'}: ok" in out
    assert f"{chain}: 1 problem (" in out
    code, out, _ = cli("verify", chain, "--json")
    assert code == 3
    assert json.loads(out)[str(chain)]["ok"] is False
    assert str(file) in json.loads(out)[str(chain)]["problems"][0]
    assert json.loads(out)[str(chain)]["checked"]["files"] == len(sizes[0])


def test_verify_goes_on_after_a_manifest_that_cannot_be_read(chain, cli, tmp_path):
    text = (chain / "manifest.json").read_text()
    (chain / "manifest.json").write_text(text.replace('"min_letters": 4', '"min_letters": 5'))
    code, out, _ = cli("verify", chain, tmp_path / "nowhere", tmp_path / "first")
    assert code == 3
    for words in ("changed by hand", "no such file or folder", f"{tmp_path / 'first'}: ok"):
        assert words in out


def test_verify_with_inputs_finds_a_changed_raw_file(chain, cli, raw):
    assert cli("verify", chain, "--inputs")[0] == 0
    (raw / "f0.txt").write_text("other")
    assert cli("verify", chain)[0] == 0
    code, out, _ = cli("verify", chain, "--inputs")
    assert code == 3
    assert f"{raw}/f0.txt: the content changed" in out


def test_lineage_shows_the_tree(chain, cli, raw):
    code, out, _ = cli("lineage", chain, "--files")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("documents letters ")
    assert lines[1].startswith("└── documents letters ")
    assert lines[2].startswith("    └── raw raw ")
    assert [line.split()[0] for line in lines[3:]] == ["f0.txt", "f1.txt", "f2.txt", "f3.txt"]
    code, out, _ = cli("lineage", chain, "--json")
    assert json.loads(out)["inputs"][0]["inputs"][0]["path"] == str(raw)


def test_lineage_with_a_missing_input_shows_it_and_exits_with_3(chain, cli, tmp_path, raw):
    (raw / "f0.txt").rename(tmp_path / "elsewhere.txt")
    code, out, _ = cli("lineage", chain)
    assert code == 3
    assert "! 1 of 4 raw files are not at" in out
    (tmp_path / "first").rename(tmp_path / "other")
    code, out, _ = cli("lineage", chain)
    assert code == 3
    assert "! " in out
    code, out, _ = cli("lineage", chain, "--json")
    assert code == 3
    assert "no such file or folder" in json.loads(out)["inputs"][0]["problem"]


def test_diff_names_what_differs(chain, cli, tmp_path):
    code, out, _ = cli("diff", tmp_path / "first", chain)
    assert code == 0
    assert "config.min_letters: 0 -> 4" in out
    assert "ledger.too_short: null -> [5, " in out
    assert cli("diff", tmp_path / "first", chain, "--exit-code")[0] == 1
    changes = json.loads(cli("diff", tmp_path / "first", chain, "--json")[1])
    assert changes["counts.documents"] == [11, 6]
    assert cli("diff", chain, chain, "--exit-code")[:2] == (0, "no difference\n")
    assert json.loads(cli("diff", chain, chain, "--json")[1]) == {}


def installed_commands():
    return sorted(entry.name for entry in importlib.metadata.entry_points(group="tokenmill.commands"))


@pytest.mark.parametrize("name", installed_commands())
def test_every_command_has_help_with_an_example(name):
    result = CliRunner().invoke(prep, [name, "--help"])
    assert result.exit_code == 0
    assert f"prep {name} " in result.output.partition("Example")[2]
    command = prep.get_command(click.Context(prep), name)
    assert command is not None
    unexplained = [
        p.name for p in command.params if isinstance(p, click.Option) and not p.help and p.name != "executor"
    ]
    assert unexplained == []


def test_help_lists_the_commands_and_exit_codes():
    result = CliRunner().invoke(prep, ["--help"])
    assert result.exit_code == 0
    assert set(installed_commands()) >= OWN_COMMANDS
    for word in [*installed_commands(), "75", "verification"]:
        assert word in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["show"],
        ["show", "a", "b"],
        ["verify", "--nonsense", "x"],
        ["run", "r.toml", "--workers", "0"],
        ["run", "r.toml", "--executor", "moon"],
        ["run", "missing.toml"],
    ],
)
def test_wrong_usage_exits_with_2(cli, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*arguments)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.strip()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "nowhere"], 1, "Error: nowhere: no such file or folder"),
        (["show", "folder"], 1, "unfinished: run its command again"),
        (["show", "binary.json"], 1, "not JSON"),
        (["lineage", "nope://x"], 1, "install the fsspec driver"),
        (["diff", "nowhere", "nowhere"], 1, "no such file or folder"),
        (["run", "folder"], 1, "Is a directory"),
    ],
)
def test_a_mistake_is_one_message_without_a_traceback(cli, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.json").write_bytes(b"\x00\xff" * 99)
    got, out, err = cli(*arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


def entry_points_of(*entries: tuple[str, str]):
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, value, "tokenmill.commands") for name, value in entries
    )
    return lambda **query: points.select(**query)


def test_a_package_that_is_not_installed_costs_only_its_commands(monkeypatch, chain, cli):
    monkeypatch.setattr(
        importlib.metadata, "entry_points", entry_points_of(("show", "tokenmill_core.cli.inspect:show"))
    )
    help_text = CliRunner().invoke(prep, ["--help"]).output
    assert "show" in help_text
    assert "tokenize" not in help_text.partition("Commands:")[2]
    code, _, err = cli("tokenize", "x")
    assert code == 2
    assert "No such command 'tokenize'" in err
    assert cli("show", chain)[0] == 0


def test_a_broken_package_costs_only_its_commands(monkeypatch, chain, cli):
    broken = ("clean", "tokenmill_nowhere.cli:clean")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", entry_points_of(("show", "tokenmill_core.cli.inspect:show"), broken)
    )
    help_text = CliRunner().invoke(prep, ["--help"]).output
    assert "clean" in help_text
    assert "(cannot be loaded: No module named" in help_text
    assert cli("show", chain)[0] == 0
    code, _, err = cli("clean", "x", "--out", "y")
    assert code == 1
    assert "Error: clean cannot be loaded: No module named 'tokenmill_nowhere'; install its package again" in err


def prep_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)


def test_a_reader_that_leaves_early_gets_no_traceback(chain):
    prep_command = f"{sys.executable} -W error -c 'from tokenmill_core.cli import main; main()'"
    run = prep_in_shell(f"{prep_command} show {chain} --json | head -c 1")
    assert run.stdout == "{"
    assert run.stderr == ""


def test_a_stage_command_from_nothing_to_up_to_date(start, raw, tmp_path):
    arguments = ["letters_cli.py", str(raw), "--out", str(tmp_path / "out"), "--name", "letters"]
    (tmp_path / "c.toml").write_text("min_letters = 2\nupper = true\n")
    code, out, err = start(*arguments, "--config", str(tmp_path / "c.toml"), "--set", "min_letters=4").finish()
    assert (code, err) == (0, "")
    assert out.startswith("documents letters (")
    assert "6 of 11 documents" in out
    assert "dropped 5 (7 bytes): too_short" in out
    code, out, err = start(*arguments, "--set", "upper=true", "--set", "min_letters=4", "--json").finish()
    assert (code, json.loads(out)["up_to_date"], json.loads(out)["config"]["min_letters"]) == (0, True, 4)
    code, _, err = start(*arguments, "--set", "uper=true").finish()
    assert (code, err) == (2, "Error: settings: unknown setting 'uper'; did you mean 'upper'?\n")
    code, _, err = start(*arguments, "--name", "\udcff").finish()
    assert (code, err[:15]) == (2, "Error: --name '")
