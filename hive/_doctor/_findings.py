"""What a check comes back with.

Owns the three verdicts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path

import attrs

__all__ = ["Finding", "Verdict", "listed"]

_LISTED = 4
"""Things that are named on a line; the rest is a number."""


class Verdict(Enum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    """The hive runs, or will; somebody should look at it."""
    FAILED = "failed"
    """The hive does not run as it should, or something is open that must not be."""


@attrs.frozen
class Finding:
    """One check's outcome, on one line.

    Attributes:
        check: what was looked at, in one word.
        verdict: how it went.
        text: what was found, and unless all is well, what to do.
    """

    check: str
    verdict: Verdict
    text: str

    @classmethod
    def ok(cls, check: str, text: str) -> Finding:
        """All is well."""
        return cls(check, Verdict.OK, text)

    @classmethod
    def warning(cls, check: str, text: str) -> Finding:
        """Somebody should look."""
        return cls(check, Verdict.WARNING, text)

    @classmethod
    def failed(cls, check: str, text: str) -> Finding:
        """Something is wrong."""
        return cls(check, Verdict.FAILED, text)

    @classmethod
    def worst(cls, check: str, findings: Iterable[Finding], *, otherwise: str) -> Finding:
        """One line of several: their texts, under the worst verdict; ``otherwise`` where there are none."""
        found = tuple(findings)
        if not found:
            return cls.ok(check, otherwise)
        verdict = max((finding.verdict for finding in found), key=list(Verdict).index)
        return cls(check, verdict, "; ".join(finding.text for finding in found))


def listed(found: Sequence[Path]) -> str:
    """The first few paths, and how many more there are."""
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(map(str, found[:_LISTED])) + more
