"""What an agent's door to its records does, whatever is behind it: one suite over all implementations.

The functions take ``desk``, a fixture that gives a ``Desk`` with the agents of ``AGENTS``, of whom ``ruth`` is the
manager. A module that runs the suite imports all names of this one.
"""

import json
import time
from collections.abc import Collection
from typing import Protocol

import pytest

from hive_broker import (
    REMINDER_LIMIT_BYTES,
    SCHEDULE_LIMIT_BYTES,
    Approval,
    ApprovalStatus,
    BrokerMailbox,
    MessageRefused,
    RequestRefused,
    ScheduleEdit,
    ScheduleStatus,
    Timetable,
    TodoChange,
)

AGENTS = ("iris", "ruth", "otto")

FAR = time.time() + 7 * 86_400
"""No test lives to see it."""


class Desk(Protocol):
    """What an implementation has to offer for the suite to run over it."""

    def mailbox(self, name: str, *, allowed_recipients: Collection[str] = ()) -> BrokerMailbox:
        """One agent's door, or the operator's."""

    async def approve(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Decide, as the operator."""

    async def deny(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Decide, as the operator."""


async def only_approval(desk):
    """The one that is pending."""
    (approval,) = await desk.mailbox("ruth").pending_approvals()
    return approval


async def bodies(mailbox):
    """Sender and body of everything unread."""
    found = []
    while deliveries := (await mailbox.recv()).deliveries:
        found += [(delivery.message.sender, delivery.message.body) for delivery in deliveries]
    return found


async def test_a_reminder_that_is_due_comes_from_reminder_and_is_pending_no_more(desk):
    """INB-3."""
    iris = desk.mailbox("iris")
    reminder = await iris.remind("look at the build", delay_seconds=0)
    await iris.wait_unread()
    ((sender, body),) = await bodies(iris)
    assert sender == "reminder"
    assert body.startswith("look at the build\n")
    assert f"reminder #{reminder.id}" in body
    assert "late" not in body
    assert await iris.reminders() == ()


async def test_pending_reminders_are_the_callers_own_next_first(desk):
    """INB-1."""
    iris = desk.mailbox("iris")
    later = await iris.remind("later", at=FAR + 1)
    sooner = await iris.remind("sooner", at=FAR)
    assert await iris.reminders() == (sooner, later)
    assert await desk.mailbox("otto").reminders() == ()


async def test_a_reminder_is_cancelled_by_its_owner_only_and_once(desk):
    """INB-2: the refusal is the same for another's and for none."""
    iris, otto = desk.mailbox("iris"), desk.mailbox("otto")
    reminder = await iris.remind("x", at=FAR)
    for mailbox, number in ((otto, reminder.id), (iris, reminder.id + 1), (iris, 0), (iris, 2**80)):
        with pytest.raises(RequestRefused, match=f"you have no pending reminder {number}"):
            await mailbox.cancel_reminder(number)
    assert await iris.cancel_reminder(reminder.id) == reminder
    with pytest.raises(RequestRefused, match="no pending reminder"):
        await iris.cancel_reminder(reminder.id)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "got neither: give exactly one"),
        ({"delay_seconds": 1, "at": FAR}, "got both: give exactly one"),
        ({"delay_seconds": -1}, "delay_seconds must be 0 or more and at most ten years, got -1"),
        ({"delay_seconds": float("nan")}, "at most ten years, got nan"),
        ({"delay_seconds": float("inf")}, "at most ten years, got inf"),
        ({"delay_seconds": 10**400}, "at most ten years, got 1000"),
        ({"at": 10**400}, "give seconds, not milliseconds"),
        ({"at": float("nan")}, "must be unix seconds, got nan"),
        ({"at": FAR * 1000}, "give seconds, not milliseconds"),
        ({"at": 1_000_000}, "must be in the future, got 1000000 and it is now"),
        ({"at": -1}, "must be unix seconds, got -1"),
        ({"at": FAR, "spill_path": "a\nb"}, "path of a reminder's text must have 1 to 1024 printable"),
    ],
)
async def test_a_reminder_for_no_good_instant_is_refused_in_words(desk, arguments, sentence):
    """INB-3."""
    with pytest.raises(RequestRefused, match=sentence):
        await desk.mailbox("iris").remind("x", **arguments)
    assert await desk.mailbox("iris").reminders() == ()


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("", "a reminder needs something in it"),
        ("a\0b", "without NUL characters, got one at 1"),
        ("\ud83d", "half a surrogate pair at 0"),
        ("x" * (REMINDER_LIMIT_BYTES + 1), "at most 4096 bytes in UTF-8, this one has 4097: write it to a file"),
    ],
)
async def test_a_reminder_that_cannot_be_kept_is_refused_in_words(desk, message, sentence):
    """INB-3: the sentence does not repeat the text."""
    with pytest.raises(RequestRefused, match=sentence):
        await desk.mailbox("iris").remind(message, delay_seconds=1)


