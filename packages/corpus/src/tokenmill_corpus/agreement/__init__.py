"""How often native rules and datatrove's filters decide alike."""

from tokenmill_corpus.agreement.report import Report, Row, agreement

__all__ = ["Report", "Row", "agreement"]
