"""What the broker's database says of the hive.

Owns the wording; ``hive_broker.examine_database`` did the reading.
"""

from __future__ import annotations

from hive._paths import HivePaths
from hive_broker import DatabaseReport

from ._findings import Finding

__all__ = ["check_database", "check_owner", "check_turns"]


def check_owner(report: DatabaseReport) -> Finding:
    """Whether the hive runs."""
    if report.owner is None:
        return Finding.ok("hive", "stopped")
    name, pid = report.owner
    return Finding.ok("hive", f"running: {name}, pid {pid}")


def check_database(paths: HivePaths, report: DatabaseReport) -> Finding:
    """Whether the database is whole and of a schema this version can work with."""
    if report.problems:
        return Finding.failed("database", f"{paths.broker_db}: {'; '.join(report.problems)}")
    if not report.exists:
        return Finding.ok("database", f"none yet: hive up makes {paths.broker_db}")
    schema = f"schema {report.schema}"
    if report.schema < report.known_schema:
        schema += f" (the next start brings it to {report.known_schema})"
    dead = f", {report.dead} of them dead letters (hivectl dead-letters)" if report.dead else ""
    return Finding.ok("database", f"sound; {schema}, {report.messages} messages{dead}, {report.size_bytes} bytes")


def check_turns(report: DatabaseReport) -> Finding:
    """Whether somebody stands behind every turn and every row that is in flight."""
    held = f"{len(report.open_turns)} open, {report.in_flight} messages in flight"
    if report.owner is not None or not (report.open_turns or report.in_flight):
        return Finding.ok("turns", held)
    whose = f" ({', '.join(report.open_turns)})" if report.open_turns else ""
    return Finding.warning(
        "turns", f"{held}{whose}, and no hive runs: it was cut off; the next hive up delivers those messages again"
    )
