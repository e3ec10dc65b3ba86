"""PII: e-mail and IP addresses, phone and card numbers, and secrets, replaced by placeholders or a reason to drop."""

from tokenmill_corpus.filters.pii.pii import Action, IpScope, Pii, Placeholders

__all__ = ["Action", "IpScope", "Pii", "Placeholders"]
