"""Collect real text that every machine with Python has: `python pipelines/demo_corpus.py DIR`.

DIR/code         the standard library's source, a file a document
DIR/prose.jsonl  Python's built-in language reference, and the descriptions of the installed packages
"""

import importlib.metadata
import json
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "turtledemo", "pydoc_data"}
"""Folders of the standard library that hold tests, programs, other packages, or the prose itself."""


def collect_code(target: Path) -> int:
    """Copy the standard library's source below `target`; the number of files."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [p for p in sorted(root.rglob("*.py")) if not SKIPPED.intersection(p.relative_to(root).parts)]
    for path in paths:
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return len(paths)


def prose() -> Iterator[tuple[str, str]]:
    """(id, text) of each piece of prose."""
    for name, text in sorted(topics.items()):
        yield f"python/{name}", text
    described = {d.metadata["Name"]: d.metadata.get_payload() or "" for d in importlib.metadata.distributions()}
    for name, text in sorted(described.items()):
        # What metadata calls the payload is the package's README, when it has one.
        if str(text).strip():
            yield f"package/{name}", str(text)


def collect_prose(target: Path) -> int:
    """Write the prose to `target` as JSON Lines; the number of documents."""
    rows = [json.dumps({"id": id, "text": text}, ensure_ascii=False) for id, text in prose()]
    target.write_text("\n".join(rows) + "\n", encoding="utf-8", errors="replace")
    return len(rows)


def main() -> None:
    """Collect both into the folder named on the command line, anew."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"{collect_code(folder / 'code'):,} source files -> {folder / 'code'}")
    print(f"{collect_prose(folder / 'prose.jsonl'):,} pieces of prose -> {folder / 'prose.jsonl'}")


if __name__ == "__main__":
    main()
