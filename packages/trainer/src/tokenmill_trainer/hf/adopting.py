"""`pretrain import`: a model that `transformers` saved becomes one of ours, with a manifest that vouches for its files.

SOURCE/ ─ copy ─▶ .OUT.tmp/ ─ load here and with transformers, compare logits ─▶ manifest ─ rename ─▶ OUT/

The files are copied byte for byte, so their hashes are those that its publisher states.
"""

import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, FileEntry, ModelManifest, StageRef
from tokenmill_core.manifest_io import LoadedManifest, load_manifest, publish
from tokenmill_trainer import __version__
from tokenmill_trainer.hf.export import (
    CHECK_TEXT,
    check_difference,
    entries_of,
    import_transformers,
    load_model_with_transformers,
    logit_difference,
)
from tokenmill_trainer.hf.importing import load_hf, read_model_config, weight_files
from tokenmill_trainer.hf.layout import State
from tokenmill_trainer.hf.writing import CONFIG_NAME
from tokenmill_trainer.model import Decoder, ModelConfig, build_on_meta, num_parameters
from tokenmill_trainer.model.init import fill

BESIDE = (TOKENIZER_NAME, TOKENIZER_CONFIG_NAME, "generation_config.json", "special_tokens_map.json")
"""Taken along where they are there."""
CHECKED_TOKENS = 256


def import_model(source: Path, out: Path) -> LoadedManifest[ModelManifest]:
    """Copy the model in folder `source` to `out`, complete and checked, or not at all.

    Errors: `InputError` where files are missing or `out` holds something; `ConfigError` where it is a model we do not
    have; `VerificationError` where `transformers` does not compute the same logits from it.
    """
    out = out.resolve()
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out}: holds something already; name another --out, or remove it first")
    transformers = import_transformers()
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _copy(source, temporary)
        config, state = load_hf(temporary)
        model = whole_model(config, state)
        theirs = load_model_with_transformers(transformers, temporary)
        difference = logit_difference(model, theirs, _ids_to_check(temporary, config))
        check_difference(temporary, difference, "this model is not computed here as it is there")
        publish(_manifest(source, temporary, out, model, state, difference), str(temporary))
        if out.exists():
            out.rmdir()
        temporary.replace(out)
    except TokenmillError as error:
        # What was found out of the copy is so of its source, and the copy is about to go.
        raise type(error)(str(error).replace(str(temporary), str(source))) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return load_manifest(str(out), ModelManifest)


def whole_model(config: ModelConfig, state: State) -> Decoder:
    """The model with these weights on the CPU, in fp32."""
    model = build_on_meta(config).to_empty(device="cpu").requires_grad_(False)
    fill(model, lambda name, _: state[name])
    return model.eval()


def _copy(source: Path, folder: Path) -> None:
    names = [CONFIG_NAME, *weight_files(source), *(name for name in BESIDE if (source / name).exists())]
    folder.mkdir(parents=True)
    for name in names:
        try:
            shutil.copyfile(source / name, folder / name)
        except OSError as error:
            raise InputError(f"{source / name}: cannot be copied ({error})") from error


def _ids_to_check(folder: Path, config: ModelConfig) -> list[int]:
    if (folder / TOKENIZER_NAME).exists():
        ids = _ids_of(folder / TOKENIZER_NAME, config.vocabulary)
    else:
        ids = torch.randint(config.vocabulary, (CHECKED_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()
    return ids[: min(CHECKED_TOKENS, config.max_positions or CHECKED_TOKENS)]


def _ids_of(path: Path, vocabulary: int) -> list[int]:
    """`CHECK_TEXT` by the tokenizer in `path`, whose ids have rows in the model."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no class of its own
        raise InputError(f"{path}: is no tokenizer ({error}); download it again") from error
    ids = list(tokenizer.encode(CHECK_TEXT, add_special_tokens=False).ids)
    if not ids:
        raise InputError(f"{path}: this tokenizer makes no token of any text; download it again")
    if max(ids) >= vocabulary:
        raise ConfigError(
            f"{path}: it gives id {max(ids)}, but {CONFIG_NAME} says vocab_size {vocabulary}; take this model's own"
        )
    return ids


def _manifest(source: Path, folder: Path, out: Path, model: Decoder, state: State, difference: float) -> ModelManifest:
    files: tuple[FileEntry, ...] = entries_of(folder)
    config: dict[str, Any] = {
        "dtype": ", ".join(sorted({str(value.dtype).removeprefix("torch.") for value in state.values()})),
        "model": model.config.model_dump(mode="json"),
        "source": source.resolve().name,
    }
    return ModelManifest(
        name=out.name,
        stage=StageRef(name="pretrain import", version=1),
        config=config,
        files=files,
        tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
        architecture=read_model_config(folder)[0].architecture,
        parameters=num_parameters(model),
        max_logit_difference=difference,
    )
