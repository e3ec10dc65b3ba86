"""Messages between the process that reads web pages and the one that extracts their text.

A message is a byte that says its kind, its length in eight bytes, big-endian, and its content.
"""

import socket
import struct

READY, PAGE, TEXT, FAILED = b"R", b"P", b"T", b"F"
_HEAD = struct.Struct(">cQ")
_PART_BYTES = 1 << 20


def send(connection: socket.socket, kind: bytes, content: bytes = b"") -> None:
    """Send one message."""
    connection.sendall(_HEAD.pack(kind, len(content)) + content)


def receive(connection: socket.socket) -> tuple[bytes, bytes]:
    """(kind, content) of the next message.

    Raises:
        EOFError: the other end is closed.
    """
    kind, length = _HEAD.unpack(_exactly(connection, _HEAD.size))
    return kind, _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(_PART_BYTES, length - len(content)))
        if not part:
            raise EOFError("the other end was closed")
        content += part
    return bytes(content)
