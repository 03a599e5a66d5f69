"""Which Claude CLI is started, and what is said when there is none."""

import sys
from pathlib import Path

import pytest

from hive_agent import RuntimeUnavailable, find_claude


def executable(path: Path) -> Path:
    """A file that could be a CLI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_command_of_the_configuration_comes_first(tmp_path, monkeypatch):
    """HOST-6: a path, a name on PATH, or a path from here."""
    command = executable(tmp_path / "bin/my-claude")
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(command.parent)

    for given in (str(command), "my-claude", "./my-claude", "../bin/my-claude", "~/bin/my-claude"):
        assert Path(find_claude(given)).samefile(command)
        assert Path(find_claude(given)).is_absolute()


@pytest.mark.parametrize("command", ["", "/nowhere/claude", "no-such-claude", "~no-such-user/claude", "/tmp", "a\0b"])
def test_a_command_that_is_none_names_the_setting(command):
    """TURN-5: what to correct, and what to do instead."""
    with pytest.raises(RuntimeUnavailable, match=r"correct `command` in \[runtime\] of hive.toml"):
        find_claude(command)


def test_the_cli_of_the_extra_comes_before_the_one_on_path(tmp_path, monkeypatch):
    """HOST-6: the version that was tested."""
    bundled = executable(tmp_path / "site/claude_agent_sdk/_bundled/claude")
    on_path = executable(tmp_path / "bin/claude")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty"), str(tmp_path / "site")])
    assert find_claude(None) == str(bundled)

    bundled.chmod(0o644)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty")])
    assert find_claude(None) == str(on_path)


def test_no_cli_at_all_names_the_extra_and_the_setting(tmp_path, monkeypatch):
    """TURN-5: the first thing a new user may see."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(RuntimeUnavailable, match=r"pip install 'hyperhive\[claude\]'.*put `claude` on PATH.*`command`"):
        find_claude(None)
