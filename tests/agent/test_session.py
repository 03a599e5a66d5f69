"""The one session that an agent's turns continue."""

import json
import os
import stat

import pytest

from hive_agent._runtime._session import Session, SessionFile, write_private

ID = "d0259c59-c2ad-4a1a-ab50-f6dcaaa3648f"


@pytest.fixture
def path(tmp_path):
    """Where the session is remembered."""
    return tmp_path / "session.json"


def test_a_session_is_remembered(path):
    """TURN-3: across restarts of the harness."""
    session = Session(title="hive-session", id=ID, by_id=True)
    SessionFile(path).write(session)

    assert SessionFile(path).read("hive-session") == session


def test_another_title_is_another_session(path):
    """TURN-3: a changed title begins anew."""
    SessionFile(path).write(Session(title="old", id=ID))

    assert SessionFile(path).read("new") is None


def test_a_forgotten_session_is_gone(path):
    """TURN-3: also when there was none."""
    file = SessionFile(path)
    file.forget()
    file.write(Session(title="t", id=ID))
    file.forget()

    assert file.read("t") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'"t"',
        b'{"title":"t"}',
        b'{"title":"t","id":5,"by_id":false}',
        b'{"title":"t","id":"x","by_id":"yes"}',
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:30]),
)
def test_a_file_that_makes_no_sense_is_no_session(path, content):
    """TURN-3: the CLI is asked for the title then, which heals."""
    path.write_bytes(content)

    assert SessionFile(path).read("t") is None


def test_a_folder_in_its_place_is_no_session(path):
    """REL-3: reading never fails."""
    path.mkdir()

    assert SessionFile(path).read("t") is None


@pytest.fixture
def lax_umask():
    """A process that lets everybody read what it writes."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("lax_umask")
def test_a_private_file_is_nobody_elses(tmp_path):
    """SEC-5, SURF-7: it holds tokens; also when an older one was open to all."""
    path = tmp_path / "mcp.json"
    path.write_text("old")
    path.chmod(0o666)
    write_private(path, "token")

    assert path.read_text() == "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_written_through_no_link(tmp_path):
    """SEC-4: nor through a leftover of a crash."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "mcp.json").symlink_to(precious)
    (tmp_path / "mcp.json.new").symlink_to(precious)
    write_private(tmp_path / "mcp.json", "token")

    assert precious.read_text() == "kept"
    assert (tmp_path / "mcp.json").read_text() == "token"


def test_a_text_with_half_a_character_is_written(tmp_path):
    """REL-4: a role file or a title must not end a turn."""
    write_private(tmp_path / "prompt", "a\ud800")
    SessionFile(tmp_path / "session").write(Session(title="\ud800", id=ID))

    assert (tmp_path / "prompt").read_text() == "a\\ud800"
    assert json.loads((tmp_path / "session").read_text())["title"] == "\ud800"


def test_a_folder_that_is_gone_is_an_error(tmp_path):
    """REL-3: the turn is told; the old file stays where there is one."""
    with pytest.raises(FileNotFoundError):
        write_private(tmp_path / "gone" / "mcp.json", "x")
