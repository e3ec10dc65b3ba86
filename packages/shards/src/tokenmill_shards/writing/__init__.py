"""Documents to token shards: `prep tokenize` and `prep merge`."""
