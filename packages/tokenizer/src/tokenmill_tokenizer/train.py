"""The `train-tokenizer` stage: documents ─▶ byte-level BPE ─▶ `tokenizer.json`.

    measure  bytes of text in each bucket of the sample's hash, where only a sample is wanted
    count    documents of the sample ─▶ pieces ─▶ how often each occurs
    learn    the counts of all tasks ─▶ merges ─▶ tokenizer.json and what other libraries read

Ties between pairs of equal count go to the pair with the smaller left id, then the smaller right one, as in
`tokenizers`: the result depends neither on the order of the documents nor on the number of workers.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import decoders

from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Compression, Counts, ManifestBase, TokenizerManifest
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import document_tasks, read_task
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, shared_name, sum_reports
from tokenmill_tokenizer.files.dataset_files import dataset_files, write_file
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile, added_token, bpe_document
from tokenmill_tokenizer.splits import pre_tokenizer
from tokenmill_tokenizer.train_config import Trainer, TrainTokenizerConfig, WeightedTrainTokenizerConfig
from tokenmill_tokenizer.training import WordCounter
from tokenmill_tokenizer.training.learn import Vocabulary, find_counted, learn_vocabulary
from tokenmill_tokenizer.training.reference import ReferenceTrainer
from tokenmill_tokenizer.training.sampling import NUM_BUCKETS, buckets_of, choose_buckets
from tokenmill_tokenizer.training.sources import TrainingSource, find_sources, join_inputs, share_out

_LOG = logging.getLogger("tokenmill")

LEAST_FILLED = 0.99
"""A source that fills less of its share is named."""


@dataclass(frozen=True)
class TrainTokenizerStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "train-tokenizer"
    version: ClassVar[int] = 2
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-tokenizer", "tokenizers", "numba")

    config: WeightedTrainTokenizerConfig
    inputs: Inputs
    dataset_name: str
    sources: tuple[TrainingSource, ...]

    @property
    def samples(self) -> bool:
        """Whether only a part of the documents may be wanted."""
        return self.config.sample_bytes is not None or bool(self.config.weights)

    def phases(self) -> Sequence[Phase]:
        """Two passes over the documents, or one where all are wanted, and one over the counts."""
        measure = (Phase("measure", self.plan, self.measure),) if self.samples else ()
        return (
            *measure,
            Phase("count", self.plan_count, self.count),
            Phase("learn", self.plan_learn, self.learn, alone=True),
        )

    def plan(self, work: Work) -> list[Task]:
        """Tasks of documents, each of one source."""
        found = [
            (number, task)
            for number, source in enumerate(self.sources)
            for task in document_tasks(source.inputs, self.config.reader)
        ]
        return [
            Task(index=index, payload={**task.payload, "source": number}, weight=task.weight)
            for index, (number, task) in enumerate(found)
        ]

    def measure(self, task: Task, work: Work) -> Report:
        """Bytes of text in each bucket."""
        sizes = np.zeros(NUM_BUCKETS, np.int64)
        for batch in read_task(task, self.config.reader, Account()):
            text = text_buffers(batch)
            sizes += _sum_by_bucket(buckets_of(text, self.config.seed), text.num_bytes)
        np.save(work.path("measure", f"bytes-{task.index:06d}.npy"), sizes, allow_pickle=False)
        return Report()

    def plan_count(self, work: Work) -> list[Task]:
        """The same tasks. What each source gives to the sample is decided first."""
        tasks = self.plan(work)
        if self.samples:
            self._choose_sample(work, tasks)
        return tasks

    def _choose_sample(self, work: Work, tasks: Sequence[Task]) -> None:
        """Write down which buckets of each source are in the sample."""
        in_bucket = [np.zeros(NUM_BUCKETS, np.int64) for _ in self.sources]
        for task in tasks:
            path = work.path("measure", f"bytes-{task.index:06d}.npy")
            in_bucket[task.payload["source"]] += np.load(path, allow_pickle=False)
        sizes = {source.name: int(sums.sum()) for source, sums in zip(self.sources, in_bucket, strict=True)}
        weights = {source.name: source.weight for source in self.sources}
        shares = share_out(sizes, weights, self.config.sample_bytes)
        for number, (name, share) in enumerate(shares.items()):
            taken = choose_buckets(in_bucket[number], share)
            _check_share(name, share, int(in_bucket[number][taken].sum()))
            np.save(work.path("measure", f"taken-{number}.npy"), taken, allow_pickle=False)

    def _taken(self, work: Work, source: int) -> NDArray[np.bool_] | None:
        """Which buckets of a source are in the sample; none where all documents are."""
        path = work.path("measure", f"taken-{source}.npy")
        return np.load(path, allow_pickle=False) if self.samples else None

    def count(self, task: Task, work: Work) -> Report:
        """Count the pieces of a task's documents."""
        counter = WordCounter(self.config.rule, work.folder / "count", task.index)
        taken = self._taken(work, task.payload["source"])
        kept_documents = kept_bytes = 0
        with keeping_rejects(work, "count", task.index) as account:
            for batch in read_task(task, self.config.reader, account):
                sampled = self._sampled(batch, taken, account)
                text = text_buffers(sampled)
                counter.add(text)
                kept_documents += len(text)
                kept_bytes += int(text.num_bytes.sum())
        counter.close()
        counts = Counts(
            input_documents=account.documents,
            input_bytes=account.bytes,
            documents=kept_documents,
            bytes=kept_bytes,
        )
        return Report(
            counts=counts,
            ledger=tuple(account.ledger()),
            notes=account.notes,
            extra={"source": self.sources[task.payload["source"]].name},
        )

    def _sampled(self, batch: pa.RecordBatch, taken: NDArray[np.bool_] | None, account: Account) -> pa.RecordBatch:
        if taken is None:
            return batch
        text = text_buffers(batch)
        keep = taken[buckets_of(text, self.config.seed)]
        account.drop("not_sampled", int((~keep).sum()), int(text.num_bytes[~keep].sum()))
        return batch.filter(pa.array(keep))

    def plan_learn(self, work: Work) -> list[Task]:
        """One task over all counts."""
        return [Task(index=0, payload={})]

    def learn(self, task: Task, work: Work) -> Report:
        """Learn the merges and write the tokenizer's files."""
        config = self.config
        counted = find_counted(work.reports("count"), work.folder / "count")
        reference = self._reference(work) if config.trainer is Trainer.TOKENIZERS else None
        learnt = learn_vocabulary(counted, config.specials(), config.vocab_size, config.min_frequency, reference)
        vocab_size = len(learnt.tokens)
        if vocab_size < config.vocab_size:
            _LOG.warning(
                "vocab_size: %s asked for, %s found: no further pair occurs %s times in the sample; "
                "train on more text for more",
                f"{config.vocab_size:,}",
                f"{vocab_size:,}",
                config.min_frequency,
            )
        files, notes = dataset_files(self._finished(learnt), config.specials())
        compression = [row.model_dump() for row in learnt.compression]
        return Report(
            files=tuple(write_file(work.path("learn", name), content) for name, content in files.items()),
            notes=notes,
            extra={"vocab_size": vocab_size, "compression": compression},
        )

    def _finished(self, learnt: Vocabulary) -> TokenizerFile:
        config = self.config
        document = bpe_document(
            {token: index for index, token in enumerate(learnt.tokens)},
            learnt.merges,
            [added_token(token, index, special=True) for index, token in enumerate(config.specials())],
            pre_tokenizer=pre_tokenizer(config.rule),
            decoder=decoders.ByteLevel(),
        )
        return TokenizerFile(
            document, config.end_of_document, config.beginning_of_document, config.padding, config.chat_template
        )

    def _reference(self, work: Work) -> ReferenceTrainer:
        config = self.config
        return ReferenceTrainer(
            self._texts(work), config.rule, config.specials(), config.vocab_size, config.min_frequency
        )

    def _texts(self, work: Work) -> Iterator[list[str]]:
        """The documents of the sample, once more."""
        for task in self.plan(work):
            taken = self._taken(work, task.payload["source"])
            for batch in read_task(task, self.config.reader, Account()):
                yield self._sampled(batch, taken, Account()).column("text").to_pylist()

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokenizer manifest, with the size that came out."""
        counted, learnt = sum_reports(work.reports("count")), work.reports("learn")[0].extra
        multiple = self.config.pad_to_multiple
        return TokenizerManifest(
            **common | {"counts": counted.counts, "ledger": counted.ledger},
            vocab_size=learnt["vocab_size"],
            padded_vocab_size=-(-learnt["vocab_size"] // multiple) * multiple,
            special_tokens={token: index for index, token in enumerate(self.config.specials())},
            end_of_document=self.config.end_of_document,
            beginning_of_document=self.config.beginning_of_document,
            padding=self.config.padding,
            compression=tuple(Compression(**row) for row in learnt["compression"]),
        )


def _check_share(name: str, share: int, taken: int) -> None:
    """Say where a source falls short of its share, and refuse where it gives nothing."""
    if not taken:
        raise InputError(
            f"source {name!r}: none of its documents fits into its share of the sample, {share:,} bytes; "
            "raise --sample-bytes or its weight, or leave it out"
        )
    if taken < LEAST_FILLED * share:
        _LOG.warning(
            "source %r gives %s of the %s bytes of its share: it has no more, or only documents that do not fit",
            name,
            f"{taken:,}",
            f"{share:,}",
        )


def _sum_by_bucket(buckets: NDArray[np.int64], num_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    # np.bincount would add up in floating point.
    sums = np.zeros(NUM_BUCKETS, np.int64)
    np.add.at(sums, buckets, num_bytes)
    return sums


def build(config: TrainTokenizerConfig, inputs: Sequence[str], name: str | None) -> TrainTokenizerStage:
    """The stage for INPUT and `NAME=INPUT[:WEIGHT]` arguments; their order does not count."""
    sources = find_sources(inputs, config.reader.format)
    together = join_inputs(sources)
    weighted = WeightedTrainTokenizerConfig(
        **{**config.model_dump(), "trainer": config.trainer},
        sources={source.name: tuple(ref.name for ref in source.inputs.refs(".")) for source in sources},
        weights={source.name: float(source.weight) for source in sources if source.weight is not None},
    )
    name = name or shared_name([source.name for source in sources])
    return TrainTokenizerStage(config=weighted, inputs=together, dataset_name=name, sources=tuple(sources))


STAGE = StageType(config=TrainTokenizerConfig, build=build)
