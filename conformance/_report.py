"""What a run found, by id of the contract: a table for people and JSON for programs (CONF-1).

Owns the counting and both shapes. Knows no pytest: ``plugin`` feeds it.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, final

import attrs

from ._manifest import Entry

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
        """The table, a line or more for each id."""
        for id_, entry in self._manifest.items():
            verdict, detail = self._verdict(id_), self._detail(id_)
            head = f"{id_:<9} {verdict:<8} {entry.title}"
            yield from textwrap.wrap(
                f"{head}: {detail}" if detail else head, _WIDTH, subsequent_indent=" " * 19, break_on_hyphens=False
            )

    def data(self) -> dict[str, Any]:
        """The same as JSON."""
        return {"version": JSON_VERSION, "subject": self.subject, "ids": {id_: self._row(id_) for id_ in self._manifest}}

    def _row(self, id_: str) -> dict[str, Any]:
        entry = self._manifest[id_]
        return {
            "title": entry.title,
            "verdict": self._verdict(id_),
            "not_yet": None if entry.not_yet is None else _dated(entry),
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
                return outcome.value
        return "not yet" if self._manifest[id_].not_yet is not None else "not run"

    def _detail(self, id_: str) -> str:
        results, entry = self._results[id_], self._manifest[id_]
        if not results:
            return _dated(entry)
        counts = [(outcome, sum(result.outcome is outcome for result in results)) for outcome in Outcome]
        words = ", ".join(f"{count} {outcome.value}" for outcome, count in counts if count)
        reasons = dict.fromkeys(result.reason for result in results if result.outcome is Outcome.SKIPPED)
        return f"{words} ({'; '.join(reasons)})" if reasons else words


def _dated(entry: Entry) -> str:
    return "" if entry.not_yet is None else f"since {entry.not_yet.since}: {entry.not_yet.reason}"
