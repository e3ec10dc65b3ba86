"""Copies by Bloom filter: a document goes if the filter has seen its digest, or by accident seems to have.

A filter of m bits sets k of them for each of n digests; a new one finds all of its k set with probability
(1 − e^(−kn/m))^k (Bloom 1970). m and k are chosen for the rate asked for. Each partition of the keys has a filter that
takes them in the order of the documents, so that neither workers nor the order of tasks change what goes.
"""

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.drops import UNKNOWN, drops_path, save_drops
from tokenmill_corpus.dedup.equal import KeyPartitions
from tokenmill_corpus.dedup.keys import read_partition
from tokenmill_corpus.dedup.order import Order
from tokenmill_corpus.dedup.settings import Bloom


@dataclass(frozen=True)
class BloomKeys(KeyPartitions):
    """A document stays if its partition's filter has not seen its digest."""

    settings: Bloom

    def run(self, task: Task, work: Work) -> Report:
        """Write down which documents of a partition go."""
        order = Order.of(work)
        paths = sorted(self.paths(work, order), key=lambda item: (not order.reference[item[0]], item[0]))
        sizes = np.array([len(read_partition(path, task.index, task.payload["of"])) for _, path in paths], np.int64)
        of_reference = np.array([order.reference[filter_task] for filter_task, _ in paths], np.bool_)
        num_keys, num_references = int(sizes.sum()), int(sizes[of_reference].sum())
        num_bits, num_probes = filter_size(num_keys, self.settings.false_positive_rate)
        bloom = np.zeros(-(-num_bits // 64), np.uint64)
        drops = [np.empty(0, np.int64)]
        for filter_task, path in paths:
            records = read_partition(path, task.index, task.payload["of"])
            records = records[np.argsort(records["index"], kind="stable")]
            seen = _look_and_add(
                records["key"].copy(),
                records["rest"].copy(),
                bloom,
                num_bits,
                num_probes,
                np.uint64(self.settings.seed),
            )
            drops.append(order.starts[filter_task] + records["index"][seen].astype(np.int64))
        dropped = np.concatenate(drops)
        save_drops(drops_path(work, self.method, task.index), dropped, UNKNOWN, float("nan"))
        # Those of `against` are in the filter before all others, and no document that goes is one of them.
        references_dropped = int(order.of_reference(dropped).sum())
        rates = false_positive_rates(num_keys - len(dropped), num_bits, num_probes)
        return Report(
            extra={
                "keys": num_keys - num_references,
                "dropped": len(dropped) - references_dropped,
                "expected_false_positives": rates[num_references - references_dropped :].sum(),
            }
        )


def filter_size(num_keys: int, false_positive_rate: float) -> tuple[int, int]:
    """(bits, bits set for a key) of a filter that has this rate once `num_keys` are in it."""
    num_bits = max(64, math.ceil(-num_keys * math.log(false_positive_rate) / math.log(2) ** 2))
    return num_bits, max(1, round(num_bits / max(1, num_keys) * math.log(2)))


def false_positive_rates(num_keys: int, num_bits: int, num_probes: int) -> NDArray[np.float64]:
    """The rate when 0, 1, … `num_keys` − 1 keys are in the filter."""
    return (1 - np.exp(-num_probes * np.arange(num_keys) / num_bits)) ** num_probes


@numba.njit(cache=True)
def _look_and_add(
    keys: NDArray[np.uint64],
    rests: NDArray[np.uint64],
    bloom: NDArray[np.uint64],
    num_bits: int,
    num_probes: int,
    seed: np.uint64,
) -> NDArray[np.bool_]:
    """Which keys the filter has seen, earlier ones among `keys` included. All of them are in it afterwards."""
    seen = np.ones(len(keys), np.bool_)
    for i in range(len(keys)):
        place, step = mix(keys[i] ^ mix(seed)), mix(rests[i] + mix(seed + np.uint64(1))) | np.uint64(1)
        for _ in range(num_probes):
            bit = place % np.uint64(num_bits)
            word, mask = bit >> np.uint64(6), np.uint64(1) << (bit & np.uint64(63))
            seen[i] &= (bloom[word] & mask) != 0
            bloom[word] |= mask
            place += step
    return seen
