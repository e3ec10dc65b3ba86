"""The report on a tokenizer: how it does on texts, and what its vocabulary holds."""

from tokenmill_tokenizer.report.build import build_report
from tokenmill_tokenizer.report.result import Measure, Report, SourceText, Suspicion, Token, VocabularyReport
from tokenmill_tokenizer.report.table import print_report

__all__ = [
    "Measure",
    "Report",
    "SourceText",
    "Suspicion",
    "Token",
    "VocabularyReport",
    "build_report",
    "print_report",
]
