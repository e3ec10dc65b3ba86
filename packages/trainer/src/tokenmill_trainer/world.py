"""The processes of a run: who they are, and the few things they tell each other outside of the model.

Started by torchrun, the process group comes from its environment; otherwise this one process is a world of its own,
and everything else is the same code.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from tokenmill_core.errors import ConfigError, TokenmillError

T = TypeVar("T")
Device = Literal["auto", "cuda", "cpu"]
SECONDS_FOR_GLOO = 0.25
PATIENCE_BESIDE = timedelta(days=1)
"""How long ranks wait for one another beside training: for the slowest disk. A rank that dies ends it at once."""
_groups_joined = itertools.count()


@dataclass(frozen=True)
class World:
    """All ranks of a run, seen from one of them. Every method is collective: each rank has to call it."""

    rank: int
    size: int
    device: torch.device
    """Where this rank's part of the model lives."""
    group: dist.ProcessGroup | None = None
    """Over which the ranks talk; none: the default one."""

    def beside(self) -> "World":
        """The same ranks over a gloo group of their own: collectives of two threads must not meet."""
        return replace(self, group=dist.new_group(backend="gloo", timeout=PATIENCE_BESIDE))

    def leave(self) -> None:
        """Give up a group made by `beside`."""
        if self.group is not None:
            dist.destroy_process_group(self.group)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks, in float64."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, group=self.group)
        return tensor.tolist()

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set on any rank."""
        return self.sum([float(flag)])[0] > 0

    def gather(self, value: T) -> list[T]:
        """Every rank's `value`, in the order of ranks."""
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values  # type: ignore[return-value]

    def broadcast(self, value: T) -> T:
        """Rank 0's `value`."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.group, device=torch.device("cpu"))
        return values[0]

    def on_main(self, action: Callable[[], T]) -> T:
        """What `action` returns on rank 0, which alone runs it; an error there is raised on every rank."""
        return self.broadcast(self.on_each(action if self.is_main else lambda: None))  # type: ignore[return-value]

    def on_each(self, action: Callable[[], T]) -> T:
        """What `action` returns here; an error on any rank is raised on every rank, so that none waits for another."""
        result: T | None = None
        problem: Exception | None = None
        try:
            result = action()
        except (TokenmillError, OSError) as error:
            problem = error
        first = next((other for other in self.gather(problem) if other is not None), None)
        if first is not None:
            raise problem or first
        return result  # type: ignore[return-value]

    def open_store(self) -> Store:
        """The store that the ranks met at, over a connection of its own: another thread may use it. Not collective."""
        store: Store = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
        return store


@contextmanager
def start_world(wanted: Device = "auto") -> Iterator[World]:
    """Join (or be) the process group for the length of a `with` block. One that exists already is used and kept.

    Errors: `ConfigError` where there are fewer GPUs than asked for.
    """
    device = _local_device(wanted)
    if dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size(), device)
        return
    _initialize_process_group(device)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
        # gloo's own threads may still be letting go of the last tensors, and nothing can be asked to wait for them.
        # Met by the end of the interpreter they abort the process, so that a finished run would end with an error.
        time.sleep(SECONDS_FOR_GLOO)


def is_main_process() -> bool:
    """Whether this process speaks for the run, as far as the environment says; needs no process group."""
    return int(os.environ.get("RANK", "0")) == 0


def _initialize_process_group(device: torch.device) -> None:
    cuda = device.type == "cuda"
    store, rank, size = _rendezvous()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        device_id=device if cuda else None,
    )


def _rendezvous() -> tuple[Store, int, int]:
    if "RANK" not in os.environ:
        return HashStore(), 0, 1
    try:
        store, rank, size = next(rendezvous("env://"))
    except ValueError as error:
        raise ConfigError(f"RANK is set, but {error}: start several processes with torchrun, or unset RANK") from error
    # torchrun's store outlives a process group. A second group under the same keys would meet the first one's addresses
    # and wait for ever.
    return PrefixStore(f"tokenmill-{next(_groups_joined)}", store), rank, size


def _local_device(wanted: Device) -> torch.device:
    available = wanted != "cpu" and torch.cuda.is_available()
    if wanted == "cuda" and not available:
        reason = (
            "this torch is built without CUDA: install one that is"
            if torch.version.cuda is None
            else f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}: see nvidia-smi"
        )
        raise ConfigError(f"training.device: cuda, but torch {torch.__version__} finds no GPU; {reason}; or set cpu")
    if not available:
        return torch.device("cpu")
    index, have = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if index >= have:
        raise ConfigError(
            f"process {index} of this machine finds {have} GPUs: start at most {have} with torchrun --nproc-per-node"
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device