async def test_a_spilled_reminder_names_its_file(desk):
    """INB-3."""
    iris = desk.mailbox("iris")
    await iris.remind("x" * REMINDER_LIMIT_BYTES, delay_seconds=0, spill_path="/state/reminders/7.md")
    await iris.wait_unread()
    ((_, body),) = await bodies(iris)
    assert "the whole text is in /state/reminders/7.md" in body


async def test_an_agent_has_fifty_pending_reminders_at_most(desk):
    """INB-3."""
    iris = desk.mailbox("iris")
    for n in range(50):
        await iris.remind(f"{n}", at=FAR)
    with pytest.raises(RequestRefused, match="can have 50 reminders pending"):
        await iris.remind("51st", at=FAR)
    await desk.mailbox("otto").remind("another's first", at=FAR)


async def test_an_upsert_says_whether_it_is_news(desk):
    """WAKE-1: a new or changed summary wakes, an unchanged one does not."""
    iris = desk.mailbox("iris")
    pushes = [
        await iris.upsert_todo(subsystem="forge", key="pr/7", summary=summary)
        for summary in ("review it", "review it", "merge it")
    ]
    assert [push.change for push in pushes] == [TodoChange.NEW, TodoChange.UNCHANGED, TodoChange.CHANGED]
    assert len({push.todo.id for push in pushes}) == 1
    assert await iris.todos() == (pushes[-1].todo,)
    assert await desk.mailbox("otto").todos() == ()


async def test_a_todo_that_was_cleared_is_new_when_it_comes_again(desk):
    """WAKE-1."""
    iris = desk.mailbox("iris")
    first = await iris.upsert_todo(subsystem="bash", key="1", summary="done")
    assert await iris.clear_todo(subsystem="bash", key="1")
    assert not await iris.clear_todo(subsystem="bash", key="1")
    again = await iris.upsert_todo(subsystem="bash", key="1", summary="done")
    assert again.change is TodoChange.NEW
    assert again.todo.id > first.todo.id


async def test_marking_todos_done_skips_what_is_none_of_the_callers_open_ones(desk):
    """SELF-3."""
    iris, otto = desk.mailbox("iris"), desk.mailbox("otto")
    mine = [(await iris.upsert_todo(subsystem="s", key=f"{n}", summary="x")).todo.id for n in range(3)]
    theirs = (await otto.upsert_todo(subsystem="s", key="0", summary="x")).todo.id
    await iris.mark_todos_done([mine[0]])
    marked = await iris.mark_todos_done([mine[0], mine[1], theirs, 0, 999, 2**80])
    assert marked.done == (mine[1],)
    assert set(marked.skipped) == {mine[0], theirs, 0, 999, 2**80}
    assert [todo.id for todo in await iris.todos()] == [mine[2]]
    assert [todo.id for todo in await otto.todos()] == [theirs]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"subsystem": ""}, "a todo's subsystem must have 1 to 63 printable"),
        ({"key": "k" * 501}, "a todo's key must have 1 to 500 printable"),
        ({"summary": " "}, "a todo's summary needs something in it"),
        ({"summary": "x" * 4097}, "at most 4096 bytes in UTF-8, this one has 4097"),
    ],
)
async def test_a_todo_that_cannot_be_kept_is_refused_in_words(desk, changed, sentence):
    """WAKE-1."""
    with pytest.raises(RequestRefused, match=sentence):
        await desk.mailbox("iris").upsert_todo(**({"subsystem": "s", "key": "k", "summary": "x"} | changed))


