"""Tokenmill's spine: manifests, storage, readers, stages, executors and configuration."""

__version__ = "0.1.0"
