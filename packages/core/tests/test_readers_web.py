"""Web pages and web archives at reader level, with the real extractor."""

import gzip
import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest
import zstandard
from reading import read

from tokenmill_core.errors import InputError
from tokenmill_core.inputs import expand_inputs
from tokenmill_core.readers import Format
from tokenmill_core.readers.charset import charset_of, decode_page
from tokenmill_core.readers.page_text import PageError, main_text, require_web_extra

UTF8 = "text/html; charset=utf-8"


def page(topic: str, head: str = "") -> str:
    sentences = "".join(f"<p>Sentence {i} about {topic} is long enough to be taken for text.</p>" for i in range(6))
    menu = "<nav><ul><li><a href='/'>Home</a></li><li><a href='/about'>About us</a></li></ul></nav>"
    return f"<html><head>{head}<title>t</title></head><body>{menu}<article>{sentences}</article></body></html>"


def main_text_of(topic: str) -> str:
    return "\n".join(f"Sentence {i} about {topic} is long enough to be taken for text." for i in range(6))


class Archive:
    """A WARC file in the making, a gzip member a record if one says so, and where each of its records ends."""

    def __init__(self, gzipped: bool = False) -> None:
        self.content = b""
        self.ends: list[int] = []
        self._gzipped = gzipped

    def add(self, kind, content, *, url="http://e.org/", status="200 OK", content_type=UTF8, http=(), **headers):
        block = content if isinstance(content, bytes) else content.encode()
        if kind in ("request", "response"):
            block = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{''.join(http)}\r\n".encode() + block
        fields = {"WARC-Type": kind, "WARC-Record-ID": f"<urn:{len(self.ends)}>", "WARC-Date": "2020-01-02T03:04:05Z"}
        fields |= {"WARC-Target-URI": url, **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = [f"{name}: {value}\r\n" for name, value in (*fields.items(), ("Content-Length", len(block)))]
        record = f"WARC/1.0\r\n{''.join(lines)}\r\n".encode() + block + b"\r\n\r\n"
        self.content += gzip.compress(record) if self._gzipped else record
        self.ends.append(len(self.content))
        return self


def wet(*texts: str | bytes, gzipped: bool = False) -> Archive:
    archive = Archive(gzipped)
    for text in texts:
        archive.add("conversion", text)
    return archive


# WARC


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_pages_are_extracted_and_lead_back_to_their_records(tmp_path, suffix):
    archive = Archive(gzipped=suffix == ".gz")
    archive.add("warcinfo", "software: x").add("request", "").add("response", page("cats"), url="http://e.org/cats")
    archive.add("metadata", "x: y").add("response", page("dogs"), url="http://e.org/dogs")
    path = tmp_path / f"a.warc{suffix}"
    path.write_bytes(zstandard.compress(archive.content) if suffix == ".zst" else archive.content)
    outcome = read(path, Format.WARC, carry=("url", "date", "WARC-Type", "none"))
    assert outcome.rows == [
        {
            "id": f"<urn:{number}>",
            "text": main_text_of(topic),
            "file": "set/a",
            "row": number + 1,
            "url": f"http://e.org/{topic}",
            "date": "2020-01-02T03:04:05Z",
            "WARC-Type": "response",
            "none": None,
        }
        for number, topic in ((2, "cats"), (4, "dogs"))
    ]
    assert outcome.account.notes == {"records_without_page": 3}


def test_what_is_no_page_is_noted_and_a_page_without_text_rejected(tmp_path):
    archive = Archive()
    archive.add("response", b"\x89PNG", content_type="image/png").add("response", page("x"), status="404 Not Found")
    archive.add("response", page("x"), WARC_Identified_Payload_Type="application/pdf")
    archive.add("response", "<html><body></body></html>").add("response", "").add("response", b"<p>caf\xe9 \xff")
    archive.add(
        "response", page("kept"), content_type="text/plain", WARC_Identified_Payload_Type="application/xhtml+xml"
    )
    (tmp_path / "a").write_bytes(archive.content)
    outcome = read(tmp_path / "a", Format.WARC)
    assert outcome.texts == [main_text_of("kept")]
    assert outcome.rejected == [(4, "no_text_extracted"), (5, "no_text_extracted"), (6, "invalid_encoding")]
    assert outcome.account.notes == {"records_without_page": 3}
    with pytest.raises(InputError, match=r":4: no_text_extracted"):
        read(tmp_path / "a", Format.WARC, strict=True)


def test_bodies_as_they_came_over_the_wire(tmp_path):
    body = page("wires").encode()
    archive = Archive()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    archive.add("response", chunked, http=["Transfer-Encoding: chunked\r\n"])
    archive.add("response", gzip.compress(body), http=["Content-Encoding: gzip\r\n"])
    (tmp_path / "a").write_bytes(archive.content)
    assert read(tmp_path / "a", Format.WARC).texts == [main_text_of("wires")] * 2


def test_the_text_of_a_page_does_not_depend_on_the_pages_before(tmp_path):
    archive = Archive()
    for _ in range(6):
        archive.add("response", page("the same thing"))
    (tmp_path / "a").write_bytes(archive.content)
    assert read(tmp_path / "a", Format.WARC).texts == [main_text_of("the same thing")] * 6


# WET


def test_the_texts_of_wet_files_are_taken_as_they_are(tmp_path):
    archive = Archive(gzipped=True).add("warcinfo", "software: x")
    for text in ("one\r\n two\n", "", " \n", b"caf\xe9", "nul\0"):
        archive.add("conversion", text)
    path = tmp_path / "a.warc.wet.gz"
    path.write_bytes(archive.content)
    ((file,),) = [group.files for group in expand_inputs([str(path)])]
    assert file.name == "a.warc.wet.gz"
    outcome = read(path, Format.WARC, carry=("url",))
    assert [(row["row"], row["id"], row["text"], row["url"]) for row in outcome.rows] == [
        (2, "<urn:1>", "one\r\n two\n", "http://e.org/"),
        (6, "<urn:5>", "nul\ufffd", "http://e.org/"),
    ]
    assert outcome.rejected == [(3, "empty_text"), (4, "blank_text"), (5, "invalid_utf8")]


def test_a_file_cut_anywhere_is_an_error_or_lacks_whole_records_only(tmp_path, capfd):
    archive = wet("first text", "second text", "third text")
    path = tmp_path / "a.wet"
    passed = []
    for cut in range(2, len(archive.content)):
        path.write_bytes(archive.content[:cut])
        try:
            passed.append((cut, len(read(path, Format.WARC).rows)))
        except InputError as error:
            assert f"cannot read {path} as WARC" in str(error)  # noqa: PT017
    # The empty lines after a record may be missing.
    expected = [(end - 4 + cut, count) for count, end in enumerate(archive.ends, 1) for cut in range(5)]
    assert passed == expected[:-1]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_damaged_or_cut_member_is_an_error_that_names_the_file(tmp_path, share):
    whole = wet(*(f"text {i}" * 50 for i in range(20)), gzipped=True).content
    path = tmp_path / "a.wet.gz"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cannot read .*a\.wet\.gz"):
        read(path, Format.WARC)
    damaged = bytearray(whole)
    damaged[int(len(whole) * share) - 40] ^= 255
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"cannot read .*a\.wet\.gz"):
        read(path, Format.WARC)


