"""The operator's queue: decided once, told with the same commit, and there after a restart."""

import json
from functools import partial

import pytest
import trio

from hive_broker import ApprovalKind, ApprovalStatus, RecordKind, RecordsChanged, RequestRefused, open_broker

AGENTS = ("iris", "ruth", "otto")


async def submit(broker, **more):
    return await broker.submit_approval(
        ApprovalKind.MERGE_CONFIG_PR, **({"agent": "iris", "commit_ref": "7", "submitter": "otto"} | more)
    )


async def events_of(broker, name):
    """What the hive told one name."""
    return [json.loads(m.body) for m in await broker.inbox(name) if m.sender == "system"]


async def test_an_approval_survives_a_restart_with_all_that_was_said(path):
    """APPR-1, failure 26: an unanswered one stays pending for ever."""
    async with open_broker(path, owner="first") as broker:
        await broker.set_agents(AGENTS)
        asked = await submit(broker, fetched_sha="cafe", description="raise the limit")
    async with open_broker(path, owner="second") as broker:
        assert await broker.approvals(pending_only=True) == (asked,)
        assert (asked.status, asked.resolved_at, asked.note) == (ApprovalStatus.PENDING, None, None)


@pytest.mark.parametrize("verb", ["approve", "deny", "fail", "cancel"])
async def test_a_decision_is_made_once_and_told_to_whoever_asked(broker, verb):
    """APPR-1, SYS-1, SYS-2."""
    asked = await submit(broker)
    decided = await getattr(broker, verb)(asked.id, note="because")
    assert (
        decided.status.value == {"approve": "approved", "deny": "denied", "fail": "failed", "cancel": "cancelled"}[verb]
    )
    assert await events_of(broker, "otto") == [
        {
            "event": "approval_resolved",
            "id": asked.id,
            "agent": "iris",
            "kind": "merge_config_pr",
            "commit_ref": "7",
            "status": decided.status.value,
            "note": "because",
        }
    ]
    for again in ("approve", "deny", "fail", "cancel"):
        sentence = f"approval {asked.id} is {decided.status.value} since .* UTC, and a decision is made once"
        with pytest.raises(RequestRefused, match=sentence):
            await getattr(broker, again)(asked.id, note="again")
    assert len(await events_of(broker, "otto")) == 1
    assert await broker.approvals() == (decided,)


@pytest.mark.parametrize("number", [0, -1, 999, 2**80])
async def test_a_decision_about_nothing_is_refused_in_words(broker, number):
    """APPR-1, HOST-1."""
    with pytest.raises(RequestRefused, match=f"there is no approval {number}: list them"):
        await broker.approve(number)


async def test_two_who_decide_at_once_decide_once(broker):
    """APPR-1: one of them is told that it is decided."""
    asked = await submit(broker)
    outcomes = []

    async def decide(verb):
        try:
            outcomes.append((await verb(asked.id)).status.value)
        except RequestRefused:
            outcomes.append("refused")

    async with trio.open_nursery() as nursery:
        for verb in (broker.approve, broker.deny, broker.approve):
            nursery.start_soon(decide, verb)
    assert sorted(outcomes)[-2:] == ["refused", "refused"]
    assert len(await events_of(broker, "otto")) == 1


@pytest.mark.parametrize(
    ("submitter", "told"), [("otto", "otto"), (None, "ruth"), ("gone", "ruth"), ("operator", None)]
)
async def test_the_manager_hears_where_nobody_else_can(broker, submitter, told):
    """SYS-2; the operator needs not be told what it did itself."""
    asked = await submit(broker, submitter=submitter)
    await broker.approve(asked.id)
    heard = [name for name in ("iris", "ruth", "otto", "operator") if await events_of(broker, name)]
    assert heard == ([told] if told else [])


async def test_a_decision_stands_where_there_is_nobody_to_tell(broker):
    """SYS-2."""
    asked = await submit(broker)
    await broker.set_agents(["iris"])
    assert (await broker.deny(asked.id)).status is ApprovalStatus.DENIED


async def test_the_same_thing_asked_again_while_it_is_pending_is_one_entry(broker):
    """APPR-1: a retry after a lost answer makes no second decision."""
    asked = await submit(broker)
    assert await submit(broker) == asked
    other = await submit(broker, commit_ref="8")
    await broker.deny(asked.id)
    later = await submit(broker)
    assert asked.id < other.id < later.id
    assert [entry.id for entry in await broker.approvals(limit=2)] == [later.id, other.id]
    assert [entry.id for entry in await broker.approvals(before_id=other.id)] == [asked.id]


async def test_a_spawn_is_about_an_agent_that_is_none_yet(broker):
    """APPR-1: and has an empty commit_ref."""
    asked = await broker.submit_approval(ApprovalKind.SPAWN, agent="newcomer", submitter="ruth")
    assert (asked.agent, asked.commit_ref) == ("newcomer", "")


async def test_a_schedule_is_put_up_by_whoever_requests_it(broker):
    """SCHED-1: an entry without its schedule would approve nothing."""
    with pytest.raises(ValueError, match="call request_schedule"):
        await broker.submit_approval(ApprovalKind.SCHEDULE_PROMPT, agent="iris", commit_ref="1")


async def test_what_cannot_be_kept_is_refused_in_words(broker):
    """APPR-1."""
    with pytest.raises(RequestRefused, match="a description can have at most 65536 bytes"):
        await submit(broker, description="x" * 65_537)
    asked = await submit(broker)
    with pytest.raises(RequestRefused, match="a note needs something in it"):
        await broker.deny(asked.id, note=" ")
    assert (await broker.approvals())[0].status is ApprovalStatus.PENDING


async def test_watchers_are_told_of_every_change(broker):
    """DASH-1, PERM-2: one event says where to look again."""
    with broker.watch() as events:
        asked = await submit(broker)
        await broker.deny(asked.id)
        await broker.set_permissions("iris", groups=["messaging"])
        await broker.add_notice("a.b", {}, dedupe_id="1")
        await broker.mailbox("otto").upsert_todo(subsystem="s", key="k", summary="x")
        await broker.mailbox("otto").upsert_todo(subsystem="s", key="k", summary="x")
        await broker.mailbox("otto").remind("x", delay_seconds=1000)
        seen = [events.receive_nowait() for _ in range(7)]
        with pytest.raises(trio.WouldBlock):
            events.receive_nowait()
    changed = partial(RecordsChanged, agent="iris")
    assert [seen[n] for n in (0, 1, 3)] == [
        changed(kind=RecordKind.APPROVALS),
        changed(kind=RecordKind.APPROVALS),
        changed(kind=RecordKind.PERMISSIONS),
    ]
    assert seen[4:] == [
        RecordsChanged(kind=RecordKind.NOTICES),
        RecordsChanged(kind=RecordKind.TODOS, agent="otto"),
        RecordsChanged(kind=RecordKind.REMINDERS, agent="otto"),
    ]
