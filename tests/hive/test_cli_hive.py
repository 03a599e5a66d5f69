"""``hive``: what it says and how it ends; and the text of strangers on a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hive._hostsock import AgentDetail
from hive.cli._hive import hive
from hive.cli._render import _agents_table
from hive.cli._text import age, on_terminal

HIVE = Path(sys.executable).with_name("hive")


def test_init_says_what_comes_next(tmp_path: Path):
    """HOST-6: from nothing to a first message."""
    result = CliRunner().invoke(hive, ["init", str(tmp_path / "nest")])
    assert result.exit_code == 0
    for words in ("hive.toml", "ruth, iris", "prompt.md", f"cd {tmp_path / 'nest'}", "hive up", "hivectl send ruth"):
        assert words in result.output


def test_init_refuses_in_one_sentence(tmp_path: Path):
    """HOST-6: exit code 1, nothing on stdout, no traceback."""
    (tmp_path / "hive.toml").write_text("")
    result = CliRunner().invoke(hive, ["init", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("hive: a hive is there already: ")


def test_up_says_everything_that_is_wrong_with_the_file(tmp_path: Path):
    """HOST-6: a line a problem, each with the file's name."""
    file = tmp_path / "hive.toml"
    file.write_text("[hive]\nnme = 1\n[agents.ruth]\nkind = 'acp'\n")
    result = CliRunner().invoke(hive, ["up", "--config", str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first == f"hive: {file}: [hive] nme is not known; did you mean name?"
    assert second.startswith(f"hive: {file}: [agents.ruth] kind must be")


def test_up_takes_a_file_or_the_demo():
    """HOST-2: not both."""
    result = CliRunner().invoke(hive, ["up", "--demo", "--config", "x"])
    assert result.exit_code == 2
    assert "--demo brings its own configuration" in result.stderr


@pytest.mark.slow
def test_the_programs_exit_codes(tmp_path: Path):
    """HOST-2: as a program, from the console script."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [str(HIVE), *args]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)

    assert run("--version").stdout.startswith("hive ")
    assert run("nope").returncode == 2
    absent = run("up")
    assert (absent.returncode, absent.stderr) == (
        1,
        "hive: there is no hive.toml; make one with `hive init`, or name yours by --config\n",
    )
    assert run("init").returncode == 0
    assert run("init").returncode == 1


@pytest.mark.slow
@given(st.text())
def test_no_text_reaches_a_terminal_as_a_command(text: str):
    """DASH-2: nothing that acts, hides or reorders is left; what is left can be encoded."""
    for shown in (on_terminal(text), on_terminal(text, lines=True).replace("\n", "")):
        shown.encode("utf-8")
        assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} or c == "\u200d" for c in shown)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_plain_text_is_shown_as_it_is(text: str):
    """DASH-2: letters of every script, and emoji."""
    assert on_terminal(text) == text


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "now"), (0.4, "now"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (2e5, "2 d")]
)
def test_a_duration_is_said_as_people_say_it(seconds: float, words: str):
    """HOST-2: its largest whole unit; a clock that jumped back says nothing odd."""
    assert age(seconds) == words


def test_the_table_fits_into_eighty_columns():
    """HOST-2: whatever names, models and statuses come."""
    out = io.StringIO()
    agents = [
        AgentDetail(name="ruth", running=True, turn_state="idle", turn_state_since=0.0),
        AgentDetail(
            name="a" * 63,
            running=True,
            turn_state="compacting",
            turn_state_since=0.0,
            last_outcome="prompt_too_long",
            active_model="claude-with-a-long-name-4-6",
            status_text="reviewing the third part of a long change",
            status_set_at=1.0,
        ),
    ]
    Console(file=out, width=80, markup=False).print(_agents_table(agents, 200_000.0))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out.getvalue()
    assert os.linesep not in lines[0]
