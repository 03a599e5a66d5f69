"""What can go wrong at the broker, by whose fault it is.

Owns the exception types and nothing else. Messages are lower case, say what must hold, what came, and what to do;
they never carry a message's body.
"""

from __future__ import annotations

from typing import final

__all__ = [
    "BrokerClosed",
    "BrokerDamaged",
    "BrokerError",
    "BrokerLocked",
    "BrokerUnavailable",
    "MailboxSocketRefused",
    "MailboxSocketUnusable",
    "MessageRefused",
    "RequestRefused",
    "SchemaTooNew",
    "TurnOver",
]


class BrokerError(Exception):
    """Base of every error the broker raises on purpose; never raised itself.

    Raises:
        TypeError: when made directly: raise one of the leaves.
    """

    def __new__(cls, *args: object, **kwargs: object) -> BrokerError:
        if cls is BrokerError:
            raise TypeError("BrokerError is a base: raise one of its leaves")
        return super().__new__(cls, *args)


@final
class MessageRefused(BrokerError):
    """The caller's message cannot be stored, and the sentence says why and what to do (MSG-2, MSG-3).

    Nothing was stored.
    """


@final
class RequestRefused(BrokerError):
    """What the caller asked for, beside a message, cannot be done, and the sentence says why and what to do.

    Nothing was changed. A refusal over something that is not the caller's is the one for something that is not there.
    """


@final
class TurnOver(BrokerError):
    """The turn named by the caller is not open for this agent: nothing was popped or changed (MSG-5, TURN-4)."""


@final
class BrokerClosed(BrokerError):
    """The broker was closed before this call was taken: nothing was done."""


@final
class BrokerLocked(BrokerError):
    """Another live process owns the database file; it is named with its pid (REL-2).

    Attributes:
        owner: the name the other opener gave itself.
        pid: its process id on this host.
    """

    def __init__(self, message: str, *, owner: str, pid: int) -> None:
        super().__init__(message)
        self.owner = owner
        self.pid = pid


@final
class SchemaTooNew(BrokerError):
    """The database was written by a newer hyperhive; it was left as it was."""


@final
class BrokerDamaged(BrokerError):
    """The file is not a database, or its content contradicts itself. ``__cause__`` is SQLite's word on it."""


@final
class BrokerUnavailable(BrokerError):
    """The world said no (disk full, read-only, locked by a stranger, away). Trying again may work.

    ``__cause__`` is SQLite's word on it.

    Attributes:
        may_be_done: whether what was asked may have been done; only where the broker is behind a socket, and went away
            with the answer. Else nothing was done.
    """

    def __init__(self, message: str, *, may_be_done: bool = False) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done


@final
class MailboxSocketRefused(BrokerError):
    """A mailbox's socket does not let this client in, and trying again will not help; the sentence says what to do.

    It belongs to another agent, speaks another version, or the agent's turns are run by somebody else (TURN-4).
    """


@final
class MailboxSocketUnusable(BrokerError):
    """A mailbox's socket cannot be at its path: too long, taken by a live process, or not ours to write."""
