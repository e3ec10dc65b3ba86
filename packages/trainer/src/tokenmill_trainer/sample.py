"""Text from a trained model."""

from tokenmill_core.errors import InputError
from tokenmill_trainer.evaluation.evaluated_model import EvaluatedModel
from tokenmill_trainer.generation import SampleConfig, generate_ids


def generate(evaluated: EvaluatedModel, prompt: str, config: SampleConfig) -> str:
    """The continuation of `prompt`, without it. Errors: `InputError` where the prompt is empty."""
    ids = evaluated.tokenizer.encode(prompt, add_special_tokens=False).ids
    if not ids:
        raise InputError("--prompt: there must be at least one character to go on from")
    new: list[int] = []
    for token in generate_ids(evaluated.model, ids, evaluated.window, config, evaluated.vocab_size):
        if token == evaluated.end_id:
            break
        new.append(token)
    return str(evaluated.tokenizer.decode(new, skip_special_tokens=False))
