"""Where the hive says it answers, and whether it does.

Owns what counts as stale. Connects and says nothing; binds to a port and listens to nothing.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from hive._config import HiveConfig
from hive._paths import HivePaths

from ._findings import Finding, listed

__all__ = ["check_addresses", "check_port", "check_sockets"]

_CONNECT_SECONDS = 1.0  # a listener that lives accepts at once
_MAX_BYTES = 8 << 20  # hive.json has a few hundred bytes an agent


def check_addresses(paths: HivePaths, owner: tuple[str, int] | None) -> Finding:
    """Whether ``run/hive.json`` is there exactly while the hive runs, and is of the one that does."""
    if not paths.hive_json.exists():
        if owner is None:
            return Finding.ok("addresses", "none, as nothing runs")
        return Finding.warning(
            "addresses", f"{paths.hive_json} is not there: the hive is starting or stopping; if not, restart it"
        )
    if owner is None:
        return Finding.warning(
            "addresses", f"{paths.hive_json} is of a hive that was cut off: hive up replaces it, or remove it"
        )
    try:
        with paths.hive_json.open("rb") as file:
            pid = json.loads(file.read(_MAX_BYTES))["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Finding.failed("addresses", f'{paths.hive_json} must be a JSON object with a "pid": restart the hive')
    if pid != owner[1]:
        return Finding.failed(
            "addresses", f"{paths.hive_json} is of pid {pid!r}, and the hive is pid {owner[1]}: restart the hive"
        )
    return Finding.ok("addresses", str(paths.hive_json))


def check_sockets(paths: HivePaths, owner: tuple[str, int] | None) -> Finding:
    """Whether somebody listens on every socket exactly while the hive runs."""
    found = sorted({path for folder in (paths.run_dir, paths.socket_dir) for path in _sockets_in(folder)})
    wrong = list(_wrong_sockets(found, paths, owner))
    if owner is not None and paths.hive_json.exists() and paths.host_sock not in found:
        wrong.append(Finding.failed("sockets", f"{paths.host_sock} is gone; the hive makes it again: look once more"))
    return Finding.worst("sockets", wrong, otherwise=f"{len(found)}, all answering" if found else "none")


def _wrong_sockets(found: list[Path], paths: HivePaths, owner: tuple[str, int] | None) -> Iterator[Finding]:
    dead = [path for path in found if not _is_listened_on(path)]
    alive = [path for path in found if path not in dead]
    if owner is None and alive:
        yield Finding.failed(
            "sockets", f"somebody listens on {listed(alive)}, and no hive runs: see who: ss -xlp src {alive[0]}"
        )
    if owner is None and dead:
        yield Finding.warning("sockets", f"dead, of a hive that was cut off: {listed(dead)}; hive up replaces them")
    if owner is not None and dead:
        verdict = Finding.failed if paths.host_sock in dead else Finding.warning
        yield verdict("sockets", f"nobody listens on {listed(dead)}, though the hive runs: restart the hive")


def _sockets_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.rglob("*.sock") if path.is_socket())


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except OSError as exc:
            # Anything but a plain refusal (no permission, a full backlog) is no proof that nobody is there.
            return exc.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def check_port(paths: HivePaths, config: HiveConfig | None, owner: tuple[str, int] | None) -> Finding:
    """Whether the agents' listener has, or will get, the port its clients know (SURF-1)."""
    port = config.mcp_port if config is not None else 0
    is_fixed = port != 0
    if not is_fixed:
        if not paths.mcp_port_file.exists():
            return Finding.ok("port", "none picked yet")
        text = paths.mcp_port_file.read_text(encoding="ascii", errors="replace").strip()
        if not (text.isdigit() and 0 < int(text) < 65536):
            return Finding.warning(
                "port", f"{paths.mcp_port_file} must hold a port, got {text[:20]!r}: remove it, hive up picks another"
            )
        port = int(text)
    if owner is not None:
        if _answers(port):
            return Finding.ok("port", f"the agents' tools answer on 127.0.0.1:{port}")
        return Finding.failed("port", f"nobody listens on 127.0.0.1:{port}, though the hive runs: restart the hive")
    if _is_free(port):
        return Finding.ok("port", f"127.0.0.1:{port} is free")
    if is_fixed:
        return Finding.failed("port", f"mcp_port {port} is taken: stop who has it (ss -ltnp), or set another mcp_port")
    return Finding.warning("port", f"127.0.0.1:{port} is taken, so the agents' tools will move: free it (ss -ltnp)")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the listener does: old connections do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            return False
    return True
