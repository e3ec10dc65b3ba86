"""A trained model in the Hugging Face layout, published only after `transformers` computed the same logits from it.

checkpoint ─▶ .OUT.tmp/ ─ load with transformers, compare on real text ─▶ manifest ─ rename ─▶ OUT/
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tokenmill_core import storage
from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.manifest import Counts, FileEntry, ModelManifest, StageRef
from tokenmill_core.manifest_io import LoadedManifest, input_ref, is_manifest, load_manifest, publish, verify_files
from tokenmill_trainer import __version__
from tokenmill_trainer.hf.writing import write_layout
from tokenmill_trainer.model import Decoder, num_parameters
from tokenmill_trainer.trained_model import TrainedModel

MAX_LOGIT_DIFFERENCE = 1e-4
"""Largest difference between our logits and those of `transformers`, fp32."""

CHECK_TEXT = '''A language model reads text from left to right and says, at every place, how likely each next token is.
It has seen prose (“such as this”), numbers like 3.14159 and 1,000,000, and the names of towns: Zürich, Kraków, 東京.

def mean(values: list[float]) -> float:
    """Arithmetic mean; an empty list has none."""
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)
'''
"""Text the check reads, prose and code."""


def export(trained: TrainedModel, out: Path) -> LoadedManifest[ModelManifest]:
    """Write the model to folder `out`, complete and checked, or not at all. What is there already is left alone.

    Errors: `ConfigError` where `transformers` is not installed or has no architecture for the model; `InputError` where
    `out` holds something else; `VerificationError` where `transformers` does not compute the same logits or ids.
    """
    transformers = import_transformers()
    out = out.resolve()
    if out.exists() and any(out.iterdir()):
        return _exported_before(trained, out)
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        end_id = trained.end_of_document_id
        layout = write_layout(
            temporary,
            trained.model,
            trained.tokenizer,
            trained.tokenizer_settings,
            max_positions=trained.sequence_length,
            end_id=end_id,
        )
        difference = compare_with_transformers(transformers, temporary, trained)
        publish(_manifest(trained, temporary, out, layout.architecture, difference), str(temporary))
        if out.exists():
            out.rmdir()
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return load_manifest(str(out), ModelManifest)


def _exported_before(trained: TrainedModel, out: Path) -> LoadedManifest[ModelManifest]:
    """The model in `out`, if it is this one and whole."""
    if is_manifest(str(out)):
        loaded = load_manifest(str(out))
        inputs, config = loaded.manifest.inputs, loaded.manifest.config
        is_averaged = config.get("weights") == "average"
        if inputs and inputs[0].digest == trained.checkpoint.manifest.digest and is_averaged == trained.averaged:
            verify_files(loaded)
            return load_manifest(str(out), ModelManifest)
    raise InputError(f"{out}: holds something else already; name another --out, or remove it first")


def import_transformers() -> Any:
    """The `transformers` package, or `ConfigError` with the way to get it."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"logits are compared with those of transformers, which cannot be imported ({error}): "
            "pip install 'tokenmill-trainer[hf]'"
        ) from error
    _silence(transformers)
    return transformers


def _silence(transformers: Any) -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def compare_with_transformers(transformers: Any, folder: Path, trained: TrainedModel) -> float:
    """Largest |ours − theirs| over the logits on `CHECK_TEXT`, at most `MAX_LOGIT_DIFFERENCE`.

    Errors: `VerificationError` where it is larger, or where the exported tokenizer gives other ids.
    """
    ids = trained.tokenizer.encode(CHECK_TEXT, add_special_tokens=False).ids
    their_tokenizer, theirs = _load_with_transformers(transformers, folder)
    their_ids = their_tokenizer.encode(CHECK_TEXT, add_special_tokens=False)
    if ids != their_ids:
        raise VerificationError(
            f"{folder}: the exported tokenizer gives other ids than the run's; nothing is published"
        )
    difference = logit_difference(trained.model, theirs, ids[: trained.sequence_length])
    check_difference(folder, difference, "report this with the run's config.toml")
    return difference


def check_difference(folder: Path, difference: float, remedy: str) -> None:
    """`difference` is at most `MAX_LOGIT_DIFFERENCE`, or `VerificationError`."""
    if not difference <= MAX_LOGIT_DIFFERENCE:
        raise VerificationError(
            f"{folder}: logits differ from those of transformers by {difference:.2e}, more than "
            f"{MAX_LOGIT_DIFFERENCE:.0e}; nothing is published: {remedy}"
        )


def _load_with_transformers(transformers: Any, folder: Path) -> tuple[Any, Any]:
    model = load_model_with_transformers(transformers, folder)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder), model
    except Exception as error:
        raise _not_loaded(transformers, folder, error) from error


def load_model_with_transformers(transformers: Any, folder: Path) -> Any:
    """The model in `folder` as `transformers` has it, fp32, from safetensors alone, or `VerificationError`."""
    try:
        # Its fused kernels leave soft caps out without a word; written out, attention is what the settings say.
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", use_safetensors=True
        )
    except Exception as error:
        raise _not_loaded(transformers, folder, error) from error


def _not_loaded(transformers: Any, folder: Path, error: Exception) -> VerificationError:
    """Whatever a foreign library raises, the folder is not what it should be."""
    return VerificationError(
        f"{folder}: transformers {transformers.__version__} cannot load it ({error}); nothing is published"
    )


@torch.inference_mode()
def logit_difference(ours: Decoder, theirs: Any, ids: Sequence[int]) -> float:
    """Largest absolute difference of the two models' logits on one sequence of ids."""
    tokens = torch.tensor([list(ids)])
    return float((ours(tokens) - theirs(tokens).logits).abs().max())


def _manifest(trained: TrainedModel, folder: Path, out: Path, architecture: str, difference: float) -> ModelManifest:
    return ModelManifest(
        name=out.resolve().name,
        stage=StageRef(name="pretrain export", version=1),
        inputs=(input_ref(trained.checkpoint, str(out)),),
        config={"dtype": "float32", "model": trained.model.config.model_dump(mode="json")}
        | ({"weights": "average"} if trained.averaged else {}),
        files=entries_of(folder),
        counts=Counts(tokens=trained.checkpoint.manifest.consumed_tokens),
        tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
        architecture=architecture,
        parameters=num_parameters(trained.model),
        max_logit_difference=difference,
    )


def entries_of(folder: Path) -> tuple[FileEntry, ...]:
    """All files of `folder`, hashed."""
    hashed = [(path.name, *storage.hash_file(str(path))) for path in sorted(folder.iterdir())]
    return tuple(FileEntry(path=name, bytes=num_bytes, sha256=sha256) for name, num_bytes, sha256 in hashed)
