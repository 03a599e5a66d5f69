"""The refusals that keep a test of the CLI off the network and out of a person's settings."""

import os
import pwd
import sys
from pathlib import Path

import pytest

from hive_agent.testing import claude_command, claude_test_environment

LOOPBACK = "http://127.0.0.1:4000"


def test_the_environment_is_built_and_not_inherited(tmp_path, monkeypatch):
    """SEC-2: no credential and no proxy of the test's own process reaches the CLI."""
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://example.com")
    environment = claude_test_environment(tmp_path, LOOPBACK)
    assert set(environment) == {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_TMPDIR",
        "DISABLE_AUTOUPDATER",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_TELEMETRY",
        "HOME",
        "LANG",
        "PATH",
    }
    assert environment["HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    "url", [LOOPBACK, f"{LOOPBACK}/", "http://127.8.9.1", "http://[::1]:80", "http://localhost:4000"]
)
def test_every_loopback_address_is_accepted(tmp_path, url):
    """SEC-1: loopback is more than one address."""
    assert claude_test_environment(tmp_path, url)["ANTHROPIC_BASE_URL"] == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://api.anthropic.com",
        "http://10.0.0.1:80",
        "http://0.0.0.0:80",
        "http://[::2]:80",
        "http://[::zz]:80",
        "http://999.0.0.1",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1@example.com",
        "http://example.com\\@127.0.0.1",
        "http://127.0.0.1:80@example.com/",
        "http://127.0.0.1/\n",
        "file:///127.0.0.1",
    ],
)
def test_an_address_that_is_not_loopback_is_refused(tmp_path, url):
    """SEC-3: a test must not be able to reach a real API, however the address is written."""
    with pytest.raises(ValueError, match="loopback"):
        claude_test_environment(tmp_path, url)


def test_the_users_own_home_is_refused_under_any_name(tmp_path, monkeypatch):
    """HOST-4: a test must not touch a person's settings or sessions."""
    monkeypatch.setenv("HOME", str(tmp_path))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for home in (tmp_path, link, tmp_path / "x" / ".."):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match="must not be the user's own"):
            claude_test_environment(home, LOOPBACK)
    monkeypatch.delenv("HOME")
    with pytest.raises(ValueError, match="must not be the user's own"):
        claude_test_environment(Path(pwd.getpwuid(os.getuid()).pw_dir), LOOPBACK)


@pytest.mark.parametrize("home", ["relative", "/nowhere/at/all"])
def test_a_home_that_is_no_folder_is_refused(home):
    """SURF-6: the sentence says what to do."""
    with pytest.raises(ValueError, match="make one first"):
        claude_test_environment(Path(home), LOOPBACK)


def test_the_cli_comes_from_the_package_or_from_the_path_or_says_what_to_install(tmp_path, monkeypatch):
    """EMBED-1: the extra is named where it is missed."""
    package = tmp_path / "site" / "claude_agent_sdk"
    (package / "_bundled").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr("sys.path", [str(package.parent)])
    for name in [name for name in sys.modules if name.startswith("claude_agent_sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"hyperhive\[claude\]"):
        claude_command()
    on_path = tmp_path / "claude"
    on_path.touch(mode=0o700)
    assert claude_command() == str(on_path)
    bundled = package / "_bundled" / "claude"
    bundled.touch(mode=0o700)
    assert claude_command() == str(bundled)
