"""A hive looked over from outside, whether it runs or not (REL-3, HOST-2).

Owns the list of the checks and their order. Changes nothing: each finding says what a person can do about it.
``hive doctor`` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import hive_broker
from hive._config import HiveConfig
from hive._paths import HivePaths

from ._database import check_database, check_owner, check_turns
from ._files import check_agents, check_disk, check_permissions
from ._findings import Finding, Verdict
from ._runtimes import check_claude, check_runtimes
from ._sockets import check_addresses, check_port, check_sockets

__all__ = ["Finding", "Verdict", "examine_hive"]


def examine_hive(paths: HivePaths, config: HiveConfig | None) -> Iterator[Finding]:
    """One finding per check, each as soon as it is known; the database is read through, which may take a while.

    Args:
        paths: of the hive.
        config: what it is told; None where only its state folder is known.
    """
    report = hive_broker.examine_database(paths.broker_db)
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("hive", partial(check_owner, report)),
        ("database", partial(check_database, paths, report)),
        ("turns", partial(check_turns, report)),
        ("runtimes", partial(check_runtimes, paths, report.owner)),
        ("addresses", partial(check_addresses, paths, report.owner)),
        ("sockets", partial(check_sockets, paths, report.owner)),
        ("port", partial(check_port, paths, config, report.owner)),
        ("agents", partial(check_agents, paths, config)),
        ("permissions", partial(check_permissions, paths)),
        ("disk", partial(check_disk, paths, report.size_bytes)),
        ("claude", partial(check_claude, config)),
    )
    for check, look in checks:
        try:
            yield look()
        except OSError as exc:
            where = f"{exc.filename} " if exc.filename else ""
            yield Finding.failed(check, f"{where}cannot be looked at: {exc.strerror}; run this as the hive's user")
