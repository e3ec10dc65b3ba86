"""Blocks of whole lines, however the stream that they come from is cut."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.readers.line_blocks import line_blocks


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4), repeats=st.integers(1, 4))
def test_blocks_hold_the_lines_of_the_stream_however_it_is_cut(content, cuts, repeats):
    content = content.replace(b"a", b"\n") * repeats
    edges = [0, *sorted(cuts), len(content)]
    chunks = [chunk for a, b in pairwise(edges) if (chunk := content[a:b])]
    blocks = list(line_blocks(chunks))
    ended = content + (b"" if not content or content.endswith(b"\n") else b"\n")
    assert b"".join(block.data[block.start : block.stop] for block in blocks) == ended
    assert [line for block in blocks for line in block.lines()] == ended.split(b"\n")[:-1]
    assert not blocks or len(blocks[0].lines()) == 1


def test_blocks_are_of_bounded_size_unless_a_line_is_longer():
    line = b"x" * 999 + b"\n"
    sizes = [len(block.data) for block in line_blocks([line * 1000] * 10)]
    assert len(sizes) > 4
    assert max(sizes) < 3 << 20
    assert [len(b.lines()) for b in line_blocks([line, *[b"y" * (1 << 20)] * 5, b"\n" + line])] == [1, 2]
