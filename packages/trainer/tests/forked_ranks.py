"""Worlds of several ranks in one script: forks, which have torch loaded already, so that a world takes a second.

python forked_ranks.py SIZE LOGS ARGUMENT...: `pretrain ARGUMENT...` on SIZE ranks; prints their exit codes, a list, and
leaves what each said in LOGS/RANK.log.
"""

import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import torch._dynamo  # noqa: F401  # these two before the forks, or each would load them

import tokenmill_trainer.loop  # noqa: F401
from tokenmill_trainer import cli

SECONDS = 60.0
"""After which a rank counts as hanging and is killed."""
HANGING = 0
"""In place of the exit code of a rank that hangs, where one is expected to fail."""


def on_ranks(size: int, action: Callable[[int], None]) -> list[int]:
    """The exit codes of `action(rank)` on `size` ranks, which are a process group of the operating system's as well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    fork = multiprocessing.get_context("fork")
    processes: list[BaseProcess] = []
    for rank in range(size):
        process = fork.Process(target=_run, args=(rank, world, action))
        process.start()
        assert process.pid is not None
        with suppress(ProcessLookupError):
            os.setpgid(process.pid, processes[0].pid if processes else 0)  # type: ignore[arg-type]
        processes.append(process)
    return [_exit_code(process) for process in processes]


def _run(rank: int, world: dict[str, str], action: Callable[[int], None]) -> None:
    os.environ.update(world, RANK=str(rank), LOCAL_RANK=str(rank))
    action(rank)


def _exit_code(process: BaseProcess) -> int:
    process.join(SECONDS)
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        return HANGING
    return process.exitcode


def pretrain(log: Path, *arguments: object) -> NoReturn:
    """`pretrain ARGUMENTS` in this process, which it ends; what it says goes to `log`."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    sys.argv = ["pretrain", *map(str, arguments)]
    cli.main()


if __name__ == "__main__":
    logs = Path(sys.argv[2])
    command = sys.argv[3:]
    print(json.dumps(on_ranks(int(sys.argv[1]), lambda rank: pretrain(logs / f"{rank}.log", *command))))
