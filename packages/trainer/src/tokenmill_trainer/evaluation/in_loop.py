"""Tasks of lm-evaluation-harness while the model is trained, on the weights as they are laid out.

Collective: with sharded weights every forward needs all ranks, so each rank asks the model the very same. The harness
seeds the generators of Python, NumPy and torch; they are put back, and weights are only read: training does not notice.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from tokenmill_trainer.batches.tokenizer import read_tokenizer, read_tokenizer_settings
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.evaluation.evaluated_model import EvaluatedModel, prefix_id
from tokenmill_trainer.evaluation.prompts import uncompiled
from tokenmill_trainer.evaluation.tasks import figures, run_tasks
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.watching.timing import Phase


class InLoopHarness:
    """The tasks of a run. Made on every rank."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._config = engine, engine.config.harness
        self._evaluated = _evaluated(engine)

    def metrics(self) -> dict[str, Any]:
        """`{"harness": {"task/metric": value}}` on rank 0. Collective."""
        engine, config = self._engine, self._config
        engine.on_phase("evaluation")
        average = nullcontext() if engine.average is None else engine.average.in_place()
        with engine.clock.during(Phase.VALIDATION), average, _generators_kept(), uncompiled():
            results = run_tasks(
                self._evaluated,
                config.tasks,
                tasks_path=config.tasks_folder,
                limit=config.limit,
                num_fewshot=config.num_fewshot,
                batch_size=config.batch_size,
                on_batch=lambda: engine.on_phase("evaluation"),
            )
            release_parameters(engine.model)
        return {"harness": figures(results)}


def _evaluated(engine: Engine) -> EvaluatedModel:
    assert engine.mixture is not None, "a run folder has a mixture"
    assert isinstance(engine.model, Decoder), "a run folder has the settings of its model"
    data = engine.mixture
    tokenizer = Tokenizer.from_buffer(read_tokenizer(data))
    end = data.manifest.end_of_document_id
    return EvaluatedModel(
        model=engine.model,
        tokenizer=tokenizer,
        vocab_size=data.manifest.vocab_size,
        window=engine.config.data.sequence_length,
        end_id=end,
        prefix_id=prefix_id(tokenizer, read_tokenizer_settings(data), end),
        loaded=data,
    )


@contextmanager
def _generators_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
