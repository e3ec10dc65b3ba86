"""Settings: where they come from, what is said of a wrong one, and how they are written down."""

import enum
import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from tokenmill_core.config import apply_override, dump_toml, load_config, parse_value, read_toml, validate_config
from tokenmill_core.errors import ConfigError, ExitCode
from tokenmill_core.manifest import Frozen


class Color(enum.StrEnum):
    RED = "red"


class Inner(Frozen):
    learning_rate: float = 1e-4
    names: tuple[str, ...] = ()
    note: str | None = None


class Outer(Frozen):
    seed: int = Field(default=0, ge=0)
    color: Color = Color.RED
    on: bool = False
    inner: Inner = Inner()
    perhaps: Inner | None = None
    steps: dict[str, Inner] = {}
    many: tuple[Inner, ...] = ()
    weights: dict[str, int] = {"a": 1}


class Needy(Frozen):
    path: str


def test_a_file_and_overrides_on_top(tmp_path):
    file = tmp_path / "c [1].toml"
    file.write_bytes(b"\xef\xbb\xbfseed = 3\r\n[inner]\r\nlearning_rate = 1e-3\r\n")
    config = load_config(Outer, str(file), ["inner.note=hi there", "seed = 4", "steps.x.names=['p', 'q']"])
    assert config == Outer(
        seed=4, inner=Inner(learning_rate=1e-3, note="hi there"), steps={"x": Inner(names=("p", "q"))}
    )
    assert load_config(Outer, None) == Outer()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("10_000", 10_000),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ('"quoted"', "quoted"),
        ("inf", math.inf),
        ("plain words", "plain words"),
        ("<|endoftext|>", "<|endoftext|>"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("a=b", "a=b"),
        ("True", "True"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_a_value_is_toml_or_the_text_itself(text, value):
    values: dict[str, object] = {}
    apply_override(values, f"x.y={text}")
    assert values == {"x": {"y": value}}
    assert parse_value(text) == value


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=3", ".a=1", "a.=1", " =1"])
def test_an_override_without_a_name_or_a_value_is_refused(override):
    with pytest.raises(ConfigError, match=r"expected the form section\.name=value"):
        apply_override({}, override)


def test_an_override_below_a_value_is_refused():
    with pytest.raises(ConfigError, match="'seed' is a value, not a section"):
        apply_override({"seed": 3}, "seed.x=1")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sed": 1}, r"c\.toml: unknown setting 'sed'; did you mean 'seed'\?"),
        ({"inner": {"learning_rat": 1}}, r"unknown setting 'inner\.learning_rat'; did you mean 'learning_rate'\?"),
        ({"perhaps": {"nmes": []}}, r"unknown setting 'perhaps\.nmes'; did you mean 'names'\?"),
        ({"steps": {"x": {"nots": "a"}}}, r"unknown setting 'steps\.x\.nots'; did you mean 'note'\?"),
        ({"many": [{}, {"nots": "a"}]}, r"unknown setting 'many\.1\.nots'; did you mean 'note'\?"),
        ({"inner": {"xyzzy": 1}}, r"'inner\.xyzzy'; known here: learning_rate, names, note"),
        ({"seed": -1}, r"c\.toml: seed: .*greater than or equal to 0 \(got -1\)"),
        ({"inner": {"learning_rate": "fast"}}, r"inner\.learning_rate: .*valid number.*\(got 'fast'\)"),
        ({"color": "blue"}, r"color: .*'red' \(got 'blue'\)"),
    ],
)
def test_a_wrong_setting_is_named_with_its_path_and_the_remedy(values, message):
    with pytest.raises(ConfigError, match=message) as caught:
        validate_config(Outer, values, "c.toml")
    assert caught.value.exit_code == ExitCode.USAGE == 2


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError, match="'sed'") as caught:
        validate_config(Outer, {"sed": 1, "on": "maybe"}, "c.toml")
    assert "on: " in str(caught.value)
    with pytest.raises(ConfigError, match="path: this setting is required"):
        validate_config(Needy, {}, "settings")


@pytest.mark.parametrize("content", [b"seed = ", b"seed = 1\nseed = 2", b"\xff"])
def test_bad_toml_is_named(tmp_path, content):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml: not valid TOML"):
        read_toml(str(file))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        load_config(Outer, str(tmp_path / "nowhere.toml"))


inners = st.builds(
    Inner,
    learning_rate=st.floats(allow_nan=False),
    names=st.lists(st.text(), max_size=3).map(tuple),
    note=st.none() | st.text(),
)
outers = st.builds(
    Outer,
    seed=st.integers(0, 2**70),
    on=st.booleans(),
    inner=inners,
    perhaps=st.none() | inners,
    steps=st.dictionaries(st.text(), inners, max_size=3),
    many=st.lists(inners, max_size=2).map(tuple),
    weights=st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1), max_size=2),
)


@given(outers)
def test_what_is_written_is_read_back_equal(config):
    assert validate_config(Outer, tomllib.loads(dump_toml(config)), "dump") == config


def test_settings_written_as_a_person_would():
    text = dump_toml(Outer(inner=Inner(names=("tab\t", 'quote"', "\x7f\x00")), weights={"odd key": 2}))
    assert text.splitlines() == [
        "seed = 0",
        'color = "red"',
        "on = false",
        "many = []",
        "",
        "[inner]",
        "learning_rate = 0.0001",
        'names = ["tab\\u0009", "quote\\"", "\\u007f\\u0000"]',
        "",
        "[steps]",
        "",
        "[weights]",
        '"odd key" = 2',
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=-1"], r"^--set: seed: .* \(got -1\)"),
        (["inner.nte=1"], r"^--set: unknown setting 'inner\.nte'"),
        (["inner.note=fine"], r"^\S*c\.toml: seed: .* \(got -2\)"),
        (["inner=5"], r"^--set: inner: expected a section"),
    ],
)
def test_a_message_names_what_gave_the_setting(tmp_path, overrides, message):
    (tmp_path / "c.toml").write_text("seed = -2" if "fine" in overrides[0] else "seed = 3")
    with pytest.raises(ConfigError, match=message):
        load_config(Outer, str(tmp_path / "c.toml"), overrides)
