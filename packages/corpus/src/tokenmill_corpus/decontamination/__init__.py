"""Decontamination: documents that hold parts of benchmarks are dropped, or those parts are cut out of them."""

from tokenmill_corpus.decontamination.family import Action, Decontamination
from tokenmill_corpus.decontamination.items import Benchmark

__all__ = ["Action", "Benchmark", "Decontamination"]
