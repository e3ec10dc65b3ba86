"""Our decoder as lm-evaluation-harness sees a model, with the window rules of its own Hugging Face adapter.

    context, continuation ─ ids ─▶ [... context | continuation], the last `window` + 1 ids of them
                                   model reads all but the last, is asked for those of the continuation

Requests are sorted by length and read in batches, padded on the right, where a causal model does not look. Texts are
generated one at a time, each token at the cost of one position.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer.evaluation.evaluated_model import EvaluatedModel
from tokenmill_trainer.generation import SampleConfig, generate_ids

MAX_NEW_TOKENS = 256
"""What the harness generates where a task does not say."""
NUM_TOKENS_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
KNOWN = {*NUM_TOKENS_NAMES, "until", "do_sample", "temperature", "top_k"}
IGNORED = {"num_beams": 1, "top_p": 1.0}
"""Settings of generation that say nothing at these values."""

Scored = tuple[float, bool]
"""Sum of the log-probabilities of a continuation, nats, and whether each of its ids is the likeliest."""


class HarnessModel(TemplateLM):  # type: ignore[misc]
    """One process's adapter of `evaluated`; `batch_size` rows at once. `on_batch` is called before each forward."""

    def __init__(self, evaluated: EvaluatedModel, batch_size: int, on_batch: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._evaluated, self._rows, self._on_batch = evaluated, batch_size, on_batch

    @property
    def eot_token_id(self) -> int:
        """The id that ends a text."""
        if self._evaluated.end_id is None:
            raise InputError("this model's training data has no end of documents, which the harness asks for")
        return self._evaluated.end_id

    @property
    def prefix_token_id(self) -> int:
        """The id that a text without context begins after."""
        prefix = self._evaluated.prefix_id
        return self.eot_token_id if prefix is None else prefix

    @property
    def tokenizer_name(self) -> str:
        """By which the harness would keep requests."""
        return str(self._evaluated.loaded.manifest.digest)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text; if not said, with the special tokens that its tokenizer puts around texts, if it does."""
        encoding = self._evaluated.tokenizer.encode(string, add_special_tokens=add_special_tokens is not False)
        return list(encoding.ids)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-probability of each whole text, in windows that do not overlap, each after one id of context."""
        windows: list[tuple[int, list[int], list[int]]] = []
        for number, request in enumerate(requests):
            parts = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self._evaluated.window,
                context_len=1,
            )
            windows += [(number, *make_disjoint_window(part)) for part in parts]
        totals = [0.0] * len(requests)
        scored = self._score([(context, continuation) for _, context, continuation in windows])
        for (number, _, _), (log_probability, _) in zip(windows, scored, strict=True):
            totals[number] += log_probability
        return totals

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[Scored]:
        return self._score([(context, continuation) for _, context, continuation in requests])

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Scored]:
        order = sorted(range(len(pairs)), key=lambda number: -len(pairs[number][0]) - len(pairs[number][1]))
        results: dict[int, Scored] = {}
        for first in range(0, len(order), self._rows):
            numbers = order[first : first + self._rows]
            results |= dict(zip(numbers, self._score_batch([pairs[number] for number in numbers]), strict=True))
        return [results[number] for number in range(len(pairs))]

    # Not inference mode: what FSDP gathers in it could not be trained with afterwards.
    @torch.no_grad()
    def _score_batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Scored]:
        self._on_batch()
        model, window = self._evaluated.model, self._evaluated.window
        longest = max(len(continuation) for _, continuation in pairs)
        if longest > window:
            raise InputError(f"a continuation has {longest} tokens, but the model reads {window} at most")
        rows = [(context + continuation)[-(window + 1) :] for context, continuation in pairs]
        tokens_BL = pad_sequence([torch.tensor(row[:-1]) for row in rows], batch_first=True)

        def score(features_BLD: Tensor) -> Tensor:
            """(B, 2) fp64; a head, since sharded weights are whole only while `forward` runs."""
            scores = []
            for features_LD, row, (_, continuation) in zip(features_BLD, rows, pairs, strict=True):
                logits_NV = model.logits(features_LD[len(row) - 1 - len(continuation) : len(row) - 1])
                scores.append(_log_probability(logits_NV.float().cpu(), torch.tensor(continuation)))
            return torch.tensor(scores, dtype=torch.float64)

        scored_B2 = model(tokens_BL.to(model.embed_tokens.weight.device), head=score)
        return [(log_probability, bool(is_likeliest)) for log_probability, is_likeliest in scored_B2.tolist()]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """How the model goes on from each context, up to the first of the task's stop texts."""
        return [self._generate(*request.args) for request in requests]

    def _generate(self, context: str, settings: dict[str, Any]) -> str:
        tokenizer, window = self._evaluated.tokenizer, self._evaluated.window
        config = _sample_config(settings)
        room = window - config.num_tokens
        if room <= 0:
            raise ConfigError(
                f"the task generates {config.num_tokens} tokens, but the model reads {window} in all; "
                "set max_gen_toks in the task's generation_kwargs to less"
            )
        stops = settings.get("until", [])
        stops = [stop for stop in ([stops] if isinstance(stops, str) else stops) if stop]
        new: list[int] = []
        prompt = self.tok_encode(context)[-room:] or [self.prefix_token_id]
        self._on_batch()
        for token in generate_ids(self._evaluated.model, prompt, window, config, self._evaluated.vocab_size):
            if token == self._evaluated.end_id:
                break
            new.append(token)
            text = str(tokenizer.decode(new))
            if any(stop in text for stop in stops):
                break
        text = str(tokenizer.decode(new))
        for stop in stops:
            text = text.split(stop)[0]
        return text


def _log_probability(logits_NV: Tensor, ids_N: Tensor) -> Scored:
    """Over all rows of the head, as in training and as `transformers` does."""
    chosen = logits_NV.log_softmax(-1).gather(1, ids_N[:, None])
    return float(chosen.sum()), bool((logits_NV.argmax(-1) == ids_N).all())


def _sample_config(settings: dict[str, Any]) -> SampleConfig:
    """The harness's `generation_kwargs` as ours; `ConfigError` for those we do not have."""
    unknown = sorted(k for k, v in settings.items() if k not in KNOWN and (k not in IGNORED or IGNORED[k] != v))
    if unknown:
        raise ConfigError(
            f"generation_kwargs: {', '.join(unknown)} cannot be had here; known: {', '.join(sorted(KNOWN))}"
        )
    tokens = next((settings[name] for name in NUM_TOKENS_NAMES if settings.get(name)), MAX_NEW_TOKENS)
    temperature = float(settings.get("temperature", 0.0))
    is_greedy = not settings.get("do_sample", temperature > 0)
    return SampleConfig(
        num_tokens=int(tokens), temperature=0.0 if is_greedy else temperature, top_k=int(settings.get("top_k", 0))
    )
