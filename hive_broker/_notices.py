"""The outbox of notices for the swarm (SWARM-1).

Owns the table ``notices``: a notice is stored before anybody tries to send it, and is sent at least once; receivers
tell a second one by its ``dedupe_id``. Knows no NATS. Like ``_store`` it runs inside somebody's transaction and takes
``now``; imports apsw only.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import apsw
import attrs

from ._errors import RequestRefused
from ._flow import Done, RecordKind, RecordsChanged
from ._queries import rows_of
from ._requests import check_text, check_word
from ._rules import is_row_id, shown
from ._types import JsonObject

__all__ = ["Noted", "Notice", "add_notice", "mark_notices_sent", "unsent_notices"]

_NAME_LIMIT = 255
"""Longest subject and longest id."""

_BODY_LIMIT_BYTES = 256 * 1024
"""A notice, as long as a message."""


@attrs.frozen(kw_only=True)
class Notice:
    """A notice that is not sent yet.

    Attributes:
        id: never reused; notices go out in its order.
        subject: where it goes: words with dots between them.
        body: a JSON object.
        dedupe_id: tells a second copy of it.
        created_at: unix seconds.
    """

    id: int
    subject: str
    body: JsonObject
    dedupe_id: str
    created_at: float


@attrs.frozen(kw_only=True)
class Noted:
    """What storing a notice returns; ``duplicate`` when there was one with its ``dedupe_id``, whose ``id`` this is."""

    id: int
    duplicate: bool = False


def add_notice(db: apsw.Connection, *, now: float, subject: str, body: str, dedupe_id: str) -> Done[Noted]:
    """Store a notice to be sent, once for each ``dedupe_id`` (for as long as retention keeps it).

    Args:
        db: a connection.
        now: unix seconds.
        subject: words of printable ASCII with dots between them, no wildcards.
        body: a JSON object as text.
        dedupe_id: what makes it this notice.

    Raises:
        RequestRefused: the subject, the body or the id cannot be sent.
    """
    tokens = subject.split(".")
    if len(subject) > _NAME_LIMIT or not subject.isascii() or not all(map(_is_token, tokens)):
        raise RequestRefused(
            f"a notice's subject must be words of printable ASCII with dots between them, at most {_NAME_LIMIT} long, "
            f"without space, * and >, got {shown(subject)}: replace what does not fit"
        )
    check_word(dedupe_id, what="a notice's dedupe id", limit=_NAME_LIMIT)
    check_text(body, what="a notice's body", limit_bytes=_BODY_LIMIT_BYTES, hint="send less of it")
    first: int | None = db.execute("SELECT id FROM notices WHERE dedupe_id = ?", (dedupe_id,)).get
    if first is not None:
        return Done(Noted(id=first, duplicate=True))
    db.execute(
        "INSERT INTO notices (subject, body, dedupe_id, created_at) VALUES (?, ?, ?, ?)",
        (subject, body, dedupe_id, now),
    )
    return Done(Noted(id=db.last_insert_rowid()), (RecordsChanged(kind=RecordKind.NOTICES),))


def unsent_notices(db: apsw.Connection, *, limit: int) -> tuple[Notice, ...]:
    """The notices to send next, oldest first."""
    rows = rows_of(
        db,
        """SELECT id, subject, body, dedupe_id, created_at FROM notices INDEXED BY notices_unsent
           WHERE sent_at IS NULL ORDER BY id LIMIT ?""",
        (limit,),
    )
    return tuple(
        Notice(id=id_, subject=subject, body=json.loads(body), dedupe_id=dedupe_id, created_at=created_at)
        for id_, subject, body, dedupe_id, created_at in rows
    )


def mark_notices_sent(db: apsw.Connection, *, now: float, ids: Collection[int]) -> Done[int]:
    """Say that these are sent; answer how many were not before."""
    sql = "UPDATE notices SET sent_at = ? WHERE id = ? AND sent_at IS NULL RETURNING id"
    marked = [id_ for id_ in sorted(set(ids)) if is_row_id(id_) and rows_of(db, sql, (now, id_))]
    return Done(len(marked), (RecordsChanged(kind=RecordKind.NOTICES),) if marked else ())


def _is_token(token: str) -> bool:
    return bool(token) and token.isprintable() and not set(token) & set(" *>")
