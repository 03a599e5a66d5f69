"""What the operator allowed each agent: tool groups and capabilities (PERM-1, PERM-2, PERM-5).

Owns the table ``permissions`` and the shape of the words in it; what a group holds and what an agent has without a row
is for the hive to know. Like ``_store`` it runs inside somebody's transaction and takes ``now``; imports apsw only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

import apsw
import attrs

from ._errors import RequestRefused
from ._flow import Done, RecordKind, RecordsChanged
from ._queries import rows_of
from ._rules import shown

__all__ = ["Permissions", "all_permissions", "permissions_of", "set_permissions"]

_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")

_WORDS_CAP = 64
"""Groups or capabilities of one agent: several times what there are."""


@attrs.frozen(kw_only=True)
class Permissions:
    """What one agent may use.

    Attributes:
        agent: whose.
        groups: tool groups (PERM-1).
        capabilities: flags beside them (PERM-5).
        changed_at: unix seconds.
    """

    agent: str
    groups: frozenset[str]
    capabilities: frozenset[str]
    changed_at: float


def set_permissions(
    db: apsw.Connection, *, now: float, agent: str, groups: Collection[str], capabilities: Collection[str]
) -> Done[Permissions]:
    """Make these all that the agent may use, in place of what was set before or configured.

    Raises:
        RequestRefused: a word that no group or capability can be called.
    """
    permissions = Permissions(
        agent=agent, groups=frozenset(groups), capabilities=frozenset(capabilities), changed_at=now
    )
    for words in (permissions.groups, permissions.capabilities):
        if len(words) > _WORDS_CAP or not all(_WORD.match(word) for word in words):
            raise RequestRefused(
                f"groups and capabilities must be at most {_WORDS_CAP} words of a-z, 0-9 and _, "
                f"got {shown(sorted(words))}: give the names as they are listed"
            )
    db.execute(
        """INSERT INTO permissions (agent, groups, capabilities, changed_at) VALUES (?, ?, ?, ?)
           ON CONFLICT (agent) DO UPDATE
           SET groups = excluded.groups, capabilities = excluded.capabilities, changed_at = excluded.changed_at""",
        (agent, json.dumps(sorted(permissions.groups)), json.dumps(sorted(permissions.capabilities)), now),
    )
    return Done(permissions, (RecordsChanged(kind=RecordKind.PERMISSIONS, agent=agent),))


def permissions_of(db: apsw.Connection, agent: str) -> Permissions | None:
    """What was set for this agent, None when nothing was."""
    rows = rows_of(db, "SELECT groups, capabilities, changed_at FROM permissions WHERE agent = ?", (agent,))
    return _permissions_from(agent, *rows[0]) if rows else None


def all_permissions(db: apsw.Connection) -> dict[str, Permissions]:
    """What was set for every agent for which something was."""
    rows = rows_of(db, "SELECT agent, groups, capabilities, changed_at FROM permissions ORDER BY agent")
    return {agent: _permissions_from(agent, *fields) for agent, *fields in rows}


def _permissions_from(agent: str, groups: str, capabilities: str, changed_at: float) -> Permissions:
    return Permissions(
        agent=agent,
        groups=frozenset(json.loads(groups)),
        capabilities=frozenset(json.loads(capabilities)),
        changed_at=changed_at,
    )
