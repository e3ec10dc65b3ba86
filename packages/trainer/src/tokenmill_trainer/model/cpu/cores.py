"""Many small pieces of work, each on one core: a product of a quarter megabyte is too little to divide among threads.

Torch's own threads divide every operation, and meet at its end; these meet once, at the end of all. The thread that
has the work does its part of it. Compiled functions hold no lock, so that others can.
"""

import functools
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

import torch

Item = TypeVar("Item")


def on_each_core(work: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Do `work` on every item, on as many threads as torch has; in which order is left open."""
    num_others = min(torch.get_num_threads(), len(items)) - 1
    if num_others < 1:
        for item in items:
            work(item)
        return
    shared = _Shared(work, items, num_others)
    calls = _calls(torch.get_num_threads() - 1)
    for _ in range(num_others):
        calls.put(shared.help)
    shared.do()


class _Shared(Generic[Item]):
    """Items that several threads take one by one."""

    def __init__(self, work: Callable[[Item], None], items: Sequence[Item], num_others: int) -> None:
        self._work = work
        self._left = iter(items)
        self._free = [True] * num_others
        """Places of those who may still come to help."""
        self._done = SimpleQueue[BaseException | None]()

    def do(self) -> None:
        """Take what is left, and wait for those who have come to help."""
        num_others = len(self._free)
        try:
            self._take()
        finally:
            for _ in self._left:  # after an error, or Ctrl-C, nobody takes what is left
                pass
            errors = [self._done.get() for _ in range(num_others - self._close())]
        for error in errors:
            if error is not None:
                raise error

    def help(self) -> None:
        """Take what is left, on another thread."""
        try:
            self._free.pop()
        except IndexError:  # all was done before this thread woke up
            return
        try:
            self._take()
        except BaseException as error:
            self._done.put(error)
        else:
            self._done.put(None)

    def _take(self) -> None:
        for item in self._left:
            self._work(item)

    def _close(self) -> int:
        """How many places were free still; nobody can have them now."""
        num_free = 0
        while self._free:
            try:
                self._free.pop()
            except IndexError:
                break
            num_free += 1
        return num_free


@functools.cache
def _calls(num_threads: int) -> SimpleQueue[Callable[[], None]]:
    """Where so many threads wait for calls."""
    calls = SimpleQueue[Callable[[], None]]()

    def serve() -> None:
        while True:
            calls.get()()

    for number in range(num_threads):
        Thread(target=serve, name=f"core_{number + 1}", daemon=True).start()
    return calls


os.register_at_fork(after_in_child=_calls.cache_clear)  # a child has none of its parent's threads
