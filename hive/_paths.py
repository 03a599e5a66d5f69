"""Where each file of a hive is.

Owns the layout of the state folder and the one limit the kernel sets on it. Makes nothing and reads nothing.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import attrs

import hive_broker

from ._errors import SocketPathTooLong

__all__ = ["MAX_SOCKET_PATH_BYTES", "HivePaths", "hive_json_in", "require_socket_path"]

MAX_SOCKET_PATH_BYTES = 107
"""Linux has 108 bytes for the path of a unix socket, and the last one is NUL."""


def require_socket_path(path: Path) -> None:
    """Refuse a path no unix socket can have.

    Raises:
        SocketPathTooLong: it has more than ``MAX_SOCKET_PATH_BYTES`` bytes.
    """
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise SocketPathTooLong(f"the path of a unix socket must be one this system can write, got {path!r}") from None
    if length > MAX_SOCKET_PATH_BYTES:
        raise SocketPathTooLong(
            f"the path of a unix socket must have at most {MAX_SOCKET_PATH_BYTES} bytes, {path} has {length}; "
            "set runtime_dir to a folder with a shorter path, such as /run/user/1000/hive"
        )


def hive_json_in(state_dir: Path) -> Path:
    """The file that says what a running hive with this state folder answers on."""
    return state_dir / "run" / "hive.json"


@attrs.frozen(kw_only=True)
class HivePaths:
    """The place of every file of one hive.

    Attributes:
        state_dir: everything durable.
        runtime_dir: where sockets are; None puts them in ``run_dir``.

    Raises:
        SocketPathTooLong: the socket's path would be too long where it would be.
    """

    state_dir: Path
    runtime_dir: Path | None = None

    def __attrs_post_init__(self) -> None:
        require_socket_path(self.host_sock)

    @property
    def broker_db(self) -> Path:
        """The broker's database."""
        return self.state_dir / "db" / "broker.sqlite"

    @property
    def backups_dir(self) -> Path:
        """Copies of the database."""
        return self.state_dir / "backups"

    def backup_file(self, at: float) -> Path:
        """Where a backup made at that instant (unix seconds) goes."""
        instant = datetime.fromtimestamp(at, UTC)
        return (
            self.backups_dir / f"broker-{instant.strftime('%Y%m%dT%H%M%S')}-{instant.microsecond // 1000:03d}Z.sqlite"
        )

    @property
    def mcp_port_file(self) -> Path:
        """The port that was picked once for the agents' listener (SURF-1)."""
        return self.state_dir / "mcp-port"

    @property
    def run_dir(self) -> Path:
        """What is true only while the hive runs; always below the state folder, so that it can be found."""
        return self.state_dir / "run"

    @property
    def hive_json(self) -> Path:
        """What runs and where it answers; written when all of it does."""
        return hive_json_in(self.state_dir)

    @property
    def socket_dir(self) -> Path:
        """Where sockets are."""
        return self.runtime_dir or self.run_dir

    @property
    def host_sock(self) -> Path:
        """The operator's socket (HOST-1)."""
        return self.socket_dir / "host.sock"

    def broker_sock(self, agent: str) -> Path:
        """The socket of an agent's mailbox, alone in its folder, which can be given to a container (WAKE-2).

        Raises:
            SocketPathTooLong: no socket can have its path.
        """
        path = self.socket_dir / "agents" / _checked(agent) / "mcp.sock"
        require_socket_path(path)
        return path

    @property
    def tokens_dir(self) -> Path:
        """One secret a file."""
        return self.run_dir / "tokens"

    def token_file(self, agent: str) -> Path:
        """The bearer token of an agent (SURF-5)."""
        return self.tokens_dir / _checked(agent)

    @property
    def agents_dir(self) -> Path:
        """A folder for each agent."""
        return self.state_dir / "agents"

    def agent_dir(self, agent: str) -> Path:
        """The folder of an agent."""
        return self.agents_dir / _checked(agent)

    def agent_state_dir(self, agent: str) -> Path:
        """What the agent itself keeps: notes, its status."""
        return self.agent_dir(agent) / "state"

    def agent_harness_dir(self, agent: str) -> Path:
        """What the code around the agent keeps."""
        return self.agent_dir(agent) / "harness"

    def agent_config_dir(self, agent: str) -> Path:
        """What the operator tells the agent."""
        return self.agent_dir(agent) / "config"

    def agent_prompt(self, agent: str) -> Path:
        """The agent's role in words, appended to its system prompt."""
        return self.agent_config_dir(agent) / "prompt.md"


def _checked(agent: str) -> str:
    if not hive_broker.is_agent_name(agent):
        raise ValueError(f"an agent's name must be [a-z0-9-], 1 to 63 bytes and not reserved, got {agent!r}")
    return agent
