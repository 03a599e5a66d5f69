"""Text for readers that are slow, gone, or cannot read it; and the log's lines among it."""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import attrs
import pytest

import hive_broker
from hive.cli._log_lines import _Formatter, _Handler
from hive.cli._outlet import Outlet


@attrs.frozen
class Pipe:
    """One that an outlet writes into.

    Attributes:
        reading: its other end.
        stream: what the outlet is given.
    """

    reading: int
    stream: TextIO

    def read_on(self) -> tuple[threading.Thread, list[bytes]]:
        """Begin to read it to its end."""
        got: list[bytes] = []

        def read() -> None:
            while data := os.read(self.reading, 65536):
                got.append(data)

        thread = threading.Thread(target=read)
        thread.start()
        return thread, got


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="ascii") as stream:
        yield Pipe(reading, stream)
    os.close(reading)


def gap(lines: int) -> str:
    return f"[{lines} lost]\n"


def lead_to(stream: TextIO, path: str) -> None:
    with Path(path).open("ab") as file:
        os.dup2(file.fileno(), stream.fileno(), inheritable=False)


def test_lines_come_in_order_and_what_cannot_be_encoded_is_escaped(pipe: Pipe):
    """REL-3: an old locale is no reason to fail."""
    outlet = Outlet(pipe.stream, gap=gap)
    for text in ("one\n", "zwei ✓ ü\n", "half \ud800\n"):
        outlet.put(text)
    outlet.drain()
    assert os.read(pipe.reading, 1000) == b"one\nzwei \\u2713 \\xfc\nhalf \\ud800\n"


def test_nobody_waits_for_a_reader_and_what_it_missed_is_counted(pipe: Pipe):
    """REL-4: a bounded queue, one note, and a gap that is never hidden."""
    told: list[str] = []
    outlet = Outlet(pipe.stream, gap=gap, troubled=told.append)
    total = 2000
    for number in range(total):
        outlet.put(f"{number}: {'x' * 1000}\n")
    assert told == ["does not take what is written"]
    thread, got = pipe.read_on()
    outlet.drain()
    outlet.put("the last\n")
    outlet.drain()
    pipe.stream.close()
    thread.join(5)
    *lines, last = b"".join(got).decode().splitlines()
    # The pipe itself takes some lines at any time, so there may be more than one gap; each stands where it is.
    shown = [int(line.partition(":")[0]) for line in lines if not line.startswith("[")]
    missed = sum(int(line[1:].partition(" ")[0]) for line in lines if line.startswith("["))
    assert last == "the last"
    assert shown == sorted(set(shown))
    assert len(shown) + missed == total
    assert 1000 < len(shown) < 1400


@pytest.mark.slow
def test_what_a_reader_never_reads_holds_up_the_end_for_a_second_at_most(pipe: Pipe):
    """STOP-3: the wait at exit is bounded; the suite's own bound would end this test otherwise."""
    outlet = Outlet(pipe.stream, gap=gap)
    outlet.put("x" * 200_000 + "\n")
    outlet.drain()
    assert len(os.read(pipe.reading, 300_000)) < 200_000
    thread, _ = pipe.read_on()  # lets the outlet's thread go
    outlet.drain()
    pipe.stream.close()
    thread.join(5)


def test_a_full_disk_is_told_once_and_the_lines_after_it_come_again(pipe: Pipe, tmp_path: Path):
    """REL-3: recovery without a restart."""
    told: list[str] = []
    lead_to(pipe.stream, "/dev/full")
    outlet = Outlet(pipe.stream, gap=gap, troubled=told.append)
    for _ in range(3):
        outlet.put("lost\nlost\n")
        outlet.drain()
    assert told == ["cannot be written (No space left on device)"]
    lead_to(pipe.stream, str(tmp_path / "log"))
    outlet.put("kept\n")
    outlet.drain()
    assert (tmp_path / "log").read_text() == "[6 lost]\nkept\n"
    lead_to(pipe.stream, "/dev/full")
    outlet.put("lost\n")
    outlet.drain()
    assert len(told) == 2


