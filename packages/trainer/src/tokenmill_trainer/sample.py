"""Text from a trained model."""

from tokenmill_core.errors import InputError
from tokenmill_trainer.generation import SampleConfig, generate_ids
from tokenmill_trainer.trained_model import TrainedModel


def generate(trained: TrainedModel, prompt: str, config: SampleConfig) -> str:
    """The continuation of `prompt`, without it. Errors: `InputError` where the prompt is empty."""
    ids = trained.tokenizer.encode(prompt, add_special_tokens=False).ids
    if not ids:
        raise InputError("--prompt: there must be at least one character to go on from")
    new: list[int] = []
    for token in generate_ids(trained.model, ids, trained.sequence_length, config, trained.vocab_size):
        if token == trained.end_of_document_id:
            break
        new.append(token)
    return str(trained.tokenizer.decode(new, skip_special_tokens=False))
