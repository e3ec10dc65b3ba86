"""Settings of `prep clean`."""

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from tokenmill_core.config import merge
from tokenmill_core.manifest import Frozen
from tokenmill_core.readers import ReadOptions
from tokenmill_corpus.dedup import DedupSettings
from tokenmill_corpus.filters.settings import Filters
from tokenmill_corpus.profiles import PROFILES, Profile


class Ledger(StrEnum):
    """How much is written down about the dropped."""

    TOTALS = "totals"
    FULL = "full"


class CleanConfig(Frozen):
    """Settings of `prep clean`. A profile gives the settings of `filter` and `dedup` that are not given here."""

    profile: Profile = Profile.NATIVE
    """Which set of rules to start from."""
    reader: ReadOptions = ReadOptions()
    filter: Filters = Filters()
    dedup: DedupSettings = DedupSettings()
    against: tuple[str, ...] = ()
    """INPUT arguments whose documents are taken out of the others: they win every time, and are not written."""
    scores: bool = False
    """Write the score of every rule as a column, `<family>.<score>`."""
    ledger: Ledger = Ledger.TOTALS
    """`full`: also a row for each dropped document, in `dropped-NNNNN.parquet`; `totals`: what each rule dropped."""
    compression_level: int = Field(default=3, ge=1, le=22)
    """zstd level of the Parquet files."""

    @model_validator(mode="before")
    @classmethod
    def _on_top_of_profile(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        profile = values.get("profile", Profile.NATIVE)
        preset = PROFILES.get(profile, {}) if isinstance(profile, str) else {}
        return merge(preset, _switched_on(values))

    def read_options(self) -> ReadOptions:
        """How documents are read: with the columns that rules and dedup look at."""
        return self.reader.model_copy(
            update={"carry": tuple(dict.fromkeys((*self.reader.carry, *self.columns_read())))}
        )

    def columns_read(self) -> tuple[str, ...]:
        """Columns of the raw data that rules and dedup look at, beside the text."""
        return (*self.filter.columns_read(), *self.dedup.columns_read())


def _switched_on(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with what they set switched on, unless they say otherwise: who sets a threshold wants it to count."""
    return values | {
        name: {key: _enabled(model, key, value) for key, value in values[name].items()}
        for name, model in (("filter", Filters), ("dedup", DedupSettings))
        if isinstance(values.get(name), dict)
    }


def _enabled(model: type[Frozen], key: str, value: Any) -> Any:
    section = model.model_fields[key].annotation if key in model.model_fields else None
    if isinstance(value, dict) and value and "enabled" in getattr(section, "model_fields", {}):
        return {"enabled": True} | value
    return value