async def test_a_requested_schedule_fires_after_its_approval_and_not_before(desk):
    """SCHED-1, APPR-1."""
    iris, otto = desk.mailbox("iris"), desk.mailbox("otto")
    schedule = await iris.request_schedule(targets=["otto"], body="stand up", first_fire_at=time.time() + 0.01)
    assert schedule.status is ScheduleStatus.PENDING
    assert [target.next_fire_at for target in schedule.targets] == [None]
    approval = await only_approval(desk)
    assert (approval.commit_ref, approval.submitter) == (str(schedule.id), "iris")
    assert "otto" in approval.description
    assert "stand up" in approval.description
    await desk.approve(approval.id)
    await otto.wait_unread()
    ((sender, body),) = await bodies(otto)
    assert sender == "schedule"
    assert body.startswith("stand up\n")
    assert "requested by iris" in body
    (found,) = await iris.schedules()
    assert (found.status, found.targets[0].next_fire_at) == (ScheduleStatus.DONE, None)
    assert found.targets[0].last_fired_at is not None
    ((told_by, told),) = await bodies(iris)
    assert (told_by, json.loads(told)["event"], json.loads(told)["status"]) == (
        "system",
        "approval_resolved",
        "approved",
    )


async def test_a_denied_schedule_is_cancelled_and_its_requester_told_why(desk):
    """SCHED-1, SYS-1."""
    iris = desk.mailbox("iris")
    await iris.request_schedule(targets=["iris"], body="x", first_fire_at=FAR)
    approval = await only_approval(desk)
    await desk.deny(approval.id, note="too often")
    assert [schedule.status for schedule in await iris.schedules()] == [ScheduleStatus.CANCELLED]
    ((_, told),) = await bodies(iris)
    assert json.loads(told) == {
        "event": "approval_resolved",
        "id": approval.id,
        "agent": "iris",
        "kind": "schedule_prompt",
        "commit_ref": approval.commit_ref,
        "status": "denied",
        "note": "too often",
    }


async def test_an_edit_by_an_agent_waits_for_a_decision_about_what_it_says_now(desk):
    """SCHED-1: nobody approves one thing and gets another."""
    iris = desk.mailbox("iris")
    schedule = await iris.request_schedule(targets=["otto"], body="harmless", first_fire_at=FAR, cron="0 9 * * *")
    first = await only_approval(desk)
    await desk.approve(first.id)
    edited = await iris.edit_schedule(schedule.id, ScheduleEdit(body="other", interval_seconds=60, targets=("ruth",)))
    assert edited.status is ScheduleStatus.PENDING
    assert edited.timetable == Timetable(first_fire_at=FAR, interval_seconds=60)
    assert [(target.agent, target.next_fire_at) for target in edited.targets] == [("ruth", None)]
    second = await only_approval(desk)
    again = await iris.edit_schedule(schedule.id, ScheduleEdit(body="third"))
    third = await only_approval(desk)
    assert first.id < second.id < third.id
    assert "third" in third.description
    with pytest.raises(RequestRefused, match=f"approval {second.id} is cancelled since"):
        await desk.approve(second.id)
    await desk.approve(third.id)
    (found,) = await iris.schedules()
    assert (found.body, found.status) == (again.body, ScheduleStatus.ACTIVE)


