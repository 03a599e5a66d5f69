"""Brings a database file to the shape this version works with.

Owns the order of the numbered files in ``schema/``, the file's version mark, and whether its tables fit that mark.
Knows nothing of messages; imports apsw only. Called when a database is opened, examined or restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from importlib.resources import files

import apsw

from ._errors import BrokerDamaged, SchemaTooNew

__all__ = ["check_is_ours", "check_shape", "known_version", "migrate"]

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


def check_shape(db: apsw.Connection) -> None:
    """Look whether everything is there that this version's schema has; of an older one, migrating tells.

    Raises:
        BrokerDamaged: something is missing, or somebody raised the version mark.
    """
    version = db.pragma("user_version")
    if version == known_version() and (missing := sorted(_shape_after(tuple(_steps())) - _shape(db))):
        raise BrokerDamaged(
            f"the database has the mark of schema {version} and lacks {', '.join(missing[:3])}, so somebody changed it "
            "or its mark: restore a backup from before that"
        )


def migrate(db: apsw.Connection) -> None:
    """Apply the schema files the database has not seen, all in one transaction.

    Raises:
        BrokerDamaged: its tables are not those of its version mark.
    """
    try:
        _apply(db, _steps())
    except (apsw.SQLError, apsw.ConstraintError) as exc:
        _shape_after(
            tuple(_steps())
        )  # steps that fail on an empty database as well are a bug of ours, and leave as one
        raise BrokerDamaged(
            f"the database has the mark of schema {db.pragma('user_version')} and its tables do not fit it ({exc}), so "
            "somebody changed them or the mark: restore a backup from before that"
        ) from exc
    check_shape(db)


def _apply(db: apsw.Connection, steps: Sequence[str]) -> None:
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


@cache
def _shape_after(steps: tuple[str, ...]) -> frozenset[str]:
    with closing(apsw.Connection(":memory:")) as fresh:
        _apply(fresh, steps)
        return _shape(fresh)


def _shape(db: apsw.Connection) -> frozenset[str]:
    """Tables with their columns, and indexes: what statements name. More than is known here may be there."""
    found = db.execute(
        "SELECT part.type || ' ' || part.name || coalesce('.' || field.name, '') FROM sqlite_schema AS part "
        "LEFT JOIN pragma_table_xinfo(part.name) AS field ON part.type = 'table'"
    )
    return frozenset(name for (name,) in found)


def _steps() -> list[str]:
    """The schema files in the order of their numbers, which have no gap."""
    found = sorted((entry for entry in files(__package__).joinpath("schema").iterdir()), key=lambda entry: entry.name)
    scripts = [entry for entry in found if entry.name.endswith(".sql")]
    for number, entry in enumerate(scripts, start=1):
        if not entry.name.startswith(f"{number:04d}_"):
            raise RuntimeError(f"schema files must be numbered 0001, 0002, ..., got {entry.name}: please report this")
    return [entry.read_text(encoding="utf-8") for entry in scripts]
