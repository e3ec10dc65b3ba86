"""INPUT arguments: what they reach, what they are called, and what is said when they lead nowhere."""

import hashlib
import itertools
import os
from pathlib import Path

import fsspec
import pytest

from tokenmill_core.errors import InputError
from tokenmill_core.inputs import expand_inputs, hash_group
from tokenmill_core.readers import Format


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")


def listing(groups):
    return [(group.name, [file.name for file in group.files]) for group in groups]


def names(*arguments, **options):
    return listing(expand_inputs([str(argument) for argument in arguments], **options))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("en.jsonl.zst", "en"),
        ("en.v2.jsonl", "en.v2"),
        ("EN.Parquet", "EN"),
        ("read.me.md", "read.me"),
        (".jsonl", ".jsonl"),
        ("a.txt.gz", "a"),
    ],
)
def test_a_file_is_a_group_called_by_its_name_without_suffixes(tmp_path, file, name):
    make(tmp_path, file)
    if file == ".jsonl":
        assert names(tmp_path / file, format=Format.JSONL) == [(name, [file])]
    else:
        assert names(tmp_path / file) == [(name, [file])]


def test_a_folder_is_read_whole_hidden_files_included_and_in_order(tmp_path):
    make(tmp_path, "d/b.jsonl", "d/a/z.txt", "d/.hidden/c.py", "d/.dot.md", "d/a.parquet", "d/ä.txt")
    make(tmp_path, "d/.git/x.py", "d/sub/__pycache__/y.py", "d/.hg/a.txt", "d/.svn/a.txt")
    expected = [".dot.md", ".hidden/c.py", "a.parquet", "a/z.txt", "b.jsonl", "ä.txt"]
    assert names(tmp_path / "d") == [("d", expected)]


def test_relative_arguments_mean_the_same_as_absolute_ones(tmp_path, monkeypatch):
    make(tmp_path, "d/a.jsonl")
    absolute = expand_inputs([str(tmp_path / "d")])
    monkeypatch.chdir(tmp_path / "d")
    for argument in (".", "../d", "*.jsonl", "../*/*.jsonl", (tmp_path / "d").as_uri()):
        (group,) = expand_inputs([argument])
        assert group.files[0].url == absolute[0].files[0].url
    assert names(".") == names("*.jsonl") == names(tmp_path / "d")


@pytest.mark.parametrize("argument", ["", "/a.jsonl", "/*.jsonl", "/../**/a.jsonl", "/../../.*/ü/a.*"])
def test_spaces_brackets_dots_and_umlauts_in_paths(tmp_path, argument):
    folder = tmp_path / "my data [v1]" / ".cache" / "ü"
    make(folder, "a.jsonl")
    (group,) = expand_inputs([f"{folder}{argument}"])
    assert [Path(file.url) for file in group.files] == [folder / "a.jsonl"]


def test_brackets_are_a_set_where_no_such_path_exists(tmp_path):
    make(tmp_path, "v1/a.jsonl", "v2/a.jsonl", "v3/a.jsonl")
    assert names(tmp_path / "v[12]" / "*.jsonl") == [(tmp_path.name, ["v1/a.jsonl", "v2/a.jsonl"])]


def test_globs(tmp_path):
    make(tmp_path, "d/a.jsonl", "d/b.jsonl", "d/.c.jsonl", "d/x/a.jsonl", "d/x/y/a.jsonl", "d/x/y/b.txt")

    def found(pattern):
        return names(tmp_path / "d" / pattern)[0]

    assert found("*.jsonl") == ("d", [".c.jsonl", "a.jsonl", "b.jsonl"])
    assert found("?.jsonl") == ("d", ["a.jsonl", "b.jsonl"])
    assert found("**/a.jsonl") == ("d", ["a.jsonl", "x/a.jsonl", "x/y/a.jsonl"])
    assert found("x/**") == ("x", ["a.jsonl", "y/a.jsonl", "y/b.txt"])
    assert found("x/**/*.txt") == ("x", ["y/b.txt"])
    assert found("[xy]") == ("d", ["x/a.jsonl", "x/y/a.jsonl", "x/y/b.txt"])
    assert found("*/*/b*") == ("d", ["x/y/b.txt"])
    assert names(tmp_path / "*" / "x") == [(tmp_path.name, ["d/x/a.jsonl", "d/x/y/a.jsonl", "d/x/y/b.txt"])]


def test_all_arguments_that_lead_nowhere_are_named_at_once(tmp_path):
    make(tmp_path, "here.jsonl")
    with pytest.raises(InputError) as caught:
        names(tmp_path / "here.jsonl", tmp_path / "gone.jsonl", tmp_path / "no" / "*.jsonl", tmp_path / "*.parquet")
    message = str(caught.value)
    assert f"no such file or folder: '{tmp_path}/gone.jsonl'" in message
    assert f"no file matches '{tmp_path}/no/*.jsonl'" in message
    assert f"no file matches '{tmp_path}/*.parquet'" in message
    assert "here.jsonl" not in message


