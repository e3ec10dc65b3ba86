"""Plain statistics of a mixture, as yardsticks for a model's loss."""

import numpy as np

from tokenmill_core.errors import InputError
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader

SAMPLES_READ = 1024


def unigram_entropy(reader: MixtureReader | PackedReader, num_samples: int = SAMPLES_READ) -> float:
    """Entropy in nats of the labels that count in the first `num_samples` training samples.

    It is the loss of the best model that ignores all context: one that has learned anything lies below.
    """
    if num_samples < 1:
        raise InputError(f"num_samples must be at least 1, got {num_samples}")
    if reader.num_samples is not None:
        num_samples = min(num_samples, reader.num_samples)
    counts = np.zeros(reader.manifest.vocab_size, np.int64)
    for start in range(0, num_samples, 64):
        samples = reader.samples(np.arange(start, min(start + 64, num_samples)))
        labels = samples.tokens[:, 1:]
        counts += np.bincount(
            labels.ravel() if samples.counted is None else labels[samples.counted], minlength=counts.size
        )
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