def test_a_line_that_was_cut_is_ended_before_the_next_one(pipe: Pipe, tmp_path: Path):
    """BUS-3: one line of a log is never glued to another."""
    cut = threading.Event()
    outlet = Outlet(pipe.stream, gap=gap, troubled=lambda _: cut.set())
    reading, writing = os.pipe()
    os.dup2(writing, pipe.stream.fileno(), inheritable=False)
    os.close(writing)
    outlet.put("x" * 200_000 + "\n")
    os.read(reading, 1)  # it is in the middle of the line now
    os.close(reading)
    assert cut.wait(5)
    lead_to(pipe.stream, str(tmp_path / "log"))
    outlet.drain()
    outlet.put("next\n")
    outlet.drain()
    assert (tmp_path / "log").read_text() == "\n[1 lost]\nnext\n"


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_without_a_descriptor_it_goes_nowhere(stream: TextIO | None):
    """EMBED-1: no thread, no error."""
    before = threading.active_count()
    outlet = Outlet(stream, gap=gap)
    outlet.put("x\n")
    outlet.drain()
    assert threading.active_count() == before


# --- the log


def shown(error: Exception, words: str, *, verbose: bool = False, fields: dict[str, object] | None = None):
    record = logging.LogRecord("hive", logging.ERROR, __file__, 1, words, (), None)
    record.exc_info = (type(error), error, None)
    record.fields = fields or {}
    text = _Formatter(verbose=verbose).format(record)
    assert record.exc_info is not None, "other handlers show it"
    return text.partition("ERROR: ")[2]


@pytest.mark.parametrize(
    "error",
    [
        IsADirectoryError(21, "Is a directory", "/tokens/ruth"),
        ExceptionGroup("x", [ExceptionGroup("y", [hive_broker.BrokerUnavailable("the disk is full: make room")])]),
    ],
)
def test_a_fault_of_the_world_is_one_sentence_and_verbose_says_where(error: Exception):
    """SURF-6, HOST-5: an operator can do nothing with a traceback."""
    leaf = error.exceptions[0].exceptions[0] if isinstance(error, ExceptionGroup) else error
    assert shown(error, "an agent ended") == f"an agent ended: {leaf}"
    assert shown(error, f"an agent ended  reason={str(leaf)!r}") == f"an agent ended  reason={str(leaf)!r}"
    assert type(error).__name__ in shown(error, "an agent ended", verbose=True)


@pytest.mark.parametrize(
    ("error", "words", "fields"),
    [
        (KeyError("x"), "an agent ended", {}),
        (ExceptionGroup("x", [OSError("a"), KeyError("x")]), "an agent ended", {}),
        (OSError("a"), "a request failed", {"error_id": "abcd"}),
        (OSError("a"), "it failed, error id abcd", {}),
    ],
)
def test_a_bug_and_what_was_promised_under_an_id_keep_their_traceback(
    error: Exception, words: str, fields: dict[str, object]
):
    """SURF-6: an id finds the traceback in the log."""
    assert type(error).__name__ in shown(error, words, fields=fields)


def test_no_log_line_raises_and_plain_ones_are_as_they_were(pipe: Pipe):
    """ENV-1: also a stranger's with arguments that do not fit."""
    handler = _Handler(Outlet(pipe.stream, gap=gap))
    handler.setFormatter(_Formatter(verbose=False))
    handler.handle(logging.LogRecord("mcp", logging.ERROR, "/x.py", 7, "%d", ("no number",), None))
    handler.handle(logging.LogRecord("hive", logging.WARNING, "/x.py", 7, "plain", (), None))
    handler._outlet.drain()
    bad, plain = os.read(pipe.reading, 10_000).decode().splitlines()
    assert bad.startswith("a log line of mcp (/x.py:7) cannot be put into words: TypeError(")
    assert plain.endswith("  WARNING: plain")