def test_the_same_file_twice_is_read_once_and_warned_about(tmp_path, caplog):
    make(tmp_path, "d/a.jsonl", "d/b.jsonl")
    a, folder = str(tmp_path / "d" / "a.jsonl"), str(tmp_path / "d")
    (group,) = expand_inputs([a, a])
    assert (listing([group]), group.notes) == ([("a", ["a.jsonl"])], {"duplicate_inputs": 1})
    assert f"given more than once, read once: {a}" in caplog.text
    for arguments in itertools.permutations([a, folder, f"{folder}/*.jsonl"]):
        groups = expand_inputs(arguments)
        assert sorted(file.url for group in groups for file in group.files) == [a, f"{folder}/b.jsonl"]
        assert sum(group.notes["duplicate_inputs"] for group in groups) == 3
        assert listing(groups) == [("a", ["a.jsonl"]), ("d", ["b.jsonl"])]


def test_a_link_to_a_file_is_the_same_file_under_its_own_name(tmp_path):
    make(tmp_path, "d/z.jsonl")
    (tmp_path / "d" / "a.jsonl").symlink_to("z.jsonl")
    (group,) = expand_inputs([str(tmp_path / "d")])
    assert (listing([group]), group.notes) == ([("d", ["z.jsonl"])], {"duplicate_inputs": 1})


def test_a_link_to_a_folder_does_not_rename_what_lies_in_it(tmp_path):
    make(tmp_path, "d/zz/deep/a.jsonl")
    (tmp_path / "d" / "aa").symlink_to("zz/deep")
    assert names(tmp_path / "d") == [("d", ["zz/deep/a.jsonl"])]


def test_links_to_data_elsewhere_are_followed_under_the_links_name(tmp_path):
    make(tmp_path, "blobs/0123", "elsewhere/b.jsonl")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").symlink_to(tmp_path / "blobs" / "0123")
    (tmp_path / "d" / "more").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "d") == [("d", ["a.jsonl", "more/b.jsonl"])]


def test_loops_of_links_end(tmp_path, caplog):
    make(tmp_path, "d/x/a.jsonl", "d/y/b.jsonl", "outside.jsonl")
    (tmp_path / "d" / "x" / "loop").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "x" / "y").symlink_to(tmp_path / "d" / "y")
    (tmp_path / "d" / "y" / "x").symlink_to(tmp_path / "d" / "x")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    (tmp_path / "d" / "self").symlink_to(tmp_path / "d" / "self")
    assert names(tmp_path / "d") == [("d", ["x/a.jsonl", "y/b.jsonl"])]
    assert names(tmp_path / "d" / "**" / "*.jsonl") == [("d", ["x/a.jsonl", "y/b.jsonl"])]
    assert "d/self is a link that leads nowhere" in caplog.text


def test_unknown_suffixes_are_skipped_counted_and_warned_about(tmp_path, caplog):
    make(tmp_path, "d/a.jsonl", "d/b.log", "d/c.LOG", "d/e.log.gz", "d/Makefile", "d/f.parquet.gz")
    (group,) = expand_inputs([str(tmp_path / "d")])
    assert listing([group]) == [("d", ["a.jsonl"])]
    assert group.notes == {
        "skipped_suffix_.log": 2,
        "skipped_suffix_.log.gz": 1,
        "skipped_suffix_.parquet.gz": 1,
        "skipped_suffix_none": 1,
    }
    assert "left out by their suffix: .log (2), .log.gz (1)" in caplog.text


def test_a_folder_with_nothing_readable_is_refused_with_the_suffixes_seen(tmp_path):
    make(tmp_path, "d/b.log", "d/c.bin")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputError, match=r"/d' holds nothing that can be read; suffixes seen: \.bin \(1\), \.log \(1\)"
    ):
        names(tmp_path / "d")
    with pytest.raises(InputError, match="none, it is empty"):
        names(tmp_path / "empty")


def test_unknown_suffixes_need_a_format(tmp_path):
    make(tmp_path, "d/a.log", "d/b.log", "d/c.jsonl", "d/e.txt")
    with pytest.raises(InputError, match=r"a\.log: its suffix says no format; give --format \(jsonl, parquet"):
        names(tmp_path / "d" / "a.log")
    assert names(tmp_path / "d" / "a.log", format=Format.TEXT) == [("a.log", ["a.log"])]
    assert names(tmp_path / "d" / "*.log", format=Format.TEXT) == [("d", ["a.log", "b.log"])]
    assert names(tmp_path / "d", format=Format.TEXT) == [("d", ["e.txt"])]


