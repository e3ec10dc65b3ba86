"""`prep tokenizer-report` as a command, and the page it writes."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer, models, normalizers

from tokenmill_core.errors import ConfigError, ExitCode
from tokenmill_tokenizer.cli_report import tokenizer_report
from tokenmill_tokenizer.report import Report, Token
from tokenmill_tokenizer.report.page import make_page

EVIL = "<script>alert(1)& $x^2$"


def prep(*arguments: object) -> Result:
    """Run the command; its exit code is what it returns."""
    return CliRunner().invoke(
        tokenizer_report, [str(a) for a in arguments], catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture
def raw(tmp_path: Path, prose: list[str]) -> Path:
    path = tmp_path / "raw.jsonl"
    rows = [{"text": text, "lang": EVIL if i % 2 else "en"} for i, text in enumerate([*prose, EVIL])]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def tokenizer(train: Callable[..., Any], prose: list[str]) -> Any:
    return train(prose)


@pytest.fixture
def lower(tokenizer: Any, tmp_path: Path) -> Path:
    """A tokenizer that does not give upper case back."""
    changed = Tokenizer.from_file(str(tokenizer.path))
    changed.normalizer = normalizers.Lowercase()
    changed.save(str(tmp_path / "lower.json"))
    return tmp_path / "lower.json"


def test_tables(tokenizer: Any, raw: Path, lower: Path) -> None:
    result = prep(tokenizer.folder, raw, "--by", "lang", "--against", f"{EVIL}={lower}")
    assert result.return_value == ExitCode.DONE
    for expected in ("Tokenizers", "Measures", "exact", "Longest tokens", "Worth a look", EVIL, "135 differ"):
        assert expected in result.stdout, expected


def test_json_is_the_report(tokenizer: Any, raw: Path) -> None:
    result = prep(tokenizer.folder, f"named={raw}", "--json")
    report = Report.model_validate_json(result.stdout)
    assert (report.sources[0].name, report.tokenizers[0].tokenizer) == ("named", tokenizer.manifest.name)
    assert report.sample_bytes == 64 << 20


def test_a_round_trip_that_fails_is_an_error_when_asked(tokenizer: Any, raw: Path, lower: Path) -> None:
    assert prep(lower, raw).return_value == ExitCode.DONE
    assert prep(lower, raw, "--strict-round-trip").return_value == ExitCode.VERIFICATION
    # What is only compared with may fail.
    assert prep(tokenizer.path, raw, "--against", lower, "--strict-round-trip").return_value == ExitCode.DONE


def test_no_input(tokenizer: Any, tmp_path: Path) -> None:
    result = prep(tokenizer.path, "--html", tmp_path / "page.html")
    assert "Measures" not in result.stdout
    assert "<h2>Vocabulary</h2>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("content", ["", '{"text": ""}\n{"text": " "}\n'])
def test_an_input_without_text(content: str, tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "blank.jsonl").write_text(content)
    prep(tokenizer.path, tmp_path / "blank.jsonl", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 2
    assert "Nothing to draw: no token occurs in what was measured." in page


def test_an_empty_vocabulary(raw: Path, tmp_path: Path) -> None:
    Tokenizer(models.BPE()).save(str(tmp_path / "empty.json"))
    result = prep(tmp_path / "empty.json", raw, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 1
    assert "Nothing to draw: the vocabulary has no ordinary token." in page
    assert "-1" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert result.return_value == ExitCode.DONE


def test_an_empty_vocabulary_beside_another(tokenizer: Any, raw: Path, tmp_path: Path) -> None:
    Tokenizer(models.BPE()).save(str(tmp_path / "empty.json"))
    prep(tmp_path / "empty.json", raw, "--against", tokenizer.path, "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("<svg") == 3


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs


@pytest.fixture
def page(tokenizer: Any, lower: Path, raw: Path, tmp_path: Path) -> str:
    out = tmp_path / "new folder" / "page.html"
    arguments = (tokenizer.folder, raw, f"_{EVIL}={raw.parent}", "--by", "lang", "--against", lower)
    prep(*arguments, "--format", "jsonl", "--html", out, "--sample-bytes", 0)
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    return out.read_text()


def test_the_page_needs_nothing_beside_itself(page: str) -> None:
    tags = _Tags()
    tags.feed(page)
    assert tags.tags["svg"] == 3
    assert not tags.tags.keys() & {"script", "link", "img", "iframe", "image", "object", "embed"}
    links = [value for name, value in tags.attributes if name in ("href", "src", "xlink:href")]
    assert links
    assert all(value is not None and value.startswith("#") for value in links)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_what_data_says_is_text_on_the_page(page: str) -> None:
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 2
    assert "$x^2$" in page  # in plots too it is no formula


def test_what_tokens_say_is_text_on_the_page(tokenizer: Any) -> None:
    report = Report.model_validate_json(prep(tokenizer.folder, "--json").stdout)
    [vocabulary] = report.tokenizers
    token = Token(id=1, token=repr(EVIL), bytes=9, characters=9, count=None, detail=EVIL)
    vocabulary = vocabulary.model_copy(update={"longest_by_bytes": (token,)})
    page = make_page(report.model_copy(update={"tokenizers": (vocabulary,)}))
    assert page.count("&lt;script&gt;alert(1)") == 2
    assert "<script" not in page


def test_plots_are_well_formed_and_share_no_names(page: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    ids: list[str] = []
    for plot in plots:
        root = ElementTree.fromstring(plot)
        found = [element.get("id") for element in root.iter() if element.get("id")]
        used = set(re.findall(r'(?:#)([\w-]+)(?=["\)])', plot)) - set(re.findall(r"#([0-9a-f]{6})", plot))
        assert used <= set(map(str, found))
        ids += map(str, found)
    assert len(set(ids)) == len(ids)


def test_the_same_report_is_the_same_page(tokenizer: Any, raw: Path) -> None:
    content = prep(tokenizer.folder, raw, "--json").stdout
    code = (
        "import sys; from tokenmill_tokenizer.report import Report\n"
        "from tokenmill_tokenizer.report.page import make_page\n"
        "sys.stdout.buffer.write(make_page(Report.model_validate_json(sys.stdin.read())).encode())"
    )
    other = subprocess.run([sys.executable, "-c", code], input=content.encode(), capture_output=True, check=True)
    assert other.stdout.decode() == make_page(Report.model_validate_json(content))


def test_names_in_any_script(tokenizer: Any, raw: Path, tmp_path: Path) -> None:
    prep(tokenizer.folder, f"日本語={raw}", "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("日本語") > 2


def test_a_page_goes_to_a_local_file(tokenizer: Any, tmp_path: Path) -> None:
    for place in (tmp_path, "s3://bucket/page.html"):
        with pytest.raises(ConfigError, match="a page is written to a local file"):
            prep(tokenizer.folder, "--html", place)


def test_without_matplotlib_the_remedy_is_named(tokenizer: Any, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from tokenmill_core.cli.root import run_command\n"
        "from tokenmill_tokenizer.cli_report import tokenizer_report\n"
        "run_command(tokenizer_report, 'report', '')"
    )
    run = [sys.executable, "-c", code, str(tokenizer.path)]
    plain = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (plain.returncode, "Worth a look" in plain.stdout) == (ExitCode.DONE, True)
    page = subprocess.run([*run, "--html", str(tmp_path / "p.html")], capture_output=True, text=True, check=False)
    assert page.returncode == ExitCode.FAILED
    assert "pip install 'tokenmill-tokenizer[report]'" in page.stderr
    assert not (tmp_path / "p.html").exists()
