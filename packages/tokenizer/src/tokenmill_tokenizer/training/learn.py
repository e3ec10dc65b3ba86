"""The last step of training: counted words ─▶ merges ─▶ the files of a tokenizer dataset."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Compression
from tokenmill_core.progress import ProgressBar
from tokenmill_core.stage import Report
from tokenmill_tokenizer.files.byte_characters import to_characters
from tokenmill_tokenizer.training import WordTable, learn_merges
from tokenmill_tokenizer.training.reference import ReferenceTrainer
from tokenmill_tokenizer.training.word_files import read_words, word_files


@dataclass(frozen=True)
class Counted:
    """What a counting task found."""

    report: Report
    files: Sequence[Path]
    """Of its words."""

    @property
    def source(self) -> str:
        """Name of the source that its documents belong to."""
        return str(self.report.extra["source"])


@dataclass(frozen=True)
class Vocabulary:
    """What was learnt."""

    tokens: Sequence[str]
    """All tokens as a tokenizer.json spells them, in the order of their ids."""
    merges: Sequence[tuple[str, str]]
    compression: tuple[Compression, ...]


def find_counted(reports: Sequence[Report], folder: Path) -> list[Counted]:
    """The counting tasks whose reports these are.

    Errors: `InputError` where they counted no document.
    """
    if not sum(report.counts.documents for report in reports):
        raise InputError("no documents to train on; check the inputs and --text-field")
    return [Counted(report, word_files(folder, index)) for index, report in enumerate(reports)]


def learn_vocabulary(
    counted: Sequence[Counted],
    specials: Sequence[str],
    vocab_size: int,
    min_count: int,
    reference: ReferenceTrainer | None = None,
) -> Vocabulary:
    """Learn up to `vocab_size` tokens, special ones and bytes included; with `reference`, what that learns."""
    table, num_merges = WordTable(), vocab_size - len(specials) - 256
    starts = [table.add_words(read_words(file)) for file in _files(counted)]
    words, ids = table.words(), byte_ids(len(specials))
    places = [np.searchsorted(words.offsets, of_file).astype(np.int32) for of_file in starts]
    # Merging takes as much memory again.
    table.clear()
    starts.clear()
    if reference is None:
        with ProgressBar("merging", num_merges) as bar:
            pairs, word_tokens = learn_merges(words, ids, num_merges, min_count, bar.advance)
    else:
        pairs, word_tokens = reference.learn(words)
    tokens = [*specials, *sorted(to_characters(bytes([byte])) for byte in range(256))]
    merges = []
    for left, right in pairs.tolist():
        merges.append((tokens[left], tokens[right]))
        tokens.append(tokens[left] + tokens[right])
        if tokens[-1] in specials:
            raise InputError(
                f"special token {tokens[-1]!r} is what text of the sample merges to, so the two could not be told "
                "apart; use one that no word has in it, such as <|name|>"
            )
    return Vocabulary(tokens, merges, _compression(counted, places, word_tokens))


def byte_ids(first_id: int) -> NDArray[np.int32]:
    """Id of each byte where `first_id` special tokens come before: by the characters that stand for bytes."""
    spelled = [to_characters(bytes([byte])) for byte in range(256)]
    rank = {character: first_id + place for place, character in enumerate(sorted(spelled))}
    return np.array([rank[character] for character in spelled], np.int32)


def _files(counted: Sequence[Counted]) -> Iterator[Path]:
    for task in counted:
        yield from task.files


def _compression(
    counted: Sequence[Counted], places: Sequence[NDArray[np.int32]], word_tokens: NDArray[np.int64]
) -> tuple[Compression, ...]:
    """A row a source. `places` says of each word file which words it has."""
    tokens: dict[str, int] = {}
    place = iter(places)
    for task in counted:
        for file in task.files:
            found = int(word_tokens[next(place)] @ read_words(file).counts)
            tokens[task.source] = tokens.get(task.source, 0) + found
    return tuple(Compression(source=source, **_sums(counted, source), tokens=total) for source, total in tokens.items())


def _sums(counted: Sequence[Counted], source: str) -> Mapping[str, int]:
    counts = [task.report.counts for task in counted if task.source == source]
    return {"documents": sum(c.documents for c in counts), "bytes": sum(c.bytes for c in counts)}
