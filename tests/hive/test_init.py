"""A new hive's files."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from hive._config import AgentSettings, HiveConfig, RuntimeConfig
from hive._config_file import load_config, parse_config
from hive._errors import InitRefused
from hive._init import init_hive


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_is_written_can_be_loaded(tmp_path: Path):
    """HOST-6: and is what an embedder gets by default, with two agents."""
    new = init_hive(tmp_path / "nest")
    config = load_config(new.config)
    assert config == HiveConfig(
        name="nest",
        state_dir=tmp_path / "nest" / "hive-state",
        agents={"ruth": AgentSettings(), "iris": AgentSettings()},
    )
    assert new.prompts == {name: config.paths.agent_prompt(name) for name in ("ruth", "iris")}
    assert all(path.read_text(encoding="utf-8").startswith(f"You are {name}") for name, path in new.prompts.items())
    assert (config.state_dir / ".gitignore").read_text() == "*\n"


def test_every_key_in_a_comment_is_one_and_shows_its_default(tmp_path: Path):
    """HOST-6: who uncomments a line changes nothing and breaks nothing."""
    text = init_hive(tmp_path / "nest").config.read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines()[3:]]
    kept = [line for line in lines if '"…"' not in line and "ANTHROPIC" not in line and "/run/user" not in line]
    kept = [line for line in kept if not line.startswith(("command =", 'allowed_recipients = ["ruth"]'))]
    uncommented = parse_config("\n".join(kept), base=tmp_path / "nest")
    assert uncommented == load_config(tmp_path / "nest" / "hive.toml")
    assert set(tomllib.loads("\n".join(lines))["runtime"]) == {
        field for field in RuntimeConfig.__annotations__ if field not in ("session_title", "rate_limit_sleep_seconds")
    }


def test_nobody_else_may_read_it(tmp_path: Path):
    """SEC-5: whatever the umask."""
    before = os.umask(0)
    try:
        init_hive(tmp_path / "nest")
    finally:
        os.umask(before)
    for path in (tmp_path / "nest").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_nothing_is_overwritten(tmp_path: Path):
    """HOST-6: each thing in the way is named, and nothing changes."""
    init_hive(tmp_path)
    (tmp_path / "hive.toml").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(InitRefused) as caught:
        init_hive(tmp_path)
    assert "hive.toml" in str(caught.value)
    assert "prompt.md" in str(caught.value)
    assert (tmp_path / "hive.toml").read_text() == "mine"
    assert tree(tmp_path) == before


def test_a_dangling_link_is_in_the_way_too(tmp_path: Path):
    """SEC-4: nothing is written through somebody's link."""
    (tmp_path / "hive.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InitRefused, match=r"a hive is there already: .*hive\.toml"):
        init_hive(tmp_path)
    assert tree(tmp_path) == ["hive.toml"]


def test_what_was_begun_is_taken_back(tmp_path: Path):
    """REL-3: a folder that cannot be made leaves nothing half done."""
    (tmp_path / "hive-state").mkdir()
    (tmp_path / "hive-state" / "agents").write_text("a file where a folder should be")
    before = tree(tmp_path)
    with pytest.raises(InitRefused, match="what was made is removed again"):
        init_hive(tmp_path)
    assert tree(tmp_path) == before


def test_a_folder_too_deep_for_a_socket_is_refused(tmp_path: Path):
    """REL-3: rather than a hive.toml that does not load."""
    with pytest.raises(InitRefused, match="at most 107 bytes"):
        init_hive(tmp_path / ("d" * 100))
    assert tree(tmp_path) == []


def test_a_hive_is_called_after_its_folder_if_it_can_be(tmp_path: Path):
    """SEC-4: a name obeys the rule of names."""
    assert load_config(init_hive(tmp_path / "My Hive").config).name == "hive"
