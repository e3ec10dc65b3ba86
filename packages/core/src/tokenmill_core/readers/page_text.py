"""The main text of web pages: trafilatura, through datatrove, in a process of its own.

A page can hang an extractor, crash it, or use up its memory. So pages go to a worker process over a socket, one at a
time: what happens there costs that page, and a new worker takes the next one. It ends when this process does, however.
"""

import atexit
import importlib.util
import os
import socket
import subprocess
import sys
from functools import cache

from tokenmill_core.errors import InputError
from tokenmill_core.readers.page_socket import PAGE, TEXT, receive, send

_START_SECONDS = 120.0
"""How long a worker may take to import what it needs, on a slow disk."""


class PageError(Exception):
    """A page gave no text; `reason` says why, as it stands in the ledger."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def require_web_extra(*modules: str) -> None:
    """Raise an `InputError` that says what to install where one of `modules` is missing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(
            f"web pages are read with {', '.join(missing)}, which is not installed: pip install 'tokenmill-core[web]'"
        )


def main_text(page: str, timeout: float) -> str:
    """The main text of an HTML page.

    Raises:
        PageError: `no_text_extracted`, `extraction_failed`, or `extraction_timed_out` after `timeout` seconds.
        InputError: the extractor is not installed, or does not start.
    """
    return _worker(os.getpid()).main_text(page, timeout)


@cache
def _worker(pid: int) -> "_Worker":
    """One worker for all pages that the process `pid` reads; one that was forked must not share its parent's."""
    require_web_extra("datatrove", "trafilatura")
    return _Worker()


class _Worker:
    """A process that extracts text, started when there is work, and anew when it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        atexit.register(self._stop)

    def main_text(self, page: str, timeout: float) -> str:
        connection = self._socket or self._start()
        connection.settimeout(timeout)
        try:
            send(connection, PAGE, page.encode("utf-8", "replace"))
            kind, content = receive(connection)
        except (OSError, EOFError) as error:
            self._stop()
            raise PageError(
                "extraction_timed_out" if isinstance(error, TimeoutError) else "extraction_failed"
            ) from error
        if kind != TEXT or not content:
            raise PageError("no_text_extracted" if kind == TEXT else "extraction_failed")
        return content.decode("utf-8")

    def _start(self) -> socket.socket:
        self._socket, theirs = socket.socketpair()
        # -P: a module in the folder one happens to be in is not what is meant.
        command = [sys.executable, "-P", "-m", "tokenmill_core.readers.page_worker"]
        self._socket.settimeout(_START_SECONDS)
        try:
            with theirs:
                self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
            receive(self._socket)
        except (OSError, EOFError) as error:
            self._stop()
            raise InputError(
                f"the process that extracts text from web pages does not start: {error}; "
                "its own message stands above, if it had one: pip install 'tokenmill-core[web]'"
            ) from error
        return self._socket

    def _stop(self) -> None:
        if self._socket:
            self._socket.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None
