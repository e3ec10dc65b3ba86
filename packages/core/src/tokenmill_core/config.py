"""Settings from TOML and `--set a.b=c`, into pydantic models that refuse what they do not know.

file.toml ─▶ dict ─┐
--set a.b=c ───────┴▶ validate ─▶ frozen model ─▶ dump_toml (the resolved settings, saved with the output)
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tokenmill_core import storage
from tokenmill_core.errors import ConfigError

Location = tuple[int | str, ...]
"""The path of a setting, by its names; empty for the whole."""

C = TypeVar("C", bound=BaseModel)


def load_config(model: type[C], path: str | None, overrides: Sequence[str] = ()) -> C:
    """Settings of type `model` from a TOML file (or defaults alone) with `overrides` of the form `a.b=value` on top.

    Errors: `ConfigError` naming the file, the path of the setting, the value, and for an unknown one the nearest name.
    """
    values = read_toml(path) if path else {}
    for override in overrides:
        apply_override(values, override)
    return validate_config(model, values, lambda location: origin(location, path or "settings", overrides))


def origin(location: Location, otherwise: str, overrides: Sequence[str]) -> str:
    """What gave the setting at `location`: `--set`, or `otherwise`; both where it is a section with some of each."""
    path = tuple(str(part) for part in location)
    names = [tuple(part.strip() for part in override.partition("=")[0].split(".")) for override in overrides]
    if any(path[: len(name)] == name for name in names):
        return "--set"
    if any(name[: len(path)] == path for name in names):
        return f"{otherwise} and --set"
    return otherwise


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, section by section."""
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def read_toml(path: str) -> dict[str, Any]:
    """The TOML file at `path` as a dict."""
    if not storage.exists(path):
        raise ConfigError(f"{path}: no such file")
    try:
        return tomllib.loads(storage.read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def apply_override(values: dict[str, Any], override: str, option: str = "--set") -> None:
    """Set one `a.b=value` in `values`. The value is read as TOML, and as a plain string where it is not TOML.

    `option` is what brought it, for messages.
    """
    key, equals, text = override.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise ConfigError(f"{option} {override!r}: expected the form section.name=value")
    *sections, name = (part.strip() for part in key.split("."))
    table = values
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{option} {override!r}: {section!r} is a value, not a section")
    table[name] = parse_value(text)


def parse_value(text: str) -> Any:
    """`text` as a TOML value, or as a bare string."""
    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):  # not TOML, a number of thousands of digits, or brackets without end
        return text.strip()
    return parsed["value"] if len(parsed) == 1 else text.strip()


def validate_config(model: type[C], values: Mapping[str, Any], where: str | Callable[[Location], str]) -> C:
    """`values` as a `model`; `where` names their origin in messages, or that of the setting at a path."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        origins = [where if isinstance(where, str) else where(item["loc"]) for item in error.errors()]
        lines = zip(origins, _problems(model, error), strict=True)
        raise ConfigError("\n".join(f"{origin}: {line}" for origin, line in lines)) from error


def _problems(model: type[BaseModel], error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown setting {path!r}{_nearest(model, item['loc'])}")
        elif item["type"] in ("model_type", "dict_type"):
            lines.append(
                f"{path}: expected a section with settings of its own, such as {path}.{_first_setting(model, item)}"
            )
        elif item["type"] == "missing":
            lines.append(f"{path}: this setting is required")
        else:
            value = "" if isinstance(item["input"], dict | list) else f" (got {item['input']!r})"
            lines.append(f"{path}: {item['msg']}{value}".removeprefix(": ").replace("Value error, ", "", 1))
    return lines


def _first_setting(model: type[BaseModel], item: Any) -> str:
    owner: Any = model
    for part in item["loc"]:
        owner = _child(owner, part)
    found = _model_in(owner)
    return f"{next(iter(found.model_fields))}={item['input']}" if found else "name=value"


def _nearest(model: type[BaseModel], location: Location) -> str:
    owner: Any = model
    for part in location[:-1]:
        owner = _child(owner, part)
    found = _model_in(owner)
    names = list(found.model_fields) if found else []
    close = difflib.get_close_matches(str(location[-1]), names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known here: {', '.join(names)}" if names else ""


def _child(annotation: Any, part: int | str) -> Any:
    """The type of what lies at `part` of a value of type `annotation`: a field, a dict's value, a list's item."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return field.annotation if field else None
    if get_origin(annotation) in (dict, list, tuple):
        return next((inner for inner in reversed(get_args(annotation)) if inner is not Ellipsis), None)
    return next((c for inner in get_args(annotation) if (c := _child(inner, part)) is not None), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m), None)


def dump_toml(config: BaseModel) -> str:
    """`config` as TOML that `load_config` reads back to an equal model. Settings that are none are left out."""
    return "\n".join(_toml_lines(config.model_dump(mode="json"), ())) + "\n"


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None and not isinstance(v, dict)]
    if path:
        # Also where nothing is set in it: a section that is there and empty is not one that is not there.
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [*([""] if lines else []), *_toml_lines(value, (*path, key))]
    return lines


def _key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name) else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items() if v is not None)}}}"
    return repr(value)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
