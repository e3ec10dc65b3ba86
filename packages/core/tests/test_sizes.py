"""Amounts of bytes: decimal and binary units, and what is none."""

import pytest

from tokenmill_core.errors import ConfigError
from tokenmill_core.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("1", 1), ("4096B", 4096), ("1_000", 1000), ("256MB", 256_000_000), ("2 GB", 2_000_000_000)),
        *(("1kB", 1000), ("1KB", 1000), ("1KiB", 1024), ("1.5GiB", 3 << 29), ("1TiB", 1 << 40), (" 3TB ", 3 * 10**12)),
    ],
)
def test_sizes_read_as_written(text: str, size: int) -> None:
    assert parse_bytes(text, "--size") == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e9", "1 EB", "1iB", "1kiB", "1mb", "٣MB", "1MBs", "1__0"])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--shard-size .*expected a number of bytes such as 64MB"):
        parse_bytes(text, "--shard-size")


@pytest.mark.parametrize("text", ["0", "0.4", "2000000000GB"])
def test_sizes_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"at least 1 and at most 10\^18"):
        parse_bytes(text, "--size")
