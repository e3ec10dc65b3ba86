"""Models of `transformers`: which architecture has our settings, its names, files, export and import."""

from tokenmill_trainer.hf.importing import load_hf

__all__ = ["load_hf"]
