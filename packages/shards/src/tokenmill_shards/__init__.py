"""Documents to token shards, mixtures and batches: a data order that is a pure function. NumPy, no torch."""

from tokenmill_shards.formats.mmididx import Shard, ShardWriter, dtype_for
from tokenmill_shards.order.permutation import epoch_key, permute
from tokenmill_shards.order.sample_order import SampleOrder
from tokenmill_shards.reading.source import DocumentPlace, TokenSource, Verify
from tokenmill_shards.reading.windows import Located, MixtureReader, num_windows

__version__ = "0.1.0"

__all__ = [
    "DocumentPlace",
    "Located",
    "MixtureReader",
    "SampleOrder",
    "Shard",
    "ShardWriter",
    "TokenSource",
    "Verify",
    "dtype_for",
    "epoch_key",
    "num_windows",
    "permute",
]
