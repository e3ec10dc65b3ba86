"""URLs in a form in which those that lead to one page are equal.

Scheme and host in lower case, `http` as `https`; without the scheme's own port, without fragment, without an empty
query, and without slashes at the end of the path. Everything else says which page it is, and stays as it is.
"""

import hashlib
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_DEFAULT_PORTS = {"http": 80, "https": 443}


def normalise_url(url: str) -> str:
    """See the module's docstring. What is not a URL is only stripped of white space."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return url
    if not host:
        return url
    scheme = "https" if parts.scheme == "http" else parts.scheme
    user, at, _ = parts.netloc.rpartition("@")
    place = f"{user}{at}[{host}]" if ":" in host else f"{user}{at}{host}"
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        place += f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{place}{parts.path.rstrip('/')}{query}"


def url_digests(urls: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A 128-bit digest of each URL, (documents, 2), and which documents have one: not null, and not blank."""
    normal = [normalise_url(url) if url else "" for url in urls.to_pylist()]
    joined = b"".join(hashlib.blake2b(url.encode(), digest_size=16).digest() for url in normal)
    return np.frombuffer(joined, "<u8").reshape(-1, 2), np.array([bool(url) for url in normal], np.bool_)
