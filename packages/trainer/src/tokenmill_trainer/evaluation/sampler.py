"""Samples from the prompts of a run: ids once at the start, text each time."""

from contextlib import nullcontext
from functools import partial

from tokenizers import Tokenizer

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_trainer.batches.tokenizer import read_tokenizer
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.evaluation.prompts import SamplesConfig, continue_prompts, read_prompts
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.trackers import SampledText


class Sampler:
    """The prompts of a run that has begun in folder `run`. Made on every rank.

    Errors: `ConfigError` on every rank where there is no prompt, or one of which the tokenizer makes nothing.
    """

    def __init__(self, engine: Engine, run: RunFolder) -> None:
        self._engine = engine
        self._tokenizer: Tokenizer | None = None
        self._prompts, self._ids = engine.world.on_main(partial(self._read, run))

    @property
    def weights(self) -> str:
        """Which weights write: the average of them where the run keeps one."""
        return "training" if self._engine.average is None else "average"

    def texts(self) -> list[SampledText]:
        """How the model goes on from each prompt; on ranks other than 0 nothing. Collective."""
        engine = self._engine
        assert engine.reader is not None, "a run folder has a mixture"
        assert isinstance(engine.model, Decoder), "a run folder has the settings of its model"
        with nullcontext() if engine.average is None else engine.average.in_place():
            new = continue_prompts(
                engine.model,
                engine.world,
                self._ids,
                engine.config.samples,
                window=engine.config.data.sequence_length,
                vocab_size=engine.reader.manifest.vocab_size,
            )
        if self._tokenizer is None:
            return []
        return [SampledText(prompt, self._text(ids)) for prompt, ids in zip(self._prompts, new, strict=True)]

    def _text(self, ids: list[int]) -> str:
        assert self._engine.mixture is not None, "a run folder has a mixture"
        assert self._tokenizer is not None, "rank 0 alone writes"
        end = self._engine.mixture.manifest.end_of_document_id
        until = ids.index(end) if end in ids else len(ids)
        return str(self._tokenizer.decode(ids[:until], skip_special_tokens=False))

    def _read(self, run: RunFolder) -> tuple[list[str], list[list[int]]]:
        self._tokenizer = Tokenizer.from_file(str(run.tokenizer_file))
        return _prompts_and_ids(self._engine.config.samples, self._tokenizer)


def check_prompts(config: SamplesConfig, mixture: LoadedManifest[SamplesManifest]) -> None:
    """The prompts of the settings can be gone on from, or `ConfigError` as of `Sampler`."""
    _prompts_and_ids(config, Tokenizer.from_buffer(read_tokenizer(mixture)))


def _prompts_and_ids(config: SamplesConfig, tokenizer: Tokenizer) -> tuple[list[str], list[list[int]]]:
    prompts = read_prompts(config)
    ids = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
    if [] in ids:
        raise ConfigError(f"samples.prompts: the tokenizer makes nothing of {prompts[ids.index([])]!r}; change it")
    return prompts, ids
