"""When a schedule has to fire: its instants, from its words and a time zone alone.

Owns intervals, cron and what is an acceptable timetable (SCHED-1). Pure but for ``local_zone``: no storage, no clock.
``_schedules`` asks.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import attrs
from cronsim import CronSim, CronSimError

from ._errors import RequestRefused
from ._requests import check_instant
from ._rules import shown

__all__ = ["SKIPPED_CAP", "Timetable", "check_timetable", "count_instants", "local_zone", "next_instant"]

_log = logging.getLogger("hive_broker")

SKIPPED_CAP = 1000
"""Instants of a cron timetable that are counted at most: each costs tens of microseconds."""

_MIN_INTERVAL_SECONDS = 60
"""Shortest interval, which is also cron's grain: a turn takes about as long."""

_MAX_INTERVAL_SECONDS = 366 * 86_400
"""Longest interval."""

_CRON_LIMIT = 200
"""Longest cron text: five fields with every list one would write."""

_LOCALTIME = Path("/etc/localtime")


@attrs.frozen(kw_only=True)
class Timetable:
    """The instants of one schedule: ``first_fire_at`` alone, or from it on every interval or at every match of a cron.

    Attributes:
        first_fire_at: unix seconds. With a cron, the first match at or after it is the first instant.
        interval_seconds: distance of the instants, or None.
        cron: five fields, in the local time zone, or None.
    """

    first_fire_at: float
    interval_seconds: float | None = None
    cron: str | None = None

    @property
    def repeats(self) -> bool:
        """Whether it has more than one instant."""
        return self.interval_seconds is not None or self.cron is not None


def check_timetable(timetable: Timetable, *, now: float, zone: tzinfo) -> None:
    """Accept a timetable with an instant to come.

    Raises:
        RequestRefused: with what is wrong and what to write instead.
    """
    check_instant(timetable.first_fire_at, what="first_fire_at_unix", now=now)
    interval = timetable.interval_seconds
    if interval is not None and timetable.cron is not None:
        raise RequestRefused("a schedule repeats by interval_seconds or by cron, got both: leave one of them out")
    if interval is not None and not _MIN_INTERVAL_SECONDS <= interval <= _MAX_INTERVAL_SECONDS:
        raise RequestRefused(
            f"interval_seconds must be {_MIN_INTERVAL_SECONDS} to {_MAX_INTERVAL_SECONDS}, got {shown(interval)}: "
            "choose one in between, or leave it out to fire once"
        )
    if timetable.cron is not None:
        _check_cron(timetable.cron, zone)
    if next_instant(timetable, after=now, zone=zone) is None:
        what = "the cron matches no date" if timetable.repeats else "first_fire_at_unix must be in the future"
        raise RequestRefused(
            f"a schedule needs an instant to come, and it is now {now:.0f}: {what}; got "
            f"{shown(timetable.cron if timetable.repeats else timetable.first_fire_at)}"
        )


def next_instant(timetable: Timetable, *, after: float, zone: tzinfo) -> float | None:
    """The first instant strictly after ``after``; None when there is none."""
    if timetable.interval_seconds is not None:
        return _interval_instant(timetable, _interval_index(timetable, after))
    if timetable.cron is not None:
        return next(_cron_instants(timetable, after=after, zone=zone), None)
    return timetable.first_fire_at if timetable.first_fire_at > after else None


def count_instants(timetable: Timetable, *, after: float, until: float, zone: tzinfo) -> int:
    """How many instants lie in ``(after, until]``; of a cron at most ``SKIPPED_CAP`` are counted."""
    if timetable.interval_seconds is not None:
        return max(0, _interval_index(timetable, until) - _interval_index(timetable, after))
    if timetable.cron is not None:
        instants = _cron_instants(timetable, after=after, zone=zone)
        return sum(1 for _ in islice(takewhile(lambda at: at <= until, instants), SKIPPED_CAP))
    return int(after < timetable.first_fire_at <= until)


def local_zone() -> tzinfo:
    """The host's time zone with its daylight saving: ``TZ``, else ``/etc/localtime``, else UTC."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with _LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except (OSError, ValueError, KeyError) as exc:
        # ZoneInfoNotFoundError is a KeyError.
        _log.warning(
            "cron schedules run in UTC, for the local time zone is not known (%s): set TZ to a name like Europe/Berlin",
            exc,
        )
        return UTC


def _interval_index(timetable: Timetable, after: float) -> int:
    """Number of the first instant strictly after ``after``, counted from 0; rounding is put right."""
    interval = timetable.interval_seconds or 1.0
    index = max(0, math.floor((after - timetable.first_fire_at) / interval) + 1)
    while index > 0 and _interval_instant(timetable, index - 1) > after:
        index -= 1
    while _interval_instant(timetable, index) <= after:
        index += 1
    return index


def _interval_instant(timetable: Timetable, index: int) -> float:
    return timetable.first_fire_at + index * (timetable.interval_seconds or 0.0)


def _cron_instants(timetable: Timetable, *, after: float, zone: tzinfo) -> Iterator[float]:
    """Matches strictly after ``after`` and not before ``first_fire_at``, each once.

    Cronsim yields local times: in the hour that comes twice it may give one that is over, in the hour that is left out
    the same one twice.
    """
    start = max(math.floor(after), math.ceil(timetable.first_fire_at) - 1)
    latest = after
    for match in CronSim(timetable.cron or "", datetime.fromtimestamp(start, zone)):
        at = match.timestamp()
        if at > latest and at >= timetable.first_fire_at:
            latest = at
            yield at


def _check_cron(cron: str, zone: tzinfo) -> None:
    try:
        if len(cron) > _CRON_LIMIT or len(cron.split()) != 5:
            raise CronSimError("it must have five fields")
        CronSim(cron, datetime.fromtimestamp(0, zone))
    except (CronSimError, ValueError, AssertionError) as exc:
        # Cronsim says what is bad, except of a few mixtures that it asserts away.
        raise RequestRefused(
            f"cron must be five fields (minute hour day month weekday, like '0 9 * * mon-fri'), got {shown(cron)}: "
            f"{str(exc).lower() or 'that mixture of field and step means nothing'}"
        ) from exc