def test_a_file_that_is_no_archive_is_an_error(tmp_path):
    (tmp_path / "a.warc").write_bytes(b"no archive\n" * 10)
    with pytest.raises(InputError, match=r"a\.warc as WARC: Invalid WARC record"):
        read(tmp_path / "a.warc", Format.WARC)
    (tmp_path / "b.warc.gz").write_bytes(b"")
    assert read(tmp_path / "b.warc.gz", Format.WARC).account.notes == {"empty_files": 1}


# HTML


def test_html_files_are_source_code_by_default_and_pages_if_one_says_so(tmp_path):
    (tmp_path / "a.html").write_text(page("cats"))
    (tmp_path / "b.HTM.gz").write_bytes(gzip.compress(page("dogs").encode()))
    (tmp_path / "c.py").write_text("x = 1")
    (pages,) = expand_inputs([str(tmp_path)], format=Format.HTML)
    assert [file.name for file in pages.files] == ["a.html", "b.HTM.gz"]
    assert [read(file.url, Format.HTML).rows for file in pages.files] == [
        [{"id": None, "text": main_text_of(topic), "file": "set/a", "row": 1}] for topic in ("cats", "dogs")
    ]
    assert read(tmp_path / "a.html", Format.SOURCE).texts == [page("cats")]


def test_a_page_file_without_text_or_bytes(tmp_path):
    (tmp_path / "a.html").write_text("<html></html>")
    (tmp_path / "b.html").write_bytes(b"")
    assert read(tmp_path / "a.html", Format.HTML).rejected == [(1, "no_text_extracted")]
    assert read(tmp_path / "b.html", Format.HTML, carry=("url",)).account.notes == {"empty_files": 1}


