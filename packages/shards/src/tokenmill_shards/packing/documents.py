"""`best-fit`: whole documents, drawn chunk by chunk, into as few sequences as they fit in.

    documents ─▶ those longer than a sequence cut into pieces ─▶ best fit ─▶ sequences, in a shuffled order

A document that fits is never cut. A longer one is cut into pieces of L + 1 tokens that share their border token, as
windows do: so every token of it but the first is a label once.
"""

import numpy as np

from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.order.permutation import permute
from tokenmill_shards.packing.best_fit import best_fit
from tokenmill_shards.packing.keys import pack_key
from tokenmill_shards.packing.pieces import Pieces, join, padding_after, ramps


def cut(documents: Pieces, sequence_length: int) -> Pieces:
    """`documents`, those of more than `sequence_length` + 1 tokens in pieces."""
    document, number = ramps(np.maximum(1, -(-(documents.num_tokens - 1) // sequence_length)))
    pieces = documents.take(document)
    first_token = number * sequence_length
    num_tokens = np.minimum(sequence_length + 1, pieces.document_tokens - first_token)
    return pieces._replace(first_token=first_token, num_tokens=num_tokens, physical=pieces.physical + first_token)


def pack_documents(mixture: MixtureManifest, documents: Pieces, sequence_length: int, chunk: int) -> Pieces:
    """The pieces of `documents`, packed and padded.

    Sequences, and the pieces in each, stand in a shuffled order: neither the source nor the length of a document says
    where it is found.
    """
    pieces = cut(documents, sequence_length)
    shuffled = permute(np.arange(len(pieces.source)), len(pieces.source), pack_key(mixture, "pieces", chunk))
    lengths = pieces.num_tokens[shuffled]
    found, count = best_fit(lengths.astype(np.int32), sequence_length + 1)
    sequence = permute(np.arange(count), count, pack_key(mixture, "sequences", chunk))[found]
    padding = padding_after(sequence, lengths, sequence_length + 1)
    sequence = np.append(sequence, padding.sequence)
    order = np.argsort(sequence, kind="stable")
    rows = np.append(shuffled, shuffled.size + np.arange(len(padding.source)))[order]
    return join([pieces, padding]).take(rows)._replace(sequence=sequence[order])
