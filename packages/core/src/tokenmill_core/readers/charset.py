"""The text of a web page that comes as bytes: UTF-8, or what the page or its server declares."""

import codecs
import re

_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_DECLARED = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""", re.I
)
_HEAD_BYTES = 4096
"""How far into a page its declaration is looked for; the HTML standard wants it within 1,024 bytes."""
_WIDER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
}
"""What browsers, and so the people who write pages, mean by a name."""
_FAMILIES = (
    "iso8859",
    "cp",
    "gb",
    "big5",
    "euc_",
    "shift_jis",
    "koi8",
    "mac-",
    "utf-8",
    "utf-16",
    "iso2022",
    "tis-620",
    "ascii",
    "hz",
)


def decode_page(content: bytes, declared: str | None = None) -> str | None:
    """`content` as text, or none if it fits no encoding that it could be in; `declared` is what the server says."""
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return _decode(content.removeprefix(mark), encoding)
    # UTF-8 first: text of another encoding is practically never valid in it, and declarations are often wrong.
    for name in ("utf-8", declared, _declared_in(content)):
        if name and (text := _decode(content, name)) is not None:
            return text
    return None


def charset_of(content_type: str | None) -> str | None:
    """The charset that a Content-Type header names."""
    match = re.search(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", content_type or "", re.I)
    return match[1] if match else None


def _declared_in(content: bytes) -> str | None:
    match = _DECLARED.search(content[:_HEAD_BYTES])
    return match[1].decode("ascii") if match else None


def _decode(content: bytes, name: str) -> str | None:
    try:
        encoding = codecs.lookup(name).name
        if encoding.startswith(_FAMILIES):
            return content.decode(_WIDER.get(encoding, encoding))
    except (LookupError, ValueError):
        pass
    return None
