"""What the drivers of remote files have in common: settings, errors as our own, and patience.

Each fsspec driver raises what its library raises: `aiohttp`'s errors, `botocore`'s, plain `OSError`s.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tokenmill_core.errors import InputError, TokenmillError

T = TypeVar("T")

WAITS: Sequence[float] = (0.5, 1, 2, 4, 8, 16, 32)
"""Seconds between one try and the next: a server that restarts within a minute stops no training run."""
CONNECT_SECONDS = 30
SILENCE_SECONDS = 60
"""A server that sends nothing for so long is given up."""
_BUSY = (408, 425, 429)
"""HTTP statuses of the client's kind that ask it to come again."""

_LOG = logging.getLogger("tokenmill")


class RemoteError(InputError):
    """A server did not answer as it should. Asking again may help."""


def is_http(url: str) -> bool:
    """Whether `url` names a file of a web server."""
    return url.startswith(("http://", "https://"))


def driver_options(url: str) -> dict[str, Any]:
    """What the fsspec driver of `url` is opened with."""
    # A dataset may be built anew while this process runs: what was listed once is no longer true.
    options: dict[str, Any] = {"use_listings_cache": False}
    if is_http(url):
        from aiohttp import ClientTimeout

        # By default a whole download may last five minutes: too little for a large shard, too much for a dead server.
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        # What is packed on the way has no size that could be checked before it is fetched.
        options["client_kwargs"] = {"timeout": timeout, "headers": {"Accept-Encoding": "identity"}}
    return options


def asked(url: str, ask: Callable[[], T], waits: Sequence[float] | None = None) -> T:
    """What `ask` gives of the remote file at `url`, asked again after each of `waits` while that may help.

    Errors: `InputError`, and `RemoteError` where asking again might still help. `waits`: in seconds; none: `WAITS`.
    """

    def once() -> T:
        with plain_errors(url):
            return ask()

    return tried(once, WAITS if waits is None else waits)


def asked_on(
    url: str, chunks_from: Callable[[int], Iterator[bytes]], waits: Sequence[float] | None = None
) -> Iterator[bytes]:
    """The chunks of the remote file at `url` from its begin; where they break off, from the offset reached."""
    chunks, have = chunks_from(0), 0

    def following() -> bytes:
        nonlocal chunks
        try:
            return next(chunks, b"")
        except Exception:
            chunks = chunks_from(have)
            raise

    while chunk := asked(url, following, waits):
        have += len(chunk)
        yield chunk


def tried(attempt: Callable[[], T], waits: Sequence[float], errors: tuple[type[Exception], ...] = (RemoteError,)) -> T:
    """What `attempt` gives, made anew after each of `waits` (seconds) where it raises one of `errors`."""
    for wait in waits:
        try:
            return attempt()
        except errors as error:
            _LOG.warning("%s [next try in %g seconds]", error, wait)
        time.sleep(wait)
    return attempt()


@contextmanager
def plain_errors(url: str) -> Iterator[None]:
    """Errors of the driver of `url` as `InputError`, those that may pass as `RemoteError`."""
    try:
        yield
    except TokenmillError:
        raise
    except Exception as error:
        raise _translated(url, error) from error


def _translated(url: str, error: BaseException) -> InputError:
    # The HTTP driver says "not found" of a server that does not answer; the cause is the truth.
    if is_http(url) and isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    status = getattr(error, "status", None)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:
        return InputError(f"{url}: there is no such file on the server; check the address")
    if isinstance(error, PermissionError) or status in (401, 403) or type(error).__name__ == "NoCredentialsError":
        return InputError(f"{url}: the server refuses it ({said}); check the credentials in the environment")
    if isinstance(status, int) and 400 <= status < 500 and status not in _BUSY:
        return InputError(f"{url}: the server refuses it ({said}); check the address")
    if isinstance(error, TypeError | ValueError):  # a bad address, a certificate that is none
        return InputError(f"{url}: cannot be read ({said}); check the address")
    return RemoteError(f"{url}: the server does not answer as it should ({said}); check that it runs, and try again")
