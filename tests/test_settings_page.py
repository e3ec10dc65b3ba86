"""The reference of settings is what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_current_and_says_something_of_each():
    script = ROOT / "docs" / "make_settings.py"
    page = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "settings.md").read_text() == page, "run make settings"
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row for row in rows if row.endswith("|  |")] == []
