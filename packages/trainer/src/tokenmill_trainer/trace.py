"""Which documents a step of a run has seen, and which steps have seen a document.

metrics.jsonl ─▶ samples of each step, its ranks ─ tokenmill_shards.audit ─▶ documents
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_shards.audit.search import Query, trace_document
from tokenmill_shards.audit.trace import Row, Tracer
from tokenmill_shards.open_samples import load_samples_manifest
from tokenmill_trainer.batches.open_data import open_traced
from tokenmill_trainer.run_folder import RunFolder, locate_mixture
from tokenmill_trainer.watching.step_log import read_steps


class TracedStep(NamedTuple):
    """The samples of one step."""

    step: int
    samples: range
    """Global sample indices."""
    world_size: int
    skipped: bool = False
    """Whether they have not trained the weights."""

    def of_rank(self, rank: int) -> range:
        """The samples that `rank` worked on: the ranks take equal slices, one after another."""
        if rank >= self.world_size:
            raise InputError(f"--rank {rank}: step {self.step} ran on ranks 0 to {self.world_size - 1}")
        share = len(self.samples) // self.world_size
        return self.samples[rank * share : (rank + 1) * share]

    def rank_of(self, sample: int) -> int:
        """The rank that worked on `sample`."""
        return (sample - self.samples.start) // (len(self.samples) // self.world_size)


def traced_steps(run: RunFolder, first: int = 1, last: int | None = None) -> list[TracedStep]:
    """The steps `first` to `last` of the run, if not said all, or `InputError` where its log does not have them."""
    rows = {row["step"]: row for row in read_steps(run.metrics_file)}
    done = max(rows, default=0)
    if last is not None and last not in rows:
        raise InputError(f"--step {last}: not in {run.metrics_file}; the run has steps 1 to {done}")
    steps = range(first, (done if last is None else last) + 1)
    begins = {1: 0} | {step + 1: row["consumed_samples"] for step, row in rows.items()}
    begins |= {step: row["first_sample"] for step, row in rows.items() if "first_sample" in row}  # older logs have none
    missing = next((step for step in steps if step not in rows.keys() & begins.keys()), None)
    if missing is not None:
        raise InputError(
            f"{run.metrics_file}: step {missing} or the one before is missing, so its samples are not known"
        )
    return [_traced(rows[step], begins[step]) for step in steps]


def _traced(row: dict[str, Any], begin: int) -> TracedStep:
    samples = range(begin, row["consumed_samples"])
    return TracedStep(row["step"], samples, row["world_size"], row.get("skipped", False))


def trace_step(
    run: RunFolder,
    step: int,
    *,
    rank: int | None = None,
    sample: int | None = None,
    mixture: str | None = None,
    with_text: bool = True,
    with_paths: bool = True,
) -> list[Row]:
    """The documents that step `step` (1 is the first) has seen, by `rank` or in `sample` alone, if they are given.

    `mixture` says where the mixture lies now; without it, it is looked for where it was. Errors: `InputError` for a
    step, rank or sample that there was not; `VerificationError` where that is not the mixture of the run.
    """
    (traced,) = traced_steps(run, step, step)
    samples = traced.samples if rank is None else traced.of_rank(rank)
    if sample is not None and sample not in samples:
        raise InputError(f"--sample {sample}: not among the samples {samples.start} to {samples.stop - 1} asked for")
    tracer = _tracer(run, mixture, with_text=with_text, with_paths=with_paths)
    rows = tracer.samples(samples if sample is None else [sample])
    return [_with_step(row, traced) for row in rows]


def trace_document_of_run(
    run: RunFolder, document: str, *, mixture: str | None = None, with_text: bool = True, with_paths: bool = True
) -> tuple[list[Row], list[str]]:
    """Every step and rank that has seen a part of `document` (`SOURCE:FILE:ROW` or `SOURCE:ID`).

    The second part of the answer has a line for each document that no step has seen. Errors as of `trace_step`, and
    `InputError` where there is no such document.
    """
    query, steps = Query.parse(document), traced_steps(run)
    consumed = steps[-1].samples.stop if steps else 0
    tracer = _tracer(run, mixture, with_text=with_text, with_paths=with_paths)
    rows, reasons = trace_document(tracer, query, consumed)
    return [_with_step(row, _step_of(row["sample"], steps)) for row in rows], reasons


def _step_of(sample: int, steps: Sequence[TracedStep]) -> TracedStep | None:
    """The step that has read `sample`; none where a rollback has left it out."""
    last = bisect_right(steps, sample, key=lambda step: step.samples.start) - 1
    return steps[last] if last >= 0 and sample in steps[last].samples else None


def _with_step(row: Row, step: TracedStep | None) -> dict[str, Any]:
    """`skipped` says that the row's part has not trained the weights."""
    if step is None:
        return {"step": None, "rank": None, "skipped": True, **row}
    return {"step": step.step, "rank": step.rank_of(row["sample"]), "skipped": step.skipped, **row}


def _tracer(run: RunFolder, mixture: str | None, *, with_text: bool, with_paths: bool) -> Tracer:
    """Of the mixture the run was last trained on: it has the order of those before it, up to where it took over."""
    config, path = run.read_config(), mixture or locate_mixture(run)
    trained_on, found = (load_samples_manifest(str(place)).manifest.digest for place in (run.mixture_file, path))
    if found != trained_on:
        raise VerificationError(
            f"{path}: digest {found[:12]}…, but the run was trained on {trained_on[:12]}…; "
            "say where that one lies with --mixture"
        )
    return Tracer(open_traced(config, path), with_text=with_text, with_paths=with_paths)
