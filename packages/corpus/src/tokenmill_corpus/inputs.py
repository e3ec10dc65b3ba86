"""What a clean stage reads: the documents to clean, those to clean them of, and files that settings name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.inputs import RawGroup, expand_inputs, hash_group
from tokenmill_core.manifest import DocumentsManifest
from tokenmill_core.readers import Format
from tokenmill_core.stage import Inputs, resolve_inputs
from tokenmill_corpus.columns import warn_of_lost
from tokenmill_corpus.config import CleanConfig
from tokenmill_corpus.filters import Family

IN_INPUTS = "in inputs: "


@dataclass(frozen=True)
class CleanInputs:
    """The inputs by what they are for."""

    documents: Inputs
    against: Inputs
    families: dict[str, Family]
    """The families to apply, with paths as they were given."""
    named_files: tuple[RawGroup, ...]
    """Files that settings name, one a group, called `<family>.<setting>`."""

    def together(self) -> Inputs:
        """All of them, for the manifest."""
        raw = (*self.documents.raw, *self.against.raw, *self.named_files)
        return Inputs(raw=raw, manifests=(*self.documents.manifests, *self.against.manifests))


def resolve_clean_inputs(config: CleanConfig, inputs: Sequence[str], *, hashing: bool = True) -> CleanInputs:
    """Everything that `config` and the INPUT arguments name, found and, unless it is only to be looked at, hashed.

    Errors: `InputError` or `ConfigError` naming what is not there or cannot be used.
    """
    families = config.filter.families()
    for family in families.values():
        family.check()
    documents = _resolve(inputs, config, hashing)
    against = _resolve(config.against, config, hashing) if config.against else Inputs()
    against = replace(against, raw=tuple(replace(group, name=f"against.{group.name}") for group in against.raw))
    _refuse_both(documents, against)
    _check_priority(config, documents)
    warn_of_lost(documents.manifests, config.read_options().carry)
    return CleanInputs(documents, against, families, tuple(_named_files(families)))


def _resolve(arguments: Sequence[str], config: CleanConfig, hashing: bool) -> Inputs:
    return resolve_inputs(arguments, DocumentsManifest, format=config.reader.format, hashing=hashing)


def _refuse_both(documents: Inputs, against: Inputs) -> None:
    """Nothing would be left of a dataset cleaned of itself, and nobody means that."""
    known = {group.digest for group in documents.raw} | {item.manifest.digest for item in documents.manifests}
    both = [group.name for group in against.raw if group.digest in known]
    both += [item.url for item in against.manifests if item.manifest.digest in known]
    if both:
        raise InputError(f"against {both[0]!r}: this is an INPUT too, and nothing of it would be left; name another")


def _check_priority(config: CleanConfig, documents: Inputs) -> None:
    """Names to go by are those of inputs; of a dataset only its documents know theirs."""
    known = [group.name for group in documents.raw]
    unknown = [name for name in config.dedup.priority if name not in known]
    datasets = [item.manifest.name for item in documents.manifests]
    for name in unknown:
        if name in datasets:
            raise ConfigError(
                f"dedup.priority: {name!r} is a dataset; its documents go by the raw input they came from, the part of "
                "their column `file` before the first slash: name that"
            )
    if unknown and not datasets:
        raise ConfigError(f"dedup.priority: no input is called {unknown[0]!r}; the inputs are {', '.join(known)}")


def _named_files(families: dict[str, Family]) -> list[RawGroup]:
    return [
        replace(hash_group(group, lambda _: None), name=f"{name}.{setting}")
        for name, family in families.items()
        for setting, path in family.named_files().items()
        for group in expand_inputs([path], format=Format.TEXT)
    ]


def recorded_config(config: CleanConfig, resolved: CleanInputs) -> CleanConfig:
    """`config` without the places of files: what counts is their digests, among the inputs."""
    values = config.model_dump(mode="json")
    values["against"] = [IN_INPUTS + name for name in sorted(_names(resolved.against))]
    for name, family in resolved.families.items():
        for setting, path in family.named_files().items():
            values["filter"][name] = _replaced(values["filter"][name], path, f"{IN_INPUTS}{name}.{setting}")
    return CleanConfig.model_validate(values)


def _names(inputs: Inputs) -> list[str]:
    return [group.name for group in inputs.raw] + [item.manifest.name for item in inputs.manifests]


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(child, old, new) for key, child in value.items()}
    if isinstance(value, list):
        return [_replaced(child, old, new) for child in value]
    return new if value == old else value
