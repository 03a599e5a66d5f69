"""Brings a database file to the shape this version works with.

Owns the order of the numbered files in ``schema/`` and the file's version mark. Knows nothing of messages; imports
apsw only. Called once, when the broker opens.
"""

from __future__ import annotations

from importlib.resources import files

import apsw

from ._errors import BrokerDamaged, SchemaTooNew

__all__ = ["check_is_ours", "known_version", "migrate"]

_APPLICATION_ID = 0x68697665
"""``hive``: says in the file's header whose it is."""


def check_is_ours(db: apsw.Connection) -> None:
    """Look at the file's header before anything is changed.

    Raises:
        SchemaTooNew: a newer hyperhive wrote it.
        BrokerDamaged: it is somebody else's database.
    """
    application_id, version = db.pragma("application_id"), db.pragma("user_version")
    is_empty = version == 0 and db.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if application_id != _APPLICATION_ID and not is_empty:
        raise BrokerDamaged(
            "the file must be a broker database of hyperhive, and its header says it is something else "
            f"(application id {application_id:#x}): give another path"
        )
    known = known_version()
    if version > known:
        raise SchemaTooNew(
            f"the database has schema {version} and this hyperhive knows schemas up to {known}: "
            "start the newer version, or restore a backup made before it ran"
        )


def known_version() -> int:
    """The newest schema this hyperhive knows."""
    return len(_steps())


def migrate(db: apsw.Connection) -> None:
    """Apply the schema files the database has not seen, all in one transaction."""
    steps = _steps()
    version = db.pragma("user_version")
    if version == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for number, script in enumerate(steps[version:], start=version + 1):
            db.execute(script)
            db.pragma("user_version", number)
        db.pragma("application_id", _APPLICATION_ID)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _steps() -> list[str]:
    """The schema files in the order of their numbers, which have no gap."""
    found = sorted((entry for entry in files(__package__).joinpath("schema").iterdir()), key=lambda entry: entry.name)
    scripts = [entry for entry in found if entry.name.endswith(".sql")]
    for number, entry in enumerate(scripts, start=1):
        if not entry.name.startswith(f"{number:04d}_"):
            raise RuntimeError(f"schema files must be numbered 0001, 0002, ..., got {entry.name}: please report this")
    return [entry.read_text(encoding="utf-8") for entry in scripts]
