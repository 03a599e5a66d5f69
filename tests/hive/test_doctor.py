"""A hive looked over: what is well is said to be well, and each ill is found and has a remedy (HOST-2, REL-3)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
import trio
from click.testing import CliRunner

import hive_broker
from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive
from hive._doctor import Verdict, examine_hive
from hive.cli._hive import hive as hive_command

CLAUDE = """\
if [ "$1" = --version ]; then
    env > "$(dirname "$0")/environment"
    echo "1.2.3 (fake)"
    exit 0
fi
cat > /dev/null; exec sleep 1000
"""

CHECKS = [
    "hive",
    "database",
    "turns",
    "runtimes",
    "addresses",
    "sockets",
    "port",
    "agents",
    "permissions",
    "disk",
    "claude",
]


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    path = tmp_path / "fake-claude"
    path.write_text(f"#!/bin/sh\n{CLAUDE}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def config(tmp_path: Path, claude: Path) -> HiveConfig:
    settings = AgentSettings(runtime=RuntimeConfig(command=str(claude), grace_seconds=0.2))
    return HiveConfig(state_dir=tmp_path / "state", agents={"ruth": settings, "iris": settings})


@pytest.fixture
async def stopped(config: HiveConfig) -> HiveConfig:
    """A hive that ran and was stopped as it should be."""
    async with open_hive(config):
        pass
    return config


def look(config: HiveConfig) -> dict[str, tuple[Verdict, str]]:
    return {found.check: (found.verdict, found.text) for found in examine_hive(config.paths, config)}


def ills(config: HiveConfig) -> dict[str, tuple[Verdict, str]]:
    return {check: found for check, found in look(config).items() if found[0] is not Verdict.OK}


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def test_a_hive_that_never_ran_is_well(config: HiveConfig) -> None:
    """HOST-2: and nothing is made by looking."""
    found = look(config)
    assert list(found) == CHECKS
    assert ills(config) == {}
    assert not config.state_dir.exists()


async def test_a_stopped_hive_is_well_and_left_as_it_is(stopped: HiveConfig) -> None:
    """HOST-2: read-only, to the last byte and file."""
    before = listing(stopped.state_dir)
    found = look(stopped)
    assert ills(stopped) == {}
    assert listing(stopped.state_dir) == before
    assert found["hive"][1] == "stopped"
    assert found["database"][1].startswith("sound; schema ")
    assert found["agents"][1] == "iris, ruth"
    assert found["claude"][1].startswith("1.2.3 (fake), /")


async def test_a_running_hive_is_well(config: HiveConfig) -> None:
    """HOST-2: looked at from outside while it works."""
    async with open_hive(config) as hive:
        await hive.send(to="ruth", body="hello", in_reply_to=None)
        found = await trio.to_thread.run_sync(look, config)
        assert {check: text for check, (verdict, text) in found.items() if verdict is not Verdict.OK} == {}
        assert found["hive"][1] == f"running: hive 'hive', pid {os.getpid()}"
        assert found["addresses"][1] == str(config.paths.hive_json)
        assert "answer on 127.0.0.1:" in found["port"][1]
        assert found["sockets"][1].endswith("all answering")


def test_the_cli_is_started_off_the_network_and_away_from_home(config: HiveConfig, claude: Path) -> None:
    """SEC-1, SEC-5: with the four switches, an empty home, and nothing of the caller's environment."""
    look(config)
    lines = (claude.parent / "environment").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    for switch in (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "DISABLE_ERROR_REPORTING",
    ):
        assert environment[switch] == "1"
    assert environment["HOME"] not in ("", os.environ.get("HOME"))
    assert not Path(environment["HOME"]).exists()
    assert set(environment) <= {"HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_", *environment.keys() & {"LANG"}} | {
        name for name in environment if name.startswith(("CLAUDE_CODE_DISABLE", "DISABLE_"))
    }


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 3", "must say its version, and ended with code 3"),
        ("exit 0", "must say its version, and ended with code 0"),
        (None, "is not an executable file or a command on PATH"),
    ],
)
def test_a_cli_that_does_not_work_is_found(config: HiveConfig, claude: Path, script: str | None, sentence: str) -> None:
    """TURN-5: before the first turn fails of it."""
    claude.write_text(f"#!/bin/sh\n{script}\n") if script else claude.unlink()
    ((check, (verdict, text)),) = ills(config).items()
    assert (check, verdict) == ("claude", Verdict.FAILED)
    assert sentence in text


