"""What is asked of the records costs the same over few rows and over many that are done."""

from datetime import UTC

import apsw
import pytest
from test_query_plans import plans_of

from hive_broker import (
    ApprovalKind,
    ApprovalStatus,
    ScheduleEdit,
    Timetable,
    _approvals,
    _notices,
    _permissions,
    _reminders,
    _schedule_requests,
    _store,
    _todos,
)
from hive_broker._clock import DueRules, do_due, seconds_to_next
from hive_broker._migrate import migrate

RULES = DueRules(lease_seconds=600, max_deliveries=5, zone=UTC)
NOW = 1e9


@pytest.fixture
def db(tmp_path):
    connection = apsw.Connection(str(tmp_path / "records.sqlite"))
    connection.pragma("synchronous", "OFF")
    connection.pragma("foreign_keys", True)
    migrate(connection)
    _store.set_agents(connection, ("iris", "ruth"))
    yield connection
    connection.close()


def everything(db):
    """Every verb that is not a page of the operator's."""
    for delay in (0, 100):
        reminder = _reminders.add_reminder(
            db, now=NOW, agent="iris", message="x", delay_seconds=delay, at=None, spill_path=None, max_pending=9
        ).value
    _reminders.pending_reminders(db, "iris")
    _reminders.cancel_reminder(db, agent="iris", reminder_id=reminder.id)
    request = {"now": NOW, "zone": UTC, "requested_by": "iris", "targets": ["iris"], "body": "x", "description": None}
    timetable = Timetable(first_fire_at=NOW + 1, interval_seconds=60)
    schedule = _schedule_requests.request_schedule(db, **request, timetable=timetable).value
    edit = ScheduleEdit(body="y", targets=("ruth",))
    _schedule_requests.edit_schedule(db, now=NOW, zone=UTC, by="iris", schedule_id=schedule.id, edit=edit)
    (approval,) = _approvals.list_approvals(db, pending_only=True, limit=9, before_id=None)
    decision = {"status": ApprovalStatus.APPROVED, "note": None, "manager": "ruth"}
    _approvals.resolve_approval(db, now=NOW, zone=UTC, approval_id=approval.id, **decision)
    _approvals.submit_approval(db, now=NOW, kind=ApprovalKind.SPAWN, agent="otto", submitter="ruth")
    for summary in ("x", "y"):
        todo = _todos.upsert_todo(db, now=NOW, agent="iris", subsystem="s", key="k", summary=summary).value.todo
    _todos.open_todos(db, "iris")
    _todos.mark_todos_done(db, now=NOW, agent="iris", ids=[todo.id])
    _todos.clear_todo(db, now=NOW, agent="iris", subsystem="s", key="k")
    _permissions.set_permissions(db, now=NOW, agent="iris", groups=["inbox"], capabilities=[])
    _permissions.permissions_of(db, "iris")
    noted = _notices.add_notice(db, now=NOW, subject="a.b", body="{}", dedupe_id="1").value
    _notices.unsent_notices(db, limit=9)
    _notices.mark_notices_sent(db, now=NOW, ids=[noted.id])
    for now in (NOW + 2, NOW + 1000, NOW):
        seconds_to_next(db, now=now, rules=RULES)
        do_due(db, now=now, rules=RULES)
    _schedule_requests.fire_schedule_now(db, now=NOW, by="iris", schedule_id=schedule.id)
    _schedule_requests.cancel_schedule(db, now=NOW, by="iris", schedule_id=schedule.id)
    do_due(db, now=NOW + 1e9, rules=RULES)


def test_every_question_about_the_records_uses_an_index(db):
    """TURN-2, REL-4: what fired and what is done is not walked; of agents there are few."""
    plans = list(plans_of(db, everything))
    assert len(plans) > 40
    scans = {detail for _, detail in plans if detail.startswith("SCAN")}
    allowed = (
        "SCAN CONSTANT ROW",
        "SCAN agents",
        "SCAN reminders USING INDEX reminders_due",  # in its order, until the first that is for an agent of now
        "SCAN r USING INDEX reminders_due",
        "SCAN schedule_targets USING COVERING INDEX schedule_targets_due",
        "SCAN approvals USING INDEX approvals_pending",  # all that waits is what is asked for
        "SCAN notices USING INDEX notices_unsent",
    )
    assert {scan for scan in scans if not scan.startswith(allowed)} == set()
