"""Keys of the permutations that packing draws by."""

import hashlib

from tokenmill_core.manifest import canonical_json
from tokenmill_core.mixture_manifest import MixtureManifest


def pack_key(mixture: MixtureManifest, *what: str | int) -> bytes:
    """The key of the permutation of `what` for sequences made of `mixture`: 32 bytes."""
    content = canonical_json([mixture.shuffle_digest, mixture.seed, *what])
    return hashlib.blake2b(content, digest_size=32, person=b"tokenmill-pack").digest()
