"""List files: one entry a line, `#` before a comment, blank lines skipped; UTF-8, with gzip or without.

In a list of domains a line may also be one of a hosts file (`0.0.0.0 ads.example.com`), and a domain may be written
`*.example.com` or `.example.com`: its subdomains are meant in any case.
"""

import gzip
import re
import zlib
from collections.abc import Iterator

from tokenmill_core import storage
from tokenmill_core.errors import InputError

_DOMAIN = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-fA-F:%.a-z]*:[0-9a-fA-F:%.a-z]*")


def read_lines(path: str) -> str:
    """The text of a list; `InputError` where there is none, or it is not what it should be."""
    if not storage.exists(path):
        raise InputError(f"{path}: no such list; give the path of a file with one entry a line")
    data = storage.read_bytes(path)
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: not UTF-8: {data[error.start : error.start + 1]!r}; save the list as UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: a damaged gzip file: {error}") from error


def read_entries(path: str) -> Iterator[str]:
    """The entries as written, without white space about them."""
    for line in read_lines(path).split("\n"):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            yield entry


def read_domains(path: str) -> Iterator[str]:
    """The domains, lower case, in ASCII (IDNA)."""
    for number, line in enumerate(read_lines(path).split("\n"), start=1):
        fields = line.partition("#")[0].split()
        if len(fields) > 1 and _ADDRESS.fullmatch(fields[0]):
            fields = fields[1:]
        elif len(fields) > 1:
            raise InputError(f"{path}:{number}: {line.strip()[:80]!r} is not one domain; write one a line")
        for field in fields:
            domain = ascii_domain(field.removeprefix("*").strip("."))
            if domain is None or not _DOMAIN.fullmatch(domain):
                raise InputError(f"{path}:{number}: {field[:80]!r} is no domain; write it as example.com")
            yield domain


def ascii_domain(domain: str) -> str | None:
    """A domain in lower case and ASCII: `Bücher.example` is `xn--bcher-kva.example`; none where it cannot be."""
    if domain.isascii():
        return domain.lower()
    try:
        return domain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return None
