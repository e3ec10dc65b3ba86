"""Samples out of shards: streams of documents, windows, masks, a cache for remote files."""
