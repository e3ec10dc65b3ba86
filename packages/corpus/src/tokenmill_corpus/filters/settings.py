"""All families, in the order in which they are applied."""

from tokenmill_core.manifest import Frozen
from tokenmill_corpus.decontamination import Decontamination
from tokenmill_corpus.filters.blocklist import Blocklist
from tokenmill_corpus.filters.c4 import C4
from tokenmill_corpus.filters.characters import Characters
from tokenmill_corpus.filters.classifier import Classifier
from tokenmill_corpus.filters.code import Code
from tokenmill_corpus.filters.datatrove import Datatrove
from tokenmill_corpus.filters.family import Family
from tokenmill_corpus.filters.fineweb import FineWeb
from tokenmill_corpus.filters.gopher_quality import GopherQuality
from tokenmill_corpus.filters.gopher_repetition import GopherRepetition
from tokenmill_corpus.filters.language import Language
from tokenmill_corpus.filters.length import Length
from tokenmill_corpus.filters.normalise import Normalise
from tokenmill_corpus.filters.pii import Pii
from tokenmill_corpus.filters.sampling import Sampling
from tokenmill_corpus.filters.stop_words import StopWords


class Filters(Frozen):
    """Families of rules. Each one that is enabled judges what those above it leave."""

    normalise: Normalise = Normalise()
    sampling: Sampling = Sampling()
    blocklist: Blocklist = Blocklist()
    language: Language = Language()
    length: Length = Length()
    gopher_repetition: GopherRepetition = GopherRepetition()
    gopher_quality: GopherQuality = GopherQuality()
    c4: C4 = C4()
    fineweb: FineWeb = FineWeb()
    code: Code = Code()
    characters: Characters = Characters()
    stop_words: StopWords = StopWords()
    classifier: Classifier = Classifier()
    datatrove: Datatrove = Datatrove()
    decontamination: Decontamination = Decontamination()
    pii: Pii = Pii()

    def families(self) -> dict[str, Family]:
        """Those that are enabled, by name, in order."""
        families = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: family for name, family in families.items() if family.enabled}

    def columns_read(self) -> tuple[str, ...]:
        """Columns of the raw data that these look at, beside the text."""
        return tuple(column for family in self.families().values() for column in family.columns_read())
