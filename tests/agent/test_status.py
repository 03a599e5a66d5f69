"""An agent's status line in a folder where the agent can put anything."""

import os
from pathlib import Path

import pytest

from hive_agent._status import MAX_STATUS_CHARACTERS, StatusFile


@pytest.fixture
def status(tmp_path) -> StatusFile:
    """The status of an agent whose state folder is ``tmp_path``."""
    return StatusFile(tmp_path)


@pytest.fixture
def file(tmp_path) -> Path:
    """Where the line is kept."""
    return tmp_path / "hyperhive-status"


def line_of(status: StatusFile) -> str | None:
    """The line alone."""
    read = status.read()
    return read[0] if read else None


def test_a_status_is_kept_as_one_plain_line(status, file):
    """SELF-1: kept where the agent and a person can read it."""
    status.write("  reviewing the patch · 3 of 7 ✓ \n")

    assert file.read_text() == "reviewing the patch · 3 of 7 ✓\n"
    assert line_of(status) == "reviewing the patch · 3 of 7 ✓"


def test_a_status_has_the_time_it_was_set_at(status, file):
    """META-1: status_set_at comes from the file, so it survives a restart."""
    status.write("busy")
    os.utime(file, (1000.0, 1234.5))

    assert status.read() == ("busy", 1234.5)


@pytest.mark.parametrize("blank", ["", "   ", "\n"])
def test_an_empty_status_clears(status, file, blank):
    """SELF-1: also when there was none."""
    status.write(blank)
    status.write("busy")
    status.write(blank)

    assert status.read() is None
    assert not file.exists()


def test_a_status_of_the_limit_is_kept_and_a_longer_one_refused(status):
    """SELF-1: 200 characters, whatever their size in bytes; the old one stays."""
    longest = "💡" * MAX_STATUS_CHARACTERS
    status.write(longest)

    with pytest.raises(ValueError, match="at most 200 characters, got 201: shorten it"):
        status.write("x" * 201)
    assert line_of(status) == longest


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\0", "\x1b", "\x85", "\u2028", "\u2029", "\ud800"])
def test_a_status_that_is_not_one_printable_line_is_refused(status, character):
    """SELF-1: it is shown in a terminal and on a page."""
    with pytest.raises(ValueError, match="one line of printable text"):
        status.write(f"a{character}b")
    assert status.read() is None


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", None),
        (b"\n\n", None),
        (b"\x1b\x00\x07\n", None),
        (b"one\ntwo\n", "one"),
        (b"\n  one", "one"),
        (b"a\x1b[31mb\rc", "a [31mb c"),
        ("a\u2028b".encode(), "a b"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 5_000_000, "x" * MAX_STATUS_CHARACTERS),
        (("💡" * 500).encode(), "💡" * MAX_STATUS_CHARACTERS),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_whatever_the_agent_wrote_there_one_bounded_line_is_shown(status, file, content, shown):
    """SELF-1, DASH-2: the file is the agent's, and what it says is a stranger's text."""
    file.write_bytes(content)

    assert line_of(status) == shown


def test_a_link_is_not_followed_when_it_is_read(status, file, tmp_path):
    """SEC-4: else an agent could have us show what it may not see."""
    secret = tmp_path / "secret"
    secret.write_text("hush")
    file.symlink_to(secret)

    assert status.read() is None


def test_a_link_is_not_followed_when_it_is_written(status, file, tmp_path):
    """SEC-4: else an agent could have us overwrite a file that it may not touch."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    file.symlink_to(precious)
    (tmp_path / "hyperhive-status.new").symlink_to(precious)

    status.write("busy")

    assert precious.read_text() == "kept"
    assert line_of(status) == "busy"
    assert not file.is_symlink()


def test_a_pipe_or_a_folder_in_its_place_holds_nobody_up(status, file):
    """SEC-4: opening a pipe waits for its other end, and the whole hive would wait with it."""
    os.mkfifo(file)
    assert status.read() is None
    file.unlink()
    file.mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert status.read() is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_that_is_gone_is_an_error_in_words(status, tmp_path):
    """SELF-1: the caller learns that nothing was kept."""
    tmp_path.rmdir()

    with pytest.raises(FileNotFoundError):
        status.write("busy")
    assert status.read() is None


def test_a_leftover_of_a_crash_is_no_hindrance(status, tmp_path):
    """REL-1: killed between the two steps of a write."""
    (tmp_path / "hyperhive-status.new").write_text("half")

    status.write("whole")

    assert line_of(status) == "whole"
