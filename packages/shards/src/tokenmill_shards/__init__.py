"""Documents to token shards, mixtures and batches: a data order that is a pure function. NumPy, no torch."""

from tokenmill_shards.formats.mmididx import Shard, ShardWriter, dtype_for
from tokenmill_shards.mixture import Located, Mixture, num_windows
from tokenmill_shards.order.permutation import epoch_key, permute
from tokenmill_shards.order.sample_order import SampleOrder
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.samples import SampleReader, Samples
from tokenmill_shards.reading.store import ShardStore, Verify
from tokenmill_shards.reading.stream import TokenStream

__version__ = "0.1.0"

__all__ = [
    "Located",
    "Mixture",
    "MixtureReader",
    "SampleOrder",
    "SampleReader",
    "Samples",
    "Shard",
    "ShardStore",
    "ShardWriter",
    "TokenStream",
    "Verify",
    "dtype_for",
    "epoch_key",
    "num_windows",
    "permute",
]
