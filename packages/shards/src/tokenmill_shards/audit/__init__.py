"""Which documents a sample is made of, which samples hold a document, and whether shards hold what they should."""