def test_the_order_of_arguments_changes_nothing(tmp_path):
    make(tmp_path, "1/en.jsonl", "2/en.jsonl", "3/en/a.txt", "de.jsonl", "4/en-2.jsonl")
    (tmp_path / "2" / "en.jsonl").write_text("longer than the other content")
    arguments = [str(tmp_path / name) for name in ("1/en.jsonl", "2/en.jsonl", "3/en", "de.jsonl", "4/en-2.jsonl")]
    expected = expand_inputs(arguments)
    assert [group.name for group in expected] == ["de", "en", "en-3", "en-4", "en-2"]
    for order in itertools.permutations(arguments):
        assert expand_inputs(order) == expected


def test_an_unfinished_build_is_refused_and_left_out_of_a_larger_folder(tmp_path, caplog):
    make(tmp_path, "d/a.jsonl", "d/out/.work/x.parquet", "d/out/part.parquet")
    for argument in (tmp_path / "d" / "out", tmp_path / "d" / "out" / "*.parquet"):
        with pytest.raises(InputError, match=r"d/out is an unfinished build.*run the command that writes it again"):
            names(argument)
    assert names(tmp_path / "d") == [("d", ["a.jsonl"])]
    assert "d/out is an unfinished build; it is left out" in caplog.text


def test_a_dataset_inside_a_folder_is_left_out_and_a_foreign_manifest_is_not(tmp_path, caplog):
    make(tmp_path, "d/a.jsonl", "d/out/part.parquet", "d/web/b.txt", "d/web/manifest.json")
    (tmp_path / "d/out/manifest.json").write_text('{"kind":"documents","schema_version":1,"digest":""}')
    (tmp_path / "d/web/manifest.json").write_text('{"name":"app"}')
    assert names(tmp_path / "d") == [("d", ["a.jsonl", "web/b.txt", "web/manifest.json"])]
    assert "d/out is a dataset with a manifest; it is left out" in caplog.text


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        names(tmp_path / "p.jsonl")


def test_names_that_are_no_utf8_can_be_stored(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(path, "wb") as file:
        file.write(b"x")
    (group,) = expand_inputs([str(tmp_path)])
    assert group.files[0].name == r"caf\xe9.txt"
    assert hash_group(group).files[0].bytes == 1
    assert len(hash_group(group).digest) == 64


def test_remote_files_folders_and_globs():
    root = "memory://test-inputs/d"
    for name in ("a.jsonl", "b.jsonl", "sub/c.txt", ".git/x.py", "e.log"):
        with fsspec.open(f"{root}/{name}", "wb") as file:
            file.write(b"12345")
    (group,) = expand_inputs([root])
    assert listing([group]) == [("d", ["a.jsonl", "b.jsonl", "sub/c.txt"])]
    assert group.notes == {"skipped_suffix_.log": 1}
    assert [file.bytes for file in group.files] == [5, 5, 5]
    assert names(f"{root}/*.jsonl") == [("d", ["a.jsonl", "b.jsonl"])]
    assert names(f"{root}/**/*.txt") == [("d", ["sub/c.txt"])]
    assert names(f"{root}/s*") == [("d", ["sub/c.txt"])]
    assert names(f"{root}/a.jsonl") == [("a", ["a.jsonl"])]
    assert all(fsspec.open(file.url, "rb").open().read() == b"12345" for file in group.files)
    assert hash_group(group).files[0].sha256.startswith("5994471abb01112a")
    with pytest.raises(InputError, match=r"no such file or folder: 'memory://test-inputs/gone'"):
        names("memory://test-inputs/gone")


def test_hashing_fills_in_sizes_and_hashes_and_the_digest_does_not_depend_on_the_place(tmp_path):
    make(tmp_path / "1", "d/a.txt", "d/b/c.txt")
    make(tmp_path / "2", "d/a.txt", "d/b/c.txt")
    seen: list[int] = []
    first, second = (hash_group(expand_inputs([str(tmp_path / n / "d")])[0], seen.append) for n in "12")
    content = (tmp_path / "1/d/a.txt").read_bytes()
    assert (first.files[0].bytes, first.files[0].sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert sum(seen) == sum(file.bytes for group in (first, second) for file in group.files)
    assert first.digest == second.digest
    (tmp_path / "2/d/a.txt").write_text("content of a.tXt")
    assert hash_group(second).digest != first.digest
    (tmp_path / "2/d/a.txt").unlink()
    with pytest.raises(InputError, match=r"cannot read .*2/d/a\.txt"):
        hash_group(second)


def test_no_arguments_give_no_groups():
    assert expand_inputs([]) == []


def test_an_empty_argument_is_not_the_current_folder(tmp_path, monkeypatch):
    make(tmp_path, "a.jsonl")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'' is no INPUT"):
        expand_inputs([""])