async def test_a_damaged_database_is_found(stopped: HiveConfig) -> None:
    """REL-3: with the remedy."""
    async with hive_broker.open_broker(stopped.paths.broker_db, owner="test") as broker:
        await broker.set_agents(["iris"])
        for _ in range(4):
            await broker.deliver("system", "iris", "x" * 20_000)
    content = bytearray(stopped.paths.broker_db.read_bytes())
    content[-30_000:] = b"\xff" * 30_000
    stopped.paths.broker_db.write_bytes(content)
    verdict, text = ills(stopped)["database"]
    assert verdict is Verdict.FAILED
    assert "restore a backup" in text


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"no database", "restore a backup"), (b"SQLite format 3\0" + b"\xff" * 99, "restore a")]
)
async def test_something_else_in_the_databases_place_is_found(
    stopped: HiveConfig, content: bytes, sentence: str
) -> None:
    """REL-3."""
    stopped.paths.broker_db.write_bytes(content)
    assert sentence in ills(stopped)["database"][1]


async def test_a_database_that_is_gone_is_found(stopped: HiveConfig) -> None:
    """REL-3: what was there and is not any more is no hive that never ran."""
    async with hive_broker.open_broker(stopped.paths.broker_db, owner="test") as broker:
        await broker.set_agents(["iris"])
        await broker.deliver("system", "iris", "precious")
    stopped.paths.broker_db.unlink()
    verdict, text = look(stopped)["database"]
    assert verdict is Verdict.FAILED
    assert "the database is gone" in text


async def test_a_pipe_in_the_databases_place_holds_nobody_up(stopped: HiveConfig) -> None:
    """REL-3: opening one waits for ever."""
    stopped.paths.broker_db.unlink()
    os.mkfifo(stopped.paths.broker_db)
    verdict, text = look(stopped)["database"]
    assert verdict is Verdict.FAILED
    assert "must be a regular file" in text


async def test_rows_that_refer_to_nothing_are_found(stopped: HiveConfig) -> None:
    """REL-3: what the integrity of the file's pages does not cover."""
    db = apsw.Connection(str(stopped.paths.broker_db))
    db.execute(
        """INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, in_reply_to)
           VALUES ('iris', 1, 'ruth', 'x', 1, 0, 99)"""
    )
    db.close()
    verdict, text = ills(stopped)["database"]
    assert verdict is Verdict.FAILED
    assert "row 1 of messages refers to a row of messages that is not there" in text


async def test_a_database_of_a_newer_version_is_found(stopped: HiveConfig) -> None:
    """REL-3."""
    db = apsw.Connection(str(stopped.paths.broker_db))
    db.pragma("user_version", 999)
    db.close()
    assert "start the newer version" in ills(stopped)["database"][1]


async def test_what_a_killed_hive_left_is_found(stopped: HiveConfig, tmp_path: Path) -> None:
    """REL-1, failure 7: its turns, its addresses, its socket, its log; the log is read and stays."""
    paths = stopped.paths
    async with hive_broker.open_broker(paths.broker_db, owner="test") as broker:
        await broker.set_agents(["ruth"])
        await broker.deliver("system", "ruth", "x")
        ruth = broker.mailbox("ruth")
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(turn_id=turn.id)
        killed = tmp_path / "killed"
        shutil.copytree(paths.broker_db.parent, killed)
    shutil.rmtree(paths.broker_db.parent)
    killed.rename(paths.broker_db.parent)
    paths.hive_json.touch(mode=0o600)
    paths.hive_json.write_text(json.dumps({"version": 1, "pid": 1}))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(paths.host_sock))
    found = ills(stopped)
    assert found.keys() == {"turns", "addresses", "sockets"}
    assert {verdict for verdict, _ in found.values()} == {Verdict.WARNING}
    assert "1 open, 1 messages in flight (ruth), and no hive runs" in found["turns"][1]
    assert "is of a hive that was cut off" in found["addresses"][1]
    assert f"dead, of a hive that was cut off: {paths.host_sock};" in found["sockets"][1]
    assert paths.broker_db.with_name("broker.sqlite-wal").stat().st_size > 0


async def test_a_stranger_on_the_hives_socket_is_found(stopped: HiveConfig) -> None:
    """REL-2."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(stopped.paths.host_sock))
        sock.listen()
        verdict, text = ills(stopped)["sockets"]
    assert verdict is Verdict.FAILED
    assert "no hive runs" in text


@pytest.fixture
def orphan(config: HiveConfig) -> Iterator[subprocess.Popen[bytes]]:
    """A process marked as iris's runtime."""
    harness = config.paths.agent_harness_dir("iris")
    with subprocess.Popen(["sleep", "60"], env={"HIVE_RUNTIME_OWNER": str(harness.resolve())}) as process:
        yield process
        process.kill()


