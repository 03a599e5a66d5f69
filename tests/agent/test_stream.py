"""Lines and JSON objects out of bytes, whatever the bytes are."""

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_agent._runtime._stream import DEPTH_LIMIT, LINE_LIMIT_BYTES, Garbage, LineFramer, Oversized, StreamLine

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)
OBJECTS = st.dictionaries(st.text(), JSON)
LINES = OBJECTS.map(lambda value: json.dumps(value).encode()) | st.binary()


def items(*chunks: bytes, limit_bytes: int = LINE_LIMIT_BYTES) -> list[StreamLine | Garbage | Oversized]:
    """What a framer gives for these chunks, and at their end."""
    framer = LineFramer(limit_bytes=limit_bytes)
    fed = [item for chunk in chunks for item in framer.feed(chunk)]
    return [*fed, *framer.finish()]


def nested(depth: int) -> bytes:
    """An object with ``depth`` objects inside of one another."""
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.slow
@given(lines=st.lists(LINES), cuts=st.lists(st.integers(min_value=0, max_value=400)), limit=st.integers(1, 60))
def test_any_split_of_the_bytes_gives_the_same_items(lines, cuts, limit):
    """REL-4: how the pipe cuts what is said changes nothing."""
    whole = b"\n".join(lines)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[start:end] for start, end in itertools.pairwise(edges)]

    assert items(*chunks, limit_bytes=limit) == items(whole, limit_bytes=limit)


@pytest.mark.slow
@given(st.lists(OBJECTS, max_size=4))
def test_every_object_comes_out_as_it_went_in(values):
    """TURN-7: what is read is what was printed."""
    printed = "".join(json.dumps(value) + "\n" for value in values).encode()

    assert items(printed) == [StreamLine(value) for value in values]


@given(st.lists(st.binary()))
def test_no_bytes_make_the_framer_fail(chunks):
    """REL-4: a runtime can print anything."""
    for item in items(*chunks, limit_bytes=50):
        assert isinstance(item, StreamLine | Garbage | Oversized)


def test_a_line_of_the_limit_is_kept_and_one_byte_more_is_dropped():
    """REL-4: the limit is the longest line that is kept."""
    line = b'{"a":"' + b"x" * 12 + b'"}'

    assert items(line + b"\n", limit_bytes=len(line)) == [StreamLine({"a": "x" * 12})]
    assert items(line + b"\n", limit_bytes=len(line) - 1) == [Oversized(len(line))]


def test_the_line_after_a_dropped_one_is_read():
    """REL-4: an oversized line costs itself and no other."""
    assert items(b"x" * 30, b"x" * 30 + b'\n{"a":1}\n', limit_bytes=20) == [Oversized(60), StreamLine({"a": 1})]


@pytest.mark.slow
def test_fifty_mebibytes_without_a_line_break_take_no_memory():
    """REL-4: memory is bounded by the limit, not by the line."""
    framer = LineFramer()
    chunk = b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(800):
            assert list(framer.feed(chunk)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 * LINE_LIMIT_BYTES
    assert list(framer.feed(b"\n")) == [Oversized(800 * 65536)]


def test_an_unfinished_last_line_is_given_at_the_end():
    """TURN-5: a process can die within a line, or print its last one without a line break."""
    assert items(b'{"type":"result"}') == [StreamLine({"type": "result"})]
    assert items(b'{"type":"res') == [Garbage('{"type":"res')]


def test_empty_lines_and_carriage_returns_are_passed_over():
    """A terminal in between turns line breaks into CR LF."""
    assert items(b'\n\r\n  \n{"a":1}\r\n') == [StreamLine({"a": 1})]


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[1]",
        b'"text"',
        b"12",
        b'{"a":1} x',
        b"\0\0",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        nested(DEPTH_LIMIT + 1),
        nested(100_000),
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[:24]),
)
def test_a_line_that_is_no_plain_json_object_is_garbage(line):
    """REL-4: what could not be written down or shown again is not taken in."""
    (item,) = items(line + b"\n")

    assert isinstance(item, Garbage)
    assert len(item.text) <= 800  # 200 bytes, of which each may be shown as \xff


def test_a_line_nested_up_to_the_limit_is_read():
    """REL-4: the depth that is kept is far more than any real line has."""
    (item,) = items(nested(DEPTH_LIMIT))

    assert isinstance(item, StreamLine)
    assert json.loads(json.dumps(item.data)) == item.data


def test_half_a_character_in_an_escape_is_passed_on():
    r"""JSON allows "\ud800" alone; whoever writes the text down has to mind it."""
    assert items(b'{"a":"\\ud800"}') == [StreamLine({"a": "\ud800"})]


def test_type_and_subtype_are_empty_where_they_are_no_text():
    """New types will come, and none may cost a turn."""
    assert (StreamLine({}).type, StreamLine({}).subtype) == ("", "")
    assert (StreamLine({"type": 1, "subtype": []}).type, StreamLine({"type": 1, "subtype": []}).subtype) == ("", "")
    assert StreamLine({"type": "system", "subtype": "init"}).subtype == "init"
