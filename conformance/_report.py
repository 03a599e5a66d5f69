"""What a run found, by id of the contract: a table for people and JSON for programs (CONF-1).

Owns the counting and both shapes. Knows no pytest: ``plugin`` feeds it.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, final

import attrs

from ._manifest import Entry, NotYet

__all__ = ["Outcome", "Report"]

JSON_VERSION = 1

_WIDTH = 120


class Outcome(enum.Enum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@attrs.frozen
class _Result:
    test: str
    outcome: Outcome
    reason: str


@final
class Report:
    """Results so far.

    Args:
        manifest: id to entry.
    """

    def __init__(self, manifest: Mapping[str, Entry]) -> None:
        self._manifest = manifest
        self._results: dict[str, list[_Result]] = {id_: [] for id_ in manifest}
        self.subject = ""

    def add(self, ids: tuple[str, ...], *, test: str, outcome: Outcome, reason: str = "") -> None:
        """Count one test for each of its ids."""
        for id_ in ids:
            self._results[id_].append(_Result(test, outcome, reason))

    def lines(self) -> Iterator[str]:
        """The table: a line for each id that has tests, then the others by the reason why they have none."""
        untested: dict[str, list[str]] = {}
        for id_, entry in self._manifest.items():
            if entry.not_yet is not None:
                untested.setdefault(_dated(entry.not_yet), []).append(id_)
                continue
            yield from _wrapped(f"{id_:<8} {self._verdict(id_):<8} {entry.title}{self._counts(id_)}", indent=18)
        for reason, ids in untested.items():
            yield from _wrapped(f"not yet  {reason}: {', '.join(ids)}", indent=9)

    def data(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "version": JSON_VERSION,
            "subject": self.subject,
            "ids": {id_: self._row(id_) for id_ in self._manifest},
        }

    def _row(self, id_: str) -> dict[str, Any]:
        entry = self._manifest[id_]
        return {
            "title": entry.title,
            "verdict": self._verdict(id_),
            "not_yet": None if entry.not_yet is None else _dated(entry.not_yet),
            "tests": [
                {"test": result.test, "outcome": result.outcome.value, "reason": result.reason}
                for result in self._results[id_]
            ],
        }

    def _verdict(self, id_: str) -> str:
        """One failure fails an id, and one skip keeps it from passing whole only when nothing passed."""
        outcomes = {result.outcome for result in self._results[id_]}
        for outcome in (Outcome.FAILED, Outcome.PASSED, Outcome.SKIPPED):
            if outcome in outcomes:
                return str(outcome.value)
        return "not yet" if self._manifest[id_].not_yet is not None else "not run"

    def _counts(self, id_: str) -> str:
        results = self._results[id_]
        counts = [(outcome, sum(result.outcome is outcome for result in results)) for outcome in Outcome]
        words = ", ".join(f"{count} {outcome.value}" for outcome, count in counts if count)
        reasons = dict.fromkeys(result.reason for result in results if result.outcome is Outcome.SKIPPED)
        if reasons:
            words += f" ({'; '.join(reasons)})"
        return f": {words}" if words else ""


def _wrapped(text: str, *, indent: int) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _dated(not_yet: NotYet) -> str:
    return f"since {not_yet.since}: {not_yet.reason}"