async def test_a_runtime_without_a_hive_is_found(stopped: HiveConfig, orphan: subprocess.Popen[bytes]) -> None:
    """TURN-4, failure 15: and one of another hive is not ours."""
    verdict, text = ills(stopped)["runtimes"]
    assert verdict is Verdict.FAILED
    assert text == (
        f"running without a hive: iris ({orphan.pid}); the next hive up ends them, "
        f"or end them yourself: kill {orphan.pid}"
    )
    elsewhere = HiveConfig(state_dir=stopped.state_dir / "other", agents=stopped.agents)
    assert look(elsewhere)["runtimes"][1] == "none is running"


async def test_files_open_to_others_are_found(stopped: HiveConfig) -> None:
    """SEC-5: tokens, mail, what the harness keeps."""
    token = stopped.paths.token_file("iris")
    token.chmod(0o640)
    stopped.paths.agent_harness_dir("ruth").chmod(0o755)
    verdict, text = ills(stopped)["permissions"]
    assert verdict is Verdict.FAILED
    assert str(token) in text
    assert f"{stopped.paths.agent_harness_dir('ruth')}; chmod go=" in text


async def test_folders_that_are_no_agents_are_found(stopped: HiveConfig, config: HiveConfig) -> None:
    """SEC-4: and those of agents the configuration does not know."""
    agents = stopped.paths.agents_dir
    (agents / "Not An Agent").mkdir()
    (agents / "file").write_text("")
    (agents / "link").symlink_to(agents / "iris")
    fewer = HiveConfig(state_dir=config.state_dir, agents={"ruth": config.agents["ruth"]})
    verdict, text = ills(fewer)["agents"]
    assert verdict is Verdict.WARNING
    assert "Not An Agent" in text
    assert "file" in text
    assert "link" in text
    assert "folders of agents that are not in hive.toml: iris" in text


async def test_a_port_that_is_taken_is_found(stopped: HiveConfig) -> None:
    """SURF-1: a kept one moves, a fixed one keeps the hive from starting."""
    port = int(stopped.paths.mcp_port_file.read_text())
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert ills(stopped)["port"][0] is Verdict.WARNING
        fixed = HiveConfig(state_dir=stopped.state_dir, agents=stopped.agents, mcp_port=port)
        assert ills(fixed)["port"][0] is Verdict.FAILED
    stopped.paths.mcp_port_file.write_text("seven")
    assert "must hold a port, got 'seven'" in ills(stopped)["port"][1]


async def test_addresses_of_another_process_are_found(config: HiveConfig) -> None:
    """failure 7: a stale file beside a live hive."""
    async with open_hive(config):
        content = config.paths.hive_json.read_text()
        for wrong, sentence in (('{"pid": 1}', "is of pid 1, and the hive is pid"), ("[]", "must be a JSON object")):
            config.paths.hive_json.write_text(wrong)
            found = await trio.to_thread.run_sync(ills, config)
            assert sentence in found["addresses"][1]
        config.paths.hive_json.write_text(content)


# --- the command


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(hive_command, ["doctor", *args], catch_exceptions=False)


def write_config(tmp_path: Path, claude: Path) -> None:
    (tmp_path / "hive.toml").write_text(
        f'[hive]\nstate_dir = "state"\n[runtime]\ncommand = "{claude}"\n[defaults]\nsandbox = "none"\n[agents.ruth]\n'
    )


def test_the_command_prints_one_line_a_check(run, tmp_path: Path, claude: Path) -> None:
    """HOST-2: the configuration first."""
    write_config(tmp_path, claude)
    result = run()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[1] for line in lines] == ["config", *CHECKS]
    assert [line for line in lines if not line.startswith("ok ")] == []


def test_the_command_prints_json_and_exits_with_1_when_something_failed(run, tmp_path: Path, claude: Path) -> None:
    """HOST-2: for scripts."""
    write_config(tmp_path, claude)
    claude.unlink()
    result = run("--json")
    assert result.exit_code == 1
    rows = json.loads(result.output)
    assert [row["check"] for row in rows if row["verdict"] == "failed"] == ["claude"]
    assert rows[0].keys() == {"check", "verdict", "text"}


def test_a_configuration_that_is_wrong_is_the_finding(run, tmp_path: Path) -> None:
    """HOST-2: all that is wrong with it, on one line."""
    (tmp_path / "hive.toml").write_text("[hive]\nnmae = 'x'\n")
    result = run()
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith("failed   config")
    assert "did you mean name?" in line


def test_a_bare_state_folder_will_do(run, tmp_path: Path) -> None:
    """HOST-2: such as the demo's, which has no hive.toml."""
    result = run("--state", str(tmp_path / "state"))
    assert result.output.splitlines()[0].startswith("ok       config       not looked at")
    assert run("--state", "x", "--config", "y").exit_code == 2


@pytest.mark.slow
def test_the_program_ends_with_the_commands_code(tmp_path: Path) -> None:
    """HOST-2."""
    program = Path(sys.executable).with_name("hive")
    done = subprocess.run([program, "doctor"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no hive.toml" in done.stdout
