"""Checkpoints: what is captured, how it is written, which of them count."""
