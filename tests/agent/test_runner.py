"""The turn loop with mail and a runtime in memory: what an agent does, told by trio's clock (TURN, STOP, MSG-5).

Long because it is one concept: every test is a short life of the same agent in the same small world.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from hive_agent import AgentConfig, EventKind, EventLog, McpServer, Outcome, ParkReason, RunReport, RunRequest, Signal
from hive_agent._runner import AgentNotice, TurnLoop
from hive_agent._turn import IllegalEvent, Phase, Started, TurnState
from hive_agent.testing import MemoryMailbox, MemoryPost, MemoryRuntime, MemoryTurn
from hive_broker import BrokerUnavailable

Play = Callable[[MemoryTurn], Awaitable[Outcome | RunReport]]


@attrs.define
class World:
    """One agent, ruth, with a friend who writes to her."""

    post: MemoryPost
    config: AgentConfig
    events: EventLog
    notices: list[AgentNotice] = attrs.field(factory=list)

    @property
    def ruth(self) -> MemoryMailbox:
        return self.post.mailbox("ruth")

    async def write(self, body: str = "hello") -> int:
        return (await self.post.mailbox("iris").send(to="ruth", body=body)).id

    def loop(
        self,
        runtime: MemoryRuntime,
        *,
        mailbox: object | None = None,
        unshown: Callable[[int], Collection[int]] = lambda _: (),
    ) -> TurnLoop:
        def request(prompt: str, turn_id: int) -> RunRequest:
            server = McpServer(url="http://127.0.0.1:1/", headers={"Hive-Turn": str(turn_id)})
            return RunRequest(prompt=prompt, system_prompt="", mcp_servers={"hyperhive": server})

        return TurnLoop(
            self.config,
            mailbox=mailbox or self.ruth,
            runtime=runtime,
            events=self.events,
            clock=trio.current_time,
            request=request,
            notify=self.notices.append,
            unshown=unshown,
        )

    @asynccontextmanager
    async def running(self, runtime: MemoryRuntime, **kwargs: object) -> AsyncIterator[TurnLoop]:
        loop = self.loop(runtime, **kwargs)
        async with trio.open_nursery() as nursery:
            await nursery.start(loop.run)
            yield loop
            loop.hasten()
            await loop.wait_stopped()

    def kinds(self, kind: EventKind) -> list[Mapping[str, object]]:
        return [event.data for event in self.events.history() if event.kind is kind]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    config = AgentConfig(
        name="ruth", state_dir=tmp_path / "state", harness_dir=tmp_path / "harness", config_dir=tmp_path / "config"
    )
    config.harness_dir.mkdir()
    events = EventLog(tmp_path / "events.sqlite", clock=lambda: 1000.0)
    yield World(post=MemoryPost(["ruth", "iris"]), config=config, events=events)
    events.close()


def reader(world: World, outcome: Outcome = Outcome.DONE) -> Play:
    """A turn that reads all its mail."""

    async def play(turn: MemoryTurn) -> Outcome:
        while (await world.ruth.recv(limit=5, turn_id=turn.turn_id)).deliveries:
            await turn.say()
        await turn.result()
        return outcome

    return play


async def idle(loop: TurnLoop) -> None:
    """Wait until the agent rests, parked or not."""
    while loop.machine.phase is not Phase.IDLE:
        await trio.testing.wait_all_tasks_blocked()


async def test_mail_wakes_an_idle_agent_and_a_good_turn_acks_it(world: World, autojump_clock: object) -> None:
    """TURN-2, MSG-5."""
    runtime = MemoryRuntime(reader(world))
    async with world.running(runtime) as loop:
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.turns == []
        await world.write()
        await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
        assert len(runtime.turns) == 1
        assert (await world.ruth.summary()).unread == 0
        assert loop.machine.parked is None
        assert (await world.ruth.ack_until(10**6)).acked == 0, "the turn has acked it"
    assert [data["outcome"] for data in world.kinds(EventKind.TURN_END)] == ["done"]


async def test_mail_that_was_there_before_the_agent_wakes_it(world: World, autojump_clock: object) -> None:
    """TURN-2: known as "mail to an idle agent stays pending: only transitions were watched" (cao#131)."""
    await world.write()
    runtime = MemoryRuntime(reader(world))
    async with world.running(runtime) as loop:
        await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
        assert len(runtime.turns) == 1


async def test_mail_that_comes_at_the_end_of_a_turn_is_served_by_the_next(world: World, autojump_clock: object) -> None:
    """TURN-2: known as "mail sent just before the turn ends is not drained" (claude-code#82858)."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        if turn.turn_id == runtime.turns[0].turn_id:
            await world.write("too late for this turn")
        await turn.result()
        return Outcome.DONE

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        with trio.fail_after(5):
            while len(runtime.turns) < 2:
                await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
        assert (await world.ruth.summary()).unread == 0


async def test_three_short_messages_start_one_turn(world: World, autojump_clock: object) -> None:
    """TURN-2: wakes coalesce (o8#2100)."""
    for _ in range(3):
        await world.write()
    runtime = MemoryRuntime(reader(world))
    async with world.running(runtime) as loop:
        await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
        await trio.sleep(60)
        assert len(runtime.turns) == 1
        assert "3 unread messages" in runtime.turns[0].request.prompt


async def test_a_failed_turn_gives_its_mail_back_and_the_next_one_says_so(world: World, autojump_clock: object) -> None:
    """MSG-5, TURN-5: at least once, marked, and not at once."""
    outcomes = iter([Outcome.CRASHED, Outcome.DONE])

    async def play(turn: MemoryTurn) -> Outcome:
        return await reader(world, next(outcomes))(turn)

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(1.9)
        assert len(runtime.turns) == 1
        await trio.sleep(0.2)
        assert len(runtime.turns) == 2
        assert "read in an earlier turn" in runtime.turns[1].request.prompt
        assert "crashed" in runtime.turns[1].request.prompt
        await idle(loop)


async def test_a_crashing_runtime_does_not_loop_hot_and_the_operator_hears_of_it_once(
    world: World, autojump_clock: object
) -> None:
    """TURN-5: an agent that fails all night costs a process every five minutes."""

    async def play(turn: MemoryTurn) -> Outcome:
        return Outcome.CRASHED

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(8 * 3600)
        assert 90 < len(runtime.turns) < 120
        assert runtime.most == 1
        assert [notice.reason for notice in world.notices] == [ParkReason.BACKOFF]
        assert loop.retry_at is not None


async def test_a_missing_login_parks_the_agent_and_retrying_is_up_to_somebody(
    world: World, autojump_clock: object
) -> None:
    """TURN-5: needs_login keeps the mail, tells the operator, and goes on when told."""
    outcomes = iter([Outcome.NEEDS_LOGIN, Outcome.DONE])

    async def play(turn: MemoryTurn) -> Outcome:
        outcome = next(outcomes)
        return await reader(world)(turn) if outcome is Outcome.DONE else outcome

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.testing.wait_all_tasks_blocked()
        assert loop.machine.parked is ParkReason.NEEDS_LOGIN
        assert (await world.ruth.summary()).unread == 1
        assert "ANTHROPIC_API_KEY" in world.notices[0].text
        loop.retry_now()
        await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
        assert len(runtime.turns) == 2
        assert loop.machine.parked is None


async def test_a_rate_limit_is_slept_to_its_reset_time_and_no_longer(world: World, autojump_clock: object) -> None:
    """TURN-5."""
    seen: list[float] = []

    async def play(turn: MemoryTurn) -> Outcome | RunReport:
        seen.append(trio.current_time())
        if len(seen) == 1:
            return RunReport(outcome=Outcome.RATE_LIMITED, detail="limit", reset_at=trio.current_time() + 5000)
        return await reader(world)(turn)

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(6000)
        await idle(loop)
    assert len(seen) == 2
    assert 4999 < seen[1] - seen[0] < 5001


async def test_a_night_of_rate_limits_makes_no_dead_letter(world: World, autojump_clock: object) -> None:
    """MSG-6: it is the service's doing, however often the mail is read before the limit comes."""
    runtime = MemoryRuntime(reader(world, Outcome.RATE_LIMITED))
    await world.write()
    async with world.running(runtime):
        await trio.sleep(12 * world.config.rate_limit_sleep_seconds)
        assert len(runtime.turns) > 10
        assert (await world.ruth.summary()).redelivered == 1


async def test_a_silent_turn_is_ended_and_its_mail_comes_back(world: World, autojump_clock: object) -> None:
    """TURN-6 (claude-code#39700): interrupt, terminate, kill."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(turn_id=turn.turn_id)
        await turn.say()
        await trio.sleep_forever()
        raise AssertionError("it was to be ended")

    runtime = MemoryRuntime(play, deaf=frozenset({Signal.INTERRUPT, Signal.TERMINATE}))
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(world.config.turn_silence_seconds + 11)
        assert runtime.turns[0].signals == [Signal.INTERRUPT, Signal.TERMINATE, Signal.KILL]
        assert loop.last_outcome is Outcome.STALLED
        assert (await world.ruth.summary()).redelivered == 1


async def test_a_note_is_no_sign_of_life(world: World, autojump_clock: object) -> None:
    """TURN-6: a runtime that prints nothing but garbage is silent."""

    async def play(turn: MemoryTurn) -> Outcome:
        while True:
            await turn.note("garbage")
            await trio.sleep(60)

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(world.config.turn_silence_seconds + 1)
        assert loop.last_outcome is Outcome.STALLED


async def test_a_busy_turn_is_not_silent_but_has_an_end(world: World, autojump_clock: object) -> None:
    """TURN-6: the total watchdog."""

    async def play(turn: MemoryTurn) -> Outcome:
        while True:
            await turn.say()
            await trio.sleep(60)

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(world.config.turn_total_seconds - 1)
        assert loop.machine.phase is Phase.RUNNING
        await trio.sleep(2)
        assert loop.last_outcome is Outcome.STALLED


async def test_a_process_that_lives_on_after_its_result_is_ended_and_the_turn_counts(
    world: World, autojump_clock: object
) -> None:
    """TURN-6 (claude-code#25629)."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        await turn.result()
        await turn.wait_signal(Signal.TERMINATE)
        return Outcome.DONE

    runtime = MemoryRuntime(play, deaf=frozenset({Signal.TERMINATE}))
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(world.config.post_result_seconds + 1)
        assert loop.last_outcome is Outcome.DONE
        assert (await world.ruth.summary()).unread == 0


async def test_a_stop_waits_for_the_turn_and_takes_no_new_mail(world: World, autojump_clock: object) -> None:
    """STOP-1, STOP-2."""
    finish = trio.Event()

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        await finish.wait()
        await turn.result()
        return Outcome.DONE

    runtime = MemoryRuntime(play)
    await world.write()
    loop = world.loop(runtime)
    async with trio.open_nursery() as nursery:
        await nursery.start(loop.run)
        await trio.testing.wait_all_tasks_blocked()
        loop.request_stop()
        assert loop.stopping
        await world.write("after the stop")
        await trio.sleep(1)
        finish.set()
        await loop.wait_stopped()
    assert len(runtime.turns) == 1
    assert loop.last_outcome is Outcome.DONE
    assert (await world.ruth.summary()).unread == 1


async def test_a_turn_that_outlasts_the_grace_is_interrupted(world: World, autojump_clock: object) -> None:
    """STOP-2: a looping turn cannot hold a restart (hermes-agent#93711)."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        await trio.sleep_forever()
        raise AssertionError("it was to be ended")

    runtime = MemoryRuntime(play)
    await world.write()
    loop = world.loop(runtime)
    async with trio.open_nursery() as nursery:
        await nursery.start(loop.run)
        await trio.testing.wait_all_tasks_blocked()
        loop.request_stop()
        started = trio.current_time()
        await loop.wait_stopped()
    assert trio.current_time() - started == pytest.approx(world.config.grace_seconds, abs=1)
    assert runtime.running == 0
    assert (await world.ruth.summary()).redelivered == 1


async def test_cancelling_gives_the_mail_back_at_once(world: World, autojump_clock: object) -> None:
    """REL-1: known as "the last write of a cancelled task used the cancelled scope and was lost" (multica#4336)."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        await trio.sleep_forever()
        raise AssertionError("it was to be cancelled")

    runtime = MemoryRuntime(play)
    await world.write()
    loop = world.loop(runtime)
    async with trio.open_nursery() as nursery:
        await nursery.start(loop.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (await world.ruth.summary()).unread == 0
        nursery.cancel_scope.cancel()
    assert runtime.running == 0
    assert (await world.ruth.summary()).redelivered == 1


@attrs.define
class Faulty:
    """Ruth's mailbox with a disk that is full for a while."""

    inner: MemoryMailbox
    broken: set[str] = attrs.field(factory=set)
    refused: int = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def __getattr__(self, method: str) -> object:
        async def call(*args: object, **kwargs: object) -> object:
            await trio.lowlevel.checkpoint()
            if method in self.broken:
                self.refused += 1
                raise BrokerUnavailable("the disk is full: make room")
            return await getattr(self.inner, method)(*args, **kwargs)

        return call


async def test_a_full_disk_at_the_end_of_a_turn_loses_no_ack(world: World, autojump_clock: object) -> None:
    """REL-3: the turn's end is stored once there is room, and no turn starts before."""
    runtime = MemoryRuntime(reader(world))
    mailbox = Faulty(world.ruth, {"close_turn"})
    await world.write()
    async with world.running(runtime, mailbox=mailbox) as loop:
        await trio.sleep(600)
        assert loop.machine.phase is Phase.CLOSING
        assert 20 < mailbox.refused < 60
        mailbox.broken.clear()
        await trio.sleep(31)
        assert loop.machine.phase is Phase.IDLE
        assert len(runtime.turns) == 1
        assert (await world.ruth.ack_until(10**6)).acked == 0


@pytest.mark.parametrize("hastened", [False, True])
async def test_an_agent_that_is_to_leave_gives_up_on_a_mailbox_that_stays_away(
    world: World, autojump_clock: object, hastened: bool
) -> None:
    """STOP-2, STOP-3: a hive-agent whose hive is gone must not live for ever; the next start gives its mail back."""
    runtime = MemoryRuntime(reader(world))
    mailbox = Faulty(world.ruth, {"close_turn"})
    await world.write()
    loop = world.loop(runtime, mailbox=mailbox)
    async with trio.open_nursery() as nursery:
        await nursery.start(loop.run)
        await trio.sleep(60)
        assert loop.machine.phase is Phase.CLOSING
        started = trio.current_time()
        loop.request_stop()
        if hastened:
            loop.hasten()
        await loop.wait_stopped()
    assert trio.current_time() - started < (10 if hastened else 30)


async def test_a_mailbox_that_is_away_is_waited_for(world: World, autojump_clock: object) -> None:
    """SURF-4, REL-3."""
    runtime = MemoryRuntime(reader(world))
    mailbox = Faulty(world.ruth, {"wait_unread", "open_turn"})
    await world.write()
    async with world.running(runtime, mailbox=mailbox) as loop:
        await trio.sleep(100)
        assert runtime.turns == []
        mailbox.broken.discard("wait_unread")
        await trio.sleep(100)
        assert runtime.turns == [], "a turn that cannot be opened does not run"
        mailbox.broken.clear()
        await trio.sleep(400)
        await idle(loop)
        assert len(runtime.turns) == 1


async def test_mail_whose_answer_was_lost_comes_again_although_the_turn_ended_well(
    world: World, autojump_clock: object
) -> None:
    """MSG-5: popped by a call that got no answer is not read."""
    lost = [{1}, set()]
    runtime = MemoryRuntime(reader(world))
    await world.write()
    async with world.running(runtime, unshown=lambda _: lost.pop(0)) as loop:
        await trio.sleep(1)
        await idle(loop)
        assert len(runtime.turns) == 2
        assert "read in an earlier turn" in runtime.turns[1].request.prompt
        assert (await world.ruth.summary()).unread == 0


async def test_closing_a_turn_that_popped_nothing_is_seen_and_slows_the_wakes(
    world: World, autojump_clock: object
) -> None:
    """TURN-5."""

    async def play(turn: MemoryTurn) -> Outcome:
        await turn.result()
        return Outcome.DONE

    runtime = MemoryRuntime(play)
    await world.write()
    async with world.running(runtime) as loop:
        await trio.sleep(3600)
        assert loop.machine.parked is ParkReason.MAIL_IGNORED
        assert len(runtime.turns) < 20
        assert len(world.notices) == 1


async def test_a_bug_of_ours_ends_the_loop_loudly_and_gives_the_mail_back(world: World, autojump_clock: object) -> None:
    """TURN-1: an illegal event is an error, not a shrug; the supervisor starts the agent anew."""

    async def play(turn: MemoryTurn) -> Outcome:
        await world.ruth.recv(limit=5, turn_id=turn.turn_id)
        await loop._post(Started())
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    runtime = MemoryRuntime(play)
    await world.write()
    loop = world.loop(runtime)
    with pytest.RaisesGroup(IllegalEvent, flatten_subgroups=True):
        await loop.run()
    assert runtime.running == 0
    assert (await world.ruth.summary()).redelivered == 1


async def test_the_log_tells_the_whole_turn_in_order(world: World, autojump_clock: object) -> None:
    """BUS-1."""
    runtime = MemoryRuntime(reader(world))
    await world.write()
    async with world.running(runtime) as loop:
        await trio.testing.wait_all_tasks_blocked()
        await idle(loop)
    kinds = [event.kind for event in world.events.history()]
    assert kinds == [
        EventKind.TURN_STATE_CHANGED,
        EventKind.TURN_START,
        EventKind.STREAM,
        EventKind.STREAM,
        EventKind.TURN_END,
        EventKind.TURN_STATE_CHANGED,
    ]
    states = [data["turn_state"] for data in world.kinds(EventKind.TURN_STATE_CHANGED)]
    assert states == [TurnState.THINKING.value, TurnState.IDLE.value]
