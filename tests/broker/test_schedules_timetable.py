"""The instants of a timetable: intervals against counting on one's fingers, cron over the change of the clocks."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hive_broker import RequestRefused, Timetable
from hive_broker._timetable import SKIPPED_CAP, check_timetable, count_instants, local_zone, next_instant

BERLIN = ZoneInfo("Europe/Berlin")


def at(text, *, zone=BERLIN, fold=0):
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def local(instant):
    return datetime.fromtimestamp(instant, BERLIN).strftime("%Y-%m-%d %H:%M %Z")


def instants(timetable, *, after, count):
    """The next ones, as people in Berlin see them."""
    found = []
    while len(found) < count:
        after = next_instant(timetable, after=after, zone=BERLIN)
        found.append(local(after))
    return found


@given(
    first=st.integers(0, 500),
    interval=st.integers(60, 200),
    after=st.integers(0, 2000),
    more=st.integers(0, 2000),
)
@example(first=0, interval=60, after=60, more=60)
def test_an_interval_has_the_instants_one_counts_by_hand(first, interval, after, more):
    """SCHED-1: the phase never drifts, whenever one asks."""
    timetable = Timetable(first_fire_at=first, interval_seconds=interval)
    by_hand = [first + n * interval for n in range(100)]
    assert next_instant(timetable, after=after, zone=UTC) == next(x for x in by_hand if x > after)
    expected = [x for x in by_hand if after < x <= after + more]
    assert count_instants(timetable, after=after, until=after + more, zone=UTC) == len(expected)


@given(
    first=st.floats(0, 2e9),
    interval=st.floats(60, 3e7),
    after=st.floats(0, 2e9),
)
def test_rounding_neither_repeats_nor_misses_an_instant(first, interval, after):
    """SCHED-1: whatever the fractions, the next instant is later and the one after it is the next of all."""
    timetable = Timetable(first_fire_at=first, interval_seconds=interval)
    found = next_instant(timetable, after=after, zone=UTC)
    assert found > after
    assert found >= first
    assert found == first or found - interval <= after + 1e-6
    following = next_instant(timetable, after=found, zone=UTC)
    assert following > found
    assert count_instants(timetable, after=after, until=following, zone=UTC) == 2


def test_a_single_date_has_one_instant():
    """SCHED-1."""
    timetable = Timetable(first_fire_at=100)
    assert next_instant(timetable, after=99, zone=UTC) == 100
    assert next_instant(timetable, after=100, zone=UTC) is None
    assert count_instants(timetable, after=99, until=100, zone=UTC) == 1
    assert count_instants(timetable, after=100, until=1000, zone=UTC) == 0


def test_a_cron_begins_at_its_first_match_from_first_fire_at_on():
    """SCHED-1: a match at that very second counts, one before it does not."""
    timetable = Timetable(first_fire_at=at("2026-03-02 09:00"), cron="0 9 * * *")
    assert instants(timetable, after=0, count=2) == ["2026-03-02 09:00 CET", "2026-03-03 09:00 CET"]
    later = Timetable(first_fire_at=at("2026-03-02 09:00") + 0.5, cron="0 9 * * *")
    assert instants(later, after=0, count=1) == ["2026-03-03 09:00 CET"]


def test_a_daily_cron_keeps_its_hour_when_the_clocks_change():
    """SCHED-1: nine o'clock is nine o'clock, in winter and in summer."""
    timetable = Timetable(first_fire_at=at("2026-03-28 00:00"), cron="0 9 * * *")
    assert instants(timetable, after=0, count=2) == ["2026-03-28 09:00 CET", "2026-03-29 09:00 CEST"]


def test_a_cron_in_the_hour_that_is_left_out_fires_once_after_it():
    """SCHED-1: half past two does not exist on that day; it is neither skipped nor fired twice."""
    timetable = Timetable(first_fire_at=at("2026-03-28 12:00"), cron="0,30 2 * * *")
    assert instants(timetable, after=0, count=3) == [
        "2026-03-29 03:00 CEST",
        "2026-03-30 02:00 CEST",
        "2026-03-30 02:30 CEST",
    ]


def test_a_cron_in_the_hour_that_comes_twice_fires_once():
    """SCHED-1."""
    timetable = Timetable(first_fire_at=at("2026-10-24 12:00"), cron="30 2 * * *")
    assert instants(timetable, after=0, count=2) == ["2026-10-25 02:30 CEST", "2026-10-26 02:30 CET"]


def test_asked_in_the_second_of_two_hours_a_cron_names_no_instant_that_is_over():
    """SCHED-1: a start at ten past two, the second time, does not fire what fired the first time."""
    timetable = Timetable(first_fire_at=at("2026-10-24 12:00"), cron="30 2 * * *")
    second_time = at("2026-10-25 02:10", fold=1)
    assert instants(timetable, after=second_time, count=1) == ["2026-10-26 02:30 CET"]


def test_an_hourly_cron_fires_every_hour_of_the_day_that_has_one_more():
    """SCHED-1."""
    timetable = Timetable(first_fire_at=at("2026-10-25 01:30"), cron="0 * * * *")
    assert instants(timetable, after=0, count=4) == [
        "2026-10-25 02:00 CEST",
        "2026-10-25 02:00 CET",
        "2026-10-25 03:00 CET",
        "2026-10-25 04:00 CET",
    ]


def test_the_skipped_instants_of_a_cron_are_counted_up_to_a_bound():
    """SCHED-1: a start after a year costs milliseconds, not minutes."""
    every_minute = Timetable(first_fire_at=0, cron="* * * * *")
    assert count_instants(every_minute, after=0, until=600, zone=BERLIN) == 10
    assert count_instants(every_minute, after=0, until=365 * 86_400, zone=BERLIN) == SKIPPED_CAP


@given(st.text(alphabet="0123456789*/-,#LlWw monsu?", max_size=30) | st.text(max_size=20))
@example("* * * * 5L/2")
@example("0 0 31 2 *")
@example("* * * * * *")
@example("@daily")
def test_any_text_is_a_cron_or_is_refused_in_words(cron):
    """SCHED-1, REL-4."""
    timetable = Timetable(first_fire_at=0, cron=cron)
    refusal = ""
    try:
        check_timetable(timetable, now=0, zone=BERLIN)
    except RequestRefused as refused:
        refusal = str(refused)
    assert "cron" in refusal or next_instant(timetable, after=0, zone=BERLIN) > 0


def test_the_local_zone_is_the_one_of_the_environment(monkeypatch):
    """SCHED-1: with its daylight saving, not the offset of today."""
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert local_zone() == BERLIN


@pytest.mark.parametrize("name", ["Nowhere/At_All", "../../etc/passwd", "CET-1CEST,M3.5.0,M10.5.0/3"])
def test_a_zone_that_is_not_known_is_said_and_utc_taken(monkeypatch, caplog, name):
    """SCHED-1, REL-3."""
    monkeypatch.setenv("TZ", name)
    assert local_zone() is UTC
    assert "cron schedules run in UTC" in caplog.text


def test_without_tz_the_zone_is_the_hosts(monkeypatch):
    """SCHED-1."""
    monkeypatch.delenv("TZ", raising=False)
    offset = datetime.fromtimestamp(1_780_000_000, local_zone()).utcoffset()
    assert offset == datetime.fromtimestamp(1_780_000_000).astimezone().utcoffset()
