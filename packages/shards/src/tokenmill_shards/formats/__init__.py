"""Tokens on disk: MMIDIDX shards, the places of their documents, and what other tools write."""