async def test_a_cancelled_schedule_takes_its_approval_with_it(desk):
    """SCHED-1."""
    iris = desk.mailbox("iris")
    schedule = await iris.request_schedule(targets=["otto"], body="x", first_fire_at=FAR)
    approval = await only_approval(desk)
    assert (await iris.cancel_schedule(schedule.id)).status is ScheduleStatus.CANCELLED
    with pytest.raises(RequestRefused, match="is cancelled since"):
        await desk.approve(approval.id)
    for refused in (
        iris.cancel_schedule(schedule.id),
        iris.edit_schedule(schedule.id, ScheduleEdit(body="y")),
        iris.fire_schedule_now(schedule.id),
    ):
        with pytest.raises(RequestRefused, match="is cancelled for good: request a new one"):
            await refused
    assert await bodies(iris) == []


async def test_a_schedule_is_its_requesters_and_the_operators(desk):
    """SCHED-1: to others it is one that is not there, though its targets see it."""
    iris, otto, operator = desk.mailbox("iris"), desk.mailbox("otto"), desk.mailbox("operator")
    schedule = await iris.request_schedule(targets=["otto"], body="x", first_fire_at=FAR)
    assert await otto.schedules() == await iris.schedules() == await operator.schedules() == (schedule,)
    assert await desk.mailbox("ruth").schedules() == ()
    for number in (schedule.id, 999, 0, 2**80):
        with pytest.raises(RequestRefused, match=f"you requested no schedule {number}"):
            await otto.cancel_schedule(number)
    assert (await operator.cancel_schedule(schedule.id)).status is ScheduleStatus.CANCELLED


async def test_an_active_schedule_can_fire_out_of_turn(desk):
    """SCHED-1: its instants stay what they are."""
    iris, otto = desk.mailbox("iris"), desk.mailbox("otto")
    schedule = await iris.request_schedule(targets=["otto", "iris"], body="now", first_fire_at=FAR)
    with pytest.raises(RequestRefused, match="waits for the operator's approval"):
        await iris.fire_schedule_now(schedule.id)
    await desk.approve((await only_approval(desk)).id)
    await bodies(iris)
    assert (await iris.fire_schedule_now(schedule.id)).agents == ("iris", "otto")
    for mailbox in (iris, otto):
        ((sender, body),) = await bodies(mailbox)
        assert (sender, body.splitlines()[0]) == ("schedule", "now")
        assert "fired out of turn by iris" in body
    (found,) = await iris.schedules()
    assert {target.next_fire_at for target in found.targets} == {FAR}