@pytest.mark.parametrize(
    ("encoding", "declared", "head"),
    [
        ("utf-8", None, ""),
        ("utf-8", "iso-8859-1", ""),
        ("utf-8-sig", None, ""),
        ("utf-16", None, ""),
        ("windows-1251", "windows-1251", ""),
        ("windows-1251", None, '<meta charset="windows-1251">'),
        ("koi8-r", None, '<meta http-equiv="Content-Type" content="text/html; charset=KOI8-R">'),
        ("utf-8", "no-such-charset", ""),
    ],
)
def test_pages_are_decoded_as_they_declare(encoding, declared, head):
    text = f"<html>{head}\u0440\u0443\u0441\u0441\u043a\u0438\u0439</html>"
    assert decode_page(text.encode(encoding), declared) == text


def test_what_browsers_mean_by_a_name():
    assert decode_page("“quoted”".encode("cp1252"), "ISO-8859-1") == "“quoted”"
    assert decode_page("\u9555 \u5586".encode("gbk"), "gb2312") == "\u9555 \u5586"
    for name in ("hex", "rot13", "unicode_escape", "idna", "punycode", "\0"):
        assert decode_page(b"caf\xe9", name) is None
    assert charset_of('text/html; Charset="UTF-8"') == "UTF-8"
    assert charset_of("text/html") is charset_of(None) is None


# The process behind it


def worker_pids() -> set[int]:
    commands = {int(p.name): (p / "cmdline").read_bytes() for p in Path("/proc").iterdir() if p.name.isdigit()}
    ours = {pid for pid, command in commands.items() if b"tokenmill_core.readers.page_worker" in command}
    return {pid for pid in ours if f"PPid:\t{os.getpid()}\n" in (Path("/proc") / str(pid) / "status").read_text()}


def test_a_page_that_takes_too_long_costs_itself():
    assert main_text(page("cats"), 60) == main_text_of("cats")
    (pid,) = worker_pids()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(PageError) as caught:
        main_text(page("cats"), 0.3)
    assert caught.value.reason == "extraction_timed_out"
    assert pid not in worker_pids()
    assert main_text(page("dogs"), 60) == main_text_of("dogs")


def test_a_page_that_kills_the_extractor_costs_itself():
    main_text(page("cats"), 60)
    (pid,) = worker_pids()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PageError) as caught:
        main_text(page("cats"), 60)
    assert caught.value.reason == "extraction_failed"
    assert main_text(page("dogs"), 60) == main_text_of("dogs")


def test_the_extractor_ends_with_the_process_that_uses_it(start, tmp_path):
    (tmp_path / "a.html").write_text(page("cats"))
    running = start("read_page_and_wait.py", str(tmp_path / "a.html"))
    assert running.process.stdout.readline() == "read\n"
    assert len(running.members()) == 2
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait_until_gone() == []


def test_pages_of_any_kind_come_to_an_end():
    deep = "<div>" * 50_000 + "deep" + "</div>" * 50_000
    for content in ("\0" * 1000, "<" * 10_000, deep, "\ud83d", "plain words, no markup at all", "<!--"):
        begun = time.monotonic()
        try:
            assert isinstance(main_text(content, 20), str)
        except PageError as error:
            assert error.reason in {"no_text_extracted", "extraction_failed"}  # noqa: PT017
        assert time.monotonic() - begun < 20


def test_what_is_not_installed_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "warcio" else find(name))
    (tmp_path / "a.warc").write_bytes(b"")
    with pytest.raises(InputError, match=r"with warcio, which is not installed: pip install 'tokenmill-core\[web\]'"):
        read(tmp_path / "a.warc", Format.WARC)
    require_web_extra("trafilatura", "datatrove")
