"""The ways in which duplicates are found, in the order they are applied in: each sees what the ones before left."""

from enum import StrEnum

from tokenmill_corpus.dedup.settings import DedupSettings, Exact


class Method(StrEnum):
    """A way to find duplicates. Its value names the rule in the ledger, and its phase."""

    EXACT = "exact_duplicate"
    NORMALISED = "normalised_duplicate"
    BLOOM = "bloom_duplicate"
    URL = "url_duplicate"
    NEAR = "near_duplicate"


def methods(settings: DedupSettings) -> tuple[Method, ...]:
    """The methods that `settings` ask for."""
    copies = settings.exact is not Exact.NONE and not settings.bloom.enabled
    wanted = {
        Method.EXACT: copies,
        Method.NORMALISED: copies and settings.exact is Exact.NORMALISED,
        Method.BLOOM: settings.bloom.enabled,
        Method.URL: settings.url,
        Method.NEAR: settings.minhash.enabled,
    }
    return tuple(method for method, is_wanted in wanted.items() if is_wanted)
