"""Filling in the middle: parts of documents rearranged, so that a model learns to write what stands between two texts.

    prefix  middle  suffix …      a document's tokens in one sample, cut in three at random
    ──────────────────────────
    <prefix> prefix <suffix> suffix <middle> middle       PSM
    <prefix> <suffix> suffix <middle> prefix middle       SPM

These are the two forms of arXiv:2207.14255 that can be trained jointly, the SPM one its "variant 2". The three marks
take the places of the last three tokens of the suffix, so that a sample keeps its length and documents their places.

What happens to a sample follows from the mixture and its global index alone: neither batches, ranks nor threads matter.
"""

import hashlib
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.manifest import canonical_json
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.compiled import compiled

NO_TOKEN = -1


class FillInTheMiddle:
    """Rearranges the documents in samples of a mixture, each source at its `fim_rate`."""

    def __init__(self, manifest: MixtureManifest) -> None:
        assert manifest.fim is not None
        identity = canonical_json([manifest.shuffle_digest, manifest.seed])
        self._key = hashlib.blake2b(identity, digest_size=32, person=b"tokenmill-fim").digest()
        self._rates = [source.fim_rate for source in manifest.sources]
        self._spm_shares = [source.fim_spm_share for source in manifest.sources]
        self._marks = (manifest.fim.prefix, manifest.fim.suffix, manifest.fim.middle)
        self._edges = (_or_no_token(manifest.beginning_of_document_id), _or_no_token(manifest.end_of_document_id))

    @classmethod
    def of(cls, manifest: MixtureManifest) -> Self | None:
        """What `manifest` asks for; none where no source has a rate."""
        return cls(manifest) if any(source.fim_rate for source in manifest.sources) else None

    def rearrange(
        self,
        tokens: NDArray[np.int64],
        counted: NDArray[np.uint8],
        begins: NDArray[np.int64],
        source: int,
        index: int,
    ) -> None:
        """Rearrange, in place, one sample (n,) of source number `source` with the global sample index `index`.

        `begins` are the places where documents begin, rising. Each document's part of the sample is chosen with the
        probability `fim_rate`, without the special tokens that open and close it; a part of three tokens or fewer is
        left as it is. `counted` (n,) moves with its tokens, and a part's marks count where any of its tokens does.
        """
        if self._rates[source] == 0:
            return
        digest = hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8, key=self._key).digest()
        state = np.uint64(int.from_bytes(digest, "little"))
        rate, spm_share = self._rates[source], self._spm_shares[source]
        _rearrange(tokens, counted, begins, state, rate, spm_share, *self._edges, *self._marks)


def _or_no_token(token: int | None) -> int:
    return NO_TOKEN if token is None else token


@compiled
def _rearrange(
    tokens: NDArray[np.int64],
    counted: NDArray[np.uint8],
    begins: NDArray[np.int64],
    state: np.uint64,
    rate: float,
    spm_share: float,
    opening: int,
    closing: int,
    prefix: int,
    suffix: int,
    middle: int,
) -> None:
    old, old_counted = tokens.copy(), counted.copy()
    draws = np.empty(4, np.uint64)
    for part in range(begins.size + 1):
        first = begins[part - 1] if part else 0
        stop = begins[part] if part < begins.size else tokens.size
        if first < stop and old[first] == opening:
            first += 1
        if first < stop and old[stop - 1] == closing:
            stop -= 1
        end = stop - 3
        if end <= first:
            continue
        for number in range(4):  # SplitMix64
            state += np.uint64(0x9E3779B97F4A7C15)
            mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            draws[number] = mixed ^ (mixed >> np.uint64(31))
        if (draws[0] >> np.uint64(11)) * 2.0**-53 >= rate:
            continue
        spm = (draws[1] >> np.uint64(11)) * 2.0**-53 < spm_share
        places = np.uint64(end - first + 1)
        cut, other = first + np.int64(draws[2] % places), first + np.int64(draws[3] % places)
        cut, other = min(cut, other), max(cut, other)

        suffix_at = first + 1 if spm else cut + 1
        middle_at = suffix_at + 1 + end - other
        text_at = middle_at + 1 if spm else first + 1
        tokens[first], tokens[suffix_at], tokens[middle_at] = prefix, suffix, middle
        tokens[text_at : text_at + cut - first] = old[first:cut]
        tokens[suffix_at + 1 : middle_at] = old[other:end]
        tokens[stop - other + cut : stop] = old[cut:other]
        counts = old_counted[first:stop].max()
        counted[first] = counted[suffix_at] = counted[middle_at] = counts
        counted[text_at : text_at + cut - first] = old_counted[first:cut]
        counted[suffix_at + 1 : middle_at] = old_counted[other:end]
        counted[stop - other + cut : stop] = old_counted[cut:other]
