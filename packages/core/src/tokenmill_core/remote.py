"""What the drivers of remote files have in common: settings, and errors as our own.

Each fsspec driver raises what its library raises: `aiohttp`'s errors, `botocore`'s, plain `OSError`s.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill_core.errors import InputError, TokenmillError

CONNECT_SECONDS = 30
SILENCE_SECONDS = 60
"""A server that sends nothing for so long is given up."""
_BUSY = (408, 425, 429)
"""HTTP statuses of the client's kind that ask it to come again."""


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
        options["client_kwargs"] = {"timeout": timeout}
    return options


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
    return RemoteError(f"{url}: the server does not answer as it should ({said}); check that it runs, and try again")
