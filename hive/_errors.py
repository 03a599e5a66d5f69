"""What can go wrong around a hive, by whose fault it is.

Owns the exception types and nothing else. Messages are lower case, say what must hold, what came, and what to do;
they never carry a message's body or the value of an environment variable.
"""

from __future__ import annotations

from typing import final

__all__ = [
    "ConfigInvalid",
    "HiveError",
    "HiveNotRunning",
    "HiveUnavailable",
    "HiveUnintelligible",
    "HiveVanished",
    "InitRefused",
    "RequestRefused",
    "SocketPathTooLong",
    "SocketUnusable",
]


class HiveError(Exception):
    """Base of every error this package raises on purpose; never raised itself.

    Raises:
        TypeError: when made directly: raise one of the leaves.
    """

    def __new__(cls, *args: object, **_named: object) -> HiveError:
        if cls is HiveError:
            raise TypeError("HiveError is a base: raise one of its leaves")
        return super().__new__(cls, *args)


@final
class ConfigInvalid(HiveError):
    """The configuration cannot be used. All that is wrong with it is said at once.

    Attributes:
        problems: one sentence each, with table, key, what must hold and what came.
        source: the file, or None where the configuration was made in code.
    """

    def __init__(self, problems: tuple[str, ...], *, source: str | None = None) -> None:
        lines = problems if source is None else tuple(f"{source}: {problem}" for problem in problems)
        super().__init__("\n".join(lines))
        self.problems = problems
        self.source = source


@final
class SocketPathTooLong(HiveError):
    """A unix socket cannot have this path: the kernel takes 107 bytes and no more."""


@final
class InitRefused(HiveError):
    """``hive init`` would overwrite something, or cannot write there; nothing was changed."""


@final
class SocketUnusable(HiveError):
    """The hive's socket cannot be served at its path: taken by a live process, or by something that is no socket."""


@final
class RequestRefused(HiveError):
    """A request on the hive's socket was understood and refused, and the sentence says why and what to do.

    Raised by a ``HiveControl`` to refuse, and by ``HostClient`` when a hive refused.
    """


@final
class HiveUnavailable(HiveError):
    """A hive cannot run here, for a reason outside of it; ``__cause__`` is the system's word on it."""


@final
class HiveNotRunning(HiveError):
    """Nobody answers at the hive's socket: it is absent, or nothing listens on it."""


@final
class HiveVanished(HiveError):
    """The hive went away, or kept silent too long, before its answer came: what was asked may have been done."""


@final
class HiveUnintelligible(HiveError):
    """What answers on the socket speaks another version of the protocol, or another protocol."""
