"""What torch says when a rank dies, memory ends or a port is taken, in words that name the remedy."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch.distributed import DistError

from tokenmill_core.errors import TokenmillError
from tokenmill_trainer.world import World

LOST = re.compile(
    r"connection (closed|reset) by peer|connection reset|broken pipe|remote process exited|connection refused"
    r"|communicator was aborted|failed to recv|timed out waiting|timeout caused pair closure|socket timeout",
    re.IGNORECASE,
)
PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
NO_HOST_MEMORY = re.compile(r"DefaultCPUAllocator|can't allocate memory|Cannot allocate memory")
SECONDS_FOR_ROLL_CALL = 1.0
LESS_MEMORY = (
    "lower training.micro_batch_size (the result stays the same), raise training.zero_stage, or lower "
    "loss.chunk_tokens or data.sequence_length"
)


class RankError(TokenmillError):
    """What one rank has met by itself, and says by itself: the others do not know."""


@contextmanager
def plain_words(world: World | None = None) -> Iterator[None]:
    """Raise what is known in torch's errors as `RankError`; anything else stays as it is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, TokenmillError):
            raise
        message = _explain(error, world)
        if message is None:
            raise
        prefix = f"rank {world.rank}: " if world is not None and world.size > 1 else ""
        raise RankError(prefix + message) from error


def _explain(error: Exception, world: World | None) -> str | None:
    text = str(error)
    first_line = next(iter(text.splitlines()), type(error).__name__)
    if isinstance(error, torch.OutOfMemoryError):
        return f"out of GPU memory: {first_line} To need less, {LESS_MEMORY}"
    if isinstance(error, MemoryError) or NO_HOST_MEMORY.search(text):
        return f"out of memory: {first_line}. To need less, {LESS_MEMORY}"
    if PORT_TAKEN.search(text):
        return f"the port of MASTER_PORT is taken: {first_line}; name another, or use torchrun --standalone"
    if isinstance(error, DistError) or LOST.search(text):
        cause = first_line.partition(". This is typically")[0]
        return (
            f"{_gone(world)} is gone, or the link to it broke: see its own output above. What was saved is whole: go "
            f"on with --resume ({cause})"
        )
    return None


def _gone(world: World | None) -> str:
    """Which ranks do not answer, as far as that can be found out."""
    if world is None or world.size == 1:
        return "another rank"
    _ignore_termination()
    missing: list[int] = []
    # Beside this thread, since without torchrun the store may have gone with rank 0, and would be waited for.
    call = threading.Thread(target=_call_roll, args=(world, missing), daemon=True)
    call.start()
    call.join(5 * SECONDS_FOR_ROLL_CALL)
    return f"rank {', '.join(map(str, missing))}" if missing else "another rank"


def _call_roll(world: World, missing: list[int]) -> None:
    with suppress(RuntimeError):
        store = world.open_store()
        store.set(f"answers-{world.rank}", "")
        time.sleep(SECONDS_FOR_ROLL_CALL)
        missing += [rank for rank in range(world.size) if not store.check([f"answers-{rank}"])]


def _ignore_termination() -> None:
    """Once one is gone torchrun ends all ranks; this one is about to end, and has something to say first."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
