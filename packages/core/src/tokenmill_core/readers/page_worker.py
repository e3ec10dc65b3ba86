"""The process that extracts text from web pages, which `page_text` starts by `python -m`.

Its standard input is a socket. It says once that it is ready, then answers each page with its text, or that it failed,
until the socket is closed.
"""

import logging
import signal
import socket

from tokenmill_core.readers.page_socket import FAILED, READY, TEXT, receive, send


def main() -> None:
    """Serve until the socket is closed."""
    # Of the extra `web`: the module itself must import without it, as every module here does.
    from datatrove.pipeline.extractors import Trafilatura

    # An interrupt is for the process that sends the pages; this one ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    # Trafilatura's own deduplication remembers the pages before: the text would depend on which process met which.
    extractor = Trafilatura(deduplicate=False)
    with socket.socket(fileno=0) as connection:
        send(connection, READY)
        while (page := _next_page(connection)) is not None:
            try:
                text = extractor.extract(page) or ""
            except Exception:  # whatever a page does to the extractor, it costs that page alone
                send(connection, FAILED)
            else:
                send(connection, TEXT, text.encode("utf-8", "replace"))


def _next_page(connection: socket.socket) -> str | None:
    try:
        return receive(connection)[1].decode("utf-8")
    except (EOFError, OSError):
        return None


if __name__ == "__main__":
    main()
