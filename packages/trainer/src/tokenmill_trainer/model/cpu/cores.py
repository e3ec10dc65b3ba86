"""Many small pieces of work, each on one core: a product of a quarter megabyte is too little to divide among threads.

Torch's own threads divide every operation, and meet at its end; these meet once, at the end of all.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")


def on_each_core(work: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Do `work` on every item, without gradient, on as many threads as torch has; in which order is left open."""
    if torch.get_num_threads() == 1:
        for item in items:
            work(item)
        return
    left = iter(items)

    @torch.no_grad()
    def take() -> None:
        for item in left:
            work(item)

    pool = _pool(torch.get_num_threads())
    try:
        for done in [pool.submit(take) for _ in range(torch.get_num_threads())]:
            done.result()
    finally:
        for _ in left:  # after an error, or Ctrl-C, nobody takes what is left
            pass


@functools.cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads for each of which torch has one."""
    begun = Barrier(num_threads + 1)

    def begin() -> None:
        torch.set_num_threads(1)  # of this thread, and of those that have never computed
        begun.wait()

    pool = ThreadPoolExecutor(num_threads, "core", begin)
    try:
        for _ in range(num_threads):
            pool.submit(int)
        begun.wait()
    except BaseException:
        begun.abort()  # or those that have begun would wait for ever, and the process for them
        raise
    finally:
        torch.set_num_threads(num_threads)
    return pool


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
