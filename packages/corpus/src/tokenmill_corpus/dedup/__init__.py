"""Deduplication: copies, near-duplicates, and which document stays in their place; repeated parts cut out of them."""

from tokenmill_corpus.dedup.cut_phases import cut_phases, cuts
from tokenmill_corpus.dedup.cuts import Cuts, apply_cuts
from tokenmill_corpus.dedup.methods import Method
from tokenmill_corpus.dedup.outcome import RULES, Duplicates, duplicates
from tokenmill_corpus.dedup.phases import dedup_phases
from tokenmill_corpus.dedup.report import dedup_report
from tokenmill_corpus.dedup.settings import DedupSettings
from tokenmill_corpus.dedup.sketch import Sketch, SketchWriter, sketch

__all__ = [
    "RULES",
    "Cuts",
    "DedupSettings",
    "Duplicates",
    "Method",
    "Sketch",
    "SketchWriter",
    "apply_cuts",
    "cut_phases",
    "cuts",
    "dedup_phases",
    "dedup_report",
    "duplicates",
    "sketch",
]