async def test_the_operators_schedule_needs_nobodys_approval(desk):
    """SCHED-1."""
    operator = desk.mailbox("operator")
    schedule = await operator.request_schedule(targets=["iris"], body="x", first_fire_at=FAR)
    assert schedule.status is ScheduleStatus.ACTIVE
    edited = await operator.edit_schedule(schedule.id, ScheduleEdit(first_fire_at=FAR + 60, description="later"))
    assert (edited.status, edited.targets[0].next_fire_at) == (ScheduleStatus.ACTIVE, FAR + 60)
    assert await desk.mailbox("ruth").pending_approvals() == ()


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"body": ""}, RequestRefused, "a schedule's body needs something in it"),
        ({"body": "x" * (SCHEDULE_LIMIT_BYTES + 1)}, RequestRefused, "at most 65536 bytes"),
        ({"description": "x" * 1025}, RequestRefused, "a schedule's description can have at most 1024 bytes"),
        ({"targets": []}, RequestRefused, "prompts 1 to 64 agents, got 0"),
        ({"targets": ["operator"]}, RequestRefused, "a schedule prompts agents, got 'operator'"),
        ({"targets": ["ottto"]}, MessageRefused, "did you mean otto"),
        ({"targets": ["system"]}, MessageRefused, "'system' is a reserved name"),
        ({"first_fire_at": 1_000_000}, RequestRefused, "first_fire_at_unix must be in the future; got 1000000"),
        ({"first_fire_at": FAR * 1000}, RequestRefused, "give seconds, not milliseconds"),
        ({"first_fire_at": 10**400}, RequestRefused, "give seconds, not milliseconds"),
        ({"interval_seconds": 10**400}, RequestRefused, "interval_seconds must be 60 to 31622400, got 1000"),
        ({"interval_seconds": 59}, RequestRefused, "interval_seconds must be 60 to 31622400, got 59"),
        ({"interval_seconds": float("nan")}, RequestRefused, "got nan"),
        ({"interval_seconds": 60, "cron": "* * * * *"}, RequestRefused, "got both: leave one of them out"),
        ({"cron": "* * * *"}, RequestRefused, "cron must be five fields"),
        ({"cron": "61 * * * *"}, RequestRefused, "bad minute"),
        ({"cron": "0 0 30 2 *"}, RequestRefused, "bad day-of-month"),
    ],
)
async def test_a_schedule_that_makes_no_sense_is_refused_in_words(desk, changed, error, sentence):
    """SCHED-1, MSG-3: nothing is stored, and nobody is asked."""
    with pytest.raises(error, match=sentence):
        await desk.mailbox("iris").request_schedule(
            **({"targets": ["otto"], "body": "x", "first_fire_at": FAR} | changed)
        )
    assert await desk.mailbox("operator").schedules() == ()
    assert await desk.mailbox("ruth").pending_approvals() == ()


async def test_an_allow_list_limits_the_targets_of_a_schedule_but_not_oneself(desk):
    """MSG-2."""
    iris = desk.mailbox("iris", allowed_recipients=["ruth"])
    with pytest.raises(MessageRefused, match="you can write to operator, ruth only, not to 'otto'"):
        await iris.request_schedule(targets=["otto"], body="x", first_fire_at=FAR)
    schedule = await iris.request_schedule(targets=["iris", "ruth"], body="x", first_fire_at=FAR)
    with pytest.raises(MessageRefused, match="not to 'otto'"):
        await iris.edit_schedule(schedule.id, ScheduleEdit(targets=("otto",)))


async def test_an_agent_has_fifty_open_schedules_at_most(desk):
    """SCHED-1, REL-4: each of them is a decision of the operator's."""
    iris = desk.mailbox("iris")
    for n in range(50):
        last = await iris.request_schedule(targets=["iris"], body=f"{n}", first_fire_at=FAR)
    with pytest.raises(RequestRefused, match="can have 50 schedules pending or active"):
        await iris.request_schedule(targets=["iris"], body="51st", first_fire_at=FAR)
    await iris.cancel_schedule(last.id)
    await iris.request_schedule(targets=["iris"], body="51st", first_fire_at=FAR)


async def test_approvals_are_seen_and_cancelled_by_the_manager_only(desk):
    """INB-1, INB-2."""
    iris, ruth = desk.mailbox("iris"), desk.mailbox("ruth")
    await iris.request_schedule(targets=["iris"], body="x", first_fire_at=FAR)
    approval = await only_approval(desk)
    assert await iris.pending_approvals() == ()
    with pytest.raises(RequestRefused, match=f"you can cancel no approval {approval.id}"):
        await iris.cancel_approval(approval.id)
    cancelled = await ruth.cancel_approval(approval.id, note="not now")
    assert (cancelled.status, cancelled.note) == (ApprovalStatus.CANCELLED, "not now")
    assert [schedule.status for schedule in await iris.schedules()] == [ScheduleStatus.CANCELLED]
    ((_, told),) = await bodies(iris)
    assert json.loads(told)["status"] == "cancelled"


async def test_nothing_is_set_for_an_agent_until_the_operator_sets_it(desk):
    """PERM-2."""
    assert await desk.mailbox("iris").permissions() is None
