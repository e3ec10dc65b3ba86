"""The trainer of `tokenizers`, as the check of the compiled one: both learn the same merges."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from tokenmill_tokenizer.files.byte_characters import to_characters
from tokenmill_tokenizer.splits import SplitRule, pre_tokenizer
from tokenmill_tokenizer.training.merging import Merges
from tokenmill_tokenizer.training.symbols import Words


@dataclass(frozen=True)
class ReferenceTrainer:
    """Learns from the texts themselves: `tokenizers` takes no counts."""

    texts: Iterator[list[str]]
    rule: SplitRule
    specials: list[str]
    vocab_size: int
    min_count: int

    def learn(self, words: Words) -> Merges:
        """The merges, and the tokens of each of `words`, which are the pieces of the texts."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizer(self.rule)
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_count,
            special_tokens=self.specials,
            initial_alphabet=sorted(ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(self.texts, trainer)
        model = orjson.loads(tokenizer.to_str())["model"]
        pairs = [[model["vocab"][token] for token in pair] for pair in model["merges"]]
        return Merges(np.array(pairs, np.int32).reshape(-1, 2), _count_tokens(tokenizer.model, words))


def _count_tokens(model: Any, words: Words) -> np.ndarray[Any, np.dtype[np.int64]]:
    data, offsets = words.data.tobytes(), words.offsets.tolist()
    spelled = (to_characters(data[first:last]) for first, last in itertools.pairwise(offsets))
    return np.fromiter((len(model.tokenize(word)) for word in spelled), np.int64, len(words.counts))
