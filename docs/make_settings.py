"""Write the reference of all settings to standard output: `python docs/make_settings.py > docs/settings.md`."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tokenmill_corpus import CleanConfig
from tokenmill_corpus.profiles import PROFILES
from tokenmill_shards.importing.stage import ImportTokensConfig
from tokenmill_shards.mixing.mix import MixConfig
from tokenmill_shards.writing.tokenize import TokenizeConfig
from tokenmill_tokenizer.importing.stage import ImportTokenizerConfig
from tokenmill_tokenizer.train_config import TrainTokenizerConfig
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.model.presets import PRESETS

STAGES = {
    "prep clean": CleanConfig,
    "prep train-tokenizer": TrainTokenizerConfig,
    "prep import-tokenizer": ImportTokenizerConfig,
    "prep tokenize": TokenizeConfig,
    "prep import-tokens": ImportTokensConfig,
    "prep mix": MixConfig,
    "pretrain run": RunConfig,
}
HEAD = """# Settings

Every setting of every command, from the code (`make settings`). In a TOML file given by `--config` a name such as
`filter.length.min_words` is `min_words` in the section `[filter.length]`; on the command line it is
`--set filter.length.min_words=20`; in a recipe it stands in the step's `config`. Options of a command win over the
file, `--set` over both. An unknown name is an error.
"""


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """(dotted name, field) of every setting that is not a section."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field
            for inner in get_args(field.annotation):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    yield from settings(inner, f"{prefix}{name}[].")


def choices(annotation: Any) -> list[str]:
    """The values a setting may have, as they would stand in TOML; none where others are possible as well."""
    if get_origin(annotation) is Literal:
        return [shown(value) for value in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [shown(member.value) for member in annotation]
    parts = [choices(part) for part in get_args(annotation) if part is not type(None)]
    return [choice for part in parts for choice in part] if all(parts) else []


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in nested settings."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def shown(value: Any) -> str:
    """A default as it would stand in TOML."""
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(list(value) if isinstance(value, tuple) else value)


def main() -> None:
    """Print the page."""
    print(HEAD)
    for command, model in STAGES.items():
        print(f"## `{command}`\n\n| setting | default | meaning |\n|---|---|---|")
        for name, field in settings(model):
            meaning = " ".join((field.description or "").split()).replace("|", "\\|")
            default = field.default if field.default_factory is None else field.get_default(call_default_factory=True)
            values = choices(field.annotation)
            one_of = f" One of {', '.join(f'`{value}`' for value in values)}." if len(values) > 1 else ""
            print(f"| `{name}` | {shown(default)} | {meaning}{one_of} |")
        print()
    print("## Profiles of `prep clean`\n\nWhat each sets; other settings have their defaults, and yours come on top.\n")
    print("| profile | settings |\n|---|---|")
    for profile, values in PROFILES.items():
        print(f"| `{profile}` | {', '.join(f'`{name} = {shown(value)}`' for name, value in leaves(values))} |")
    print()
    print(f"Presets for `model.preset`: {', '.join(f'`{name}`' for name in PRESETS)}. A family of rules is on")
    print("where `enabled` is; who sets something of it, switches it on.")


if __name__ == "__main__":
    main()
