"""The `train-tokenizer` stage: documents ─▶ byte-level BPE ─▶ `tokenizer.json`.

Ties between pairs of equal count go to the pair with the smaller ids, as in `tokenizers`: the result depends neither on
the order of the documents nor on threads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, model_validator
from tokenizers import Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import (
    TOKENIZER_NAME,
    Counts,
    DocumentsManifest,
    FileEntry,
    Frozen,
    ManifestBase,
    TokenizerManifest,
)
from tokenmill_core.readers import ReadOptions
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import plan_inputs, read_inputs
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, resolve_inputs
from tokenmill_core.storage import HashingWriter
from tokenmill_tokenizer.splits import Split, is_mergeable, pre_tokenizer

NUM_BYTES = 256
"""Every byte is a token, so no text is unknown."""


class TrainTokenizerConfig(Frozen):
    """Settings of `prep train-tokenizer`."""

    vocab_size: int = Field(gt=NUM_BYTES, le=1 << 24)
    """Number of ids wanted, bytes and special tokens included."""
    split: Split = Split.CL100K
    """How text is cut before merging: `gpt2` or `cl100k`."""
    end_of_document: str = "<|endoftext|>"
    """Special token that closes a document; it gets id 0."""
    special_tokens: tuple[str, ...] = ()
    """Further special tokens, which get the ids after it."""
    min_frequency: int = Field(default=2, ge=1)
    """Fewest times a pair must occur to be merged."""
    reader: ReadOptions = ReadOptions()

    @model_validator(mode="after")
    def _room_for_specials(self) -> "TrainTokenizerConfig":
        specials = self.specials()
        if len(set(specials)) < len(specials) or "" in specials:
            raise ValueError(f"special_tokens: {specials} must be distinct and not empty")
        if self.vocab_size < NUM_BYTES + len(specials):
            raise ValueError(
                f"vocab_size: {self.vocab_size} is less than 256 bytes and {len(specials)} special tokens; "
                f"ask for at least {NUM_BYTES + len(specials)}"
            )
        return self

    @model_validator(mode="after")
    def _specials_are_no_text(self) -> "TrainTokenizerConfig":
        for token in self.specials():
            if is_mergeable(token, self.split):
                raise ValueError(
                    f"special token {token!r} is one piece to the {self.split} split, so the same word in a text could "
                    f"not be told from it; use one that is cut, such as <|{token.strip('<|>') or 'name'}|>"
                )
        return self

    def specials(self) -> list[str]:
        """All special tokens in the order of their ids."""
        return [self.end_of_document, *self.special_tokens]


@dataclass(frozen=True)
class TrainTokenizerStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "train-tokenizer"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-tokenizer", "tokenizers")

    config: TrainTokenizerConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        """One pass: `tokenizers` counts words and merges with threads of its own."""
        return (Phase("train", self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """One task over everything."""
        return [Task(index=0, payload={}, weight=sum(p.bytes for p in plan_inputs(self.inputs, self.config.reader)))]

    def run(self, task: Task, work: Work) -> Report:
        """Train and write `tokenizer.json`."""
        with keeping_rejects(work, "train", task.index) as account:
            tokenizer = train(self._texts(account), self.config)
        if not account.documents:
            raise InputError("no documents to train on; check the inputs and --text-field")
        content = tokenizer.to_str(pretty=True).encode("utf-8")
        with HashingWriter(work.path("train", TOKENIZER_NAME)) as writer:
            writer.write(content)
        file = FileEntry(path=TOKENIZER_NAME, bytes=writer.bytes, sha256=writer.sha256)
        dropped = [sum(getattr(row, unit) for row in account.ledger()) for unit in ("documents", "bytes")]
        counts = Counts(
            input_documents=account.documents,
            input_bytes=account.bytes,
            documents=account.documents - dropped[0],
            bytes=account.bytes - dropped[1],
        )
        extra = {"vocab_size": tokenizer.get_vocab_size(with_added_tokens=True)}
        return Report(files=(file,), counts=counts, ledger=tuple(account.ledger()), notes=account.notes, extra=extra)

    def _texts(self, account: Account) -> Iterator[list[str]]:
        for batch in read_inputs(self.inputs, self.config.reader, account):
            yield batch.column("text").to_pylist()

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokenizer manifest, with the size that came out."""
        return TokenizerManifest(
            **common,
            vocab_size=work.reports("train")[0].extra["vocab_size"],
            special_tokens={token: index for index, token in enumerate(self.config.specials())},
            end_of_document=self.config.end_of_document,
        )


def train(texts: Iterator[list[str]], config: TrainTokenizerConfig) -> Tokenizer:
    """A byte-level BPE tokenizer trained on batches of texts. It may come out smaller when there are too few pairs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(config.split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=config.specials(),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(config: TrainTokenizerConfig, inputs: Sequence[str], name: str | None) -> TrainTokenizerStage:
    """The stage for INPUT arguments."""
    resolved = resolve_inputs(inputs, DocumentsManifest, format=config.reader.format)
    return TrainTokenizerStage(config=config, inputs=resolved, dataset_name=name or resolved.default_name())


STAGE = StageType(config=TrainTokenizerConfig, build=build)
