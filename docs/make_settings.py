"""Write the reference of all settings to standard output: `python docs/make_settings.py > docs/settings.md`."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tokenmill_corpus import CleanConfig
from tokenmill_shards.mix import MixConfig
from tokenmill_shards.tokenize import TokenizeConfig
from tokenmill_tokenizer import TrainTokenizerConfig
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.presets import PRESETS

STAGES = {
    "prep clean": CleanConfig,
    "prep train-tokenizer": TrainTokenizerConfig,
    "prep tokenize": TokenizeConfig,
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
            print(f"| `{name}` | {shown(field.default)} | {meaning} |")
        print()
    print(f"Presets for `model.preset`: {', '.join(f'`{name}`' for name in PRESETS)}. What a profile sets of")
    print("`prep clean` stands in `tokenmill_corpus/profiles.py`; a family of rules is on where `enabled` is.")


if __name__ == "__main__":
    main()
