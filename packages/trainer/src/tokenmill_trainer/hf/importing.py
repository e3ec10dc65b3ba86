"""Models that `transformers` wrote, as ours: settings of `config.json`, weights of safetensors files alone.

    config.json ─ read ─▶ ModelConfig ─┐
    *.safetensors ─ rename ─▶ weights ─┴─ compare names and shapes ─▶ (ModelConfig, weights)

Pickles (`pytorch_model.bin`) run code when they are read, so they never are.
"""

import json
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer.hf.architectures import layout_of, read_config
from tokenmill_trainer.hf.layout import Layout, Settings, State
from tokenmill_trainer.hf.writing import CONFIG_NAME, WEIGHTS_NAME
from tokenmill_trainer.model import ModelConfig, build_on_meta

INDEX_NAME = f"{WEIGHTS_NAME}.index.json"
LISTED = 4
LAYER = re.compile(r"\b(?:layers|h)\.(\d+)\.")
NUMBERS_OF_LAYERS = ("num_hidden_layers", "n_layer")


def load_hf(path: str | Path) -> tuple[ModelConfig, State]:
    """The model in folder `path`: its settings, and its weights under our names, in the types they are stored in.

    Errors: `InputError` where files are missing or broken; `ConfigError` where it is a model we do not have, or its
    weights are not those its settings call for.
    """
    folder = Path(path)
    layout, config = read_model_config(folder)
    state = layout.read_state(config, _read_weights(folder))
    _check(folder, config, state)
    return config, state


def read_model_config(folder: Path) -> tuple[Layout, ModelConfig]:
    """The architecture and the settings that `config.json` in `folder` states. Errors: as `load_hf`."""
    settings = _read_json(folder / CONFIG_NAME)
    if settings.get("quantization_config"):
        raise ConfigError(f"{folder / CONFIG_NAME}: quantised weights cannot be imported; take the full ones")
    _check_layers(folder, settings)
    try:
        layout = layout_of(settings)
        return layout, read_config(layout, settings)
    except ConfigError as error:
        raise ConfigError(f"{folder / str(error)}") from error


def _check_layers(folder: Path, settings: Settings) -> None:
    """There are no more layers in the settings than weights of: a model of any number of them would be built."""
    files = [folder / name for name in weight_files(folder) if name != INDEX_NAME]
    layers = [int(match[1]) for file in files for name in _names_in(file) if (match := LAYER.search(name))]
    stored = max(layers, default=-1) + 1
    for name in NUMBERS_OF_LAYERS:
        stated = settings.get(name)
        if isinstance(stated, int) and stated > stored:
            raise ConfigError(
                f"{folder / CONFIG_NAME}: {name} is {stated}, but the weights are those of {stored} layers; download "
                "the files again"
            )


def _names_in(path: Path) -> list[str]:
    """Names of the weights in a file, by its header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({error}); download it again") from error


def weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files in `folder`, and of their index where there is one, or `InputError`."""
    if (folder / WEIGHTS_NAME).exists() and not (folder / INDEX_NAME).exists():
        return [WEIGHTS_NAME]
    if not (folder / INDEX_NAME).exists():
        raise InputError(f"{folder}: has no {WEIGHTS_NAME}; weights in other formats are not read: convert them first")
    try:
        names = sorted(set(_read_json(folder / INDEX_NAME)["weight_map"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{folder / INDEX_NAME}: lists no files of weights; download it again") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{folder / INDEX_NAME}: {name!r} is no safetensors file beside it")
    return [*names, INDEX_NAME]


def _read_weights(folder: Path) -> State:
    state: State = {}
    for name in weight_files(folder):
        if name == INDEX_NAME:
            continue
        try:
            state |= load_file(folder / name)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{folder / name}: cannot be read ({error}); download it again") from error
    return state


def _read_json(path: Path) -> Settings:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); name a folder that transformers saved a model in"
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: is no JSON object; name a folder that transformers saved a model in")
    return value


def _check(folder: Path, config: ModelConfig, state: State) -> None:
    """Every weight of the model is there in its shape, and no other."""
    wanted = {name: value.shape for name, value in build_on_meta(config).state_dict().items()}
    problems = {
        "missing": sorted(wanted.keys() - state.keys()),
        "not of this model": sorted(state.keys() - wanted.keys()),
        "of another shape": sorted(name for name in wanted.keys() & state.keys() if wanted[name] != state[name].shape),
    }
    described = [f"{len(names)} {problem}: {_some(names)}" for problem, names in problems.items() if names]
    if described:
        raise ConfigError(f"{folder}: the weights do not fit {CONFIG_NAME}: {'; '.join(described)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:LISTED]) + (", …" if len(names) > LISTED else "")
