"""What surrounds a call: the log before and after it, and an id for a fault of ours."""

import attrs
import pytest
import trio
from logs import captured_logs
from mcp_support import Services, Stuck, make_desk

from hive_agent._mcp._envelope import Caller, run_tool
from hive_agent._mcp._popped import PoppedRows
from hive_agent._mcp._tool import Tool, ToolAnswer


@attrs.frozen(kw_only=True)
class Nothing:
    """A tool's arguments when it takes none."""


def make_tool(handler) -> Tool:
    return Tool(name="probe", title="Probe", description="Probe.", input_type=Nothing, handler=handler)


async def run(tool, **arguments):
    services = Services(mailbox=None)
    return await run_tool(
        tool, arguments, Caller(services=services, popped=PoppedRows(), turn=None, is_wanted=lambda: True)
    )


async def test_every_call_is_logged_before_and_after():
    """ENV-1: name, caller, duration, outcome."""
    desk = make_desk()
    with captured_logs() as lines:
        await desk.call("send", to="otto", body="hello")
    called, answered = lines
    assert called == {
        "event": "tool called",
        "log_level": "info",
        "tool": "send",
        "caller": "iris",
        "turn": None,
        "arguments": {"to": "otto", "body": "hello"},
    }
    assert {name: answered[name] for name in ("event", "tool", "caller", "outcome", "text")} == {
        "event": "tool answered",
        "tool": "send",
        "caller": "iris",
        "outcome": "ok",
        "text": "sent: message #1 to otto",
    }
    assert answered["duration_seconds"] >= 0


async def test_bodies_are_shortened_and_nothing_in_the_log_is_deep_or_unprintable():
    """ENV-1, REL-4: a log that cannot be written would fail the call."""
    desk = make_desk()
    many = {f"extra{number}": number for number in range(1000)}
    with captured_logs() as lines:
        await desk.result("send", to=[[["x"]]], body="s" * 10_000, half="\ud800", huge=10**5000, deep={"a": 1}, **many)
    called = lines[0]["arguments"]
    assert len(called) == 20
    assert called["body"] == "s" * 200 + "… (10000)"
    assert called["half"] == "\\ud800"
    assert (called["to"], called["deep"], called["huge"]) == ("[…]", "{…}", "a huge number")
    assert len(repr(lines)) < 5_000


async def test_unknown_arguments_are_named_in_the_log():
    """ENV-1: a model that invents arguments is worth knowing about."""
    desk = make_desk()
    with captured_logs() as lines:
        await desk.call("recv", wait=True)
    assert [line["names"] for line in lines if line["event"] == "unknown arguments ignored"] == [["wait"]]


@pytest.mark.parametrize("error", [KeyError("secret"), ExceptionGroup("several", [OSError("secret")])])
async def test_a_fault_of_ours_gives_an_id_that_finds_the_traceback(error):
    """SURF-6: the model learns nothing else of it."""

    async def broken(_call, _arguments):
        await trio.lowlevel.checkpoint()
        raise error

    with captured_logs() as lines:
        result = await run(make_tool(broken))
    (failure,) = [line for line in lines if line["event"] == "tool failed"]
    assert failure["exc_info"][1] is error
    assert result.text.endswith(f"tell the operator id {failure['error_id']}.")
    assert "secret" not in result.text
    assert [line["outcome"] for line in lines if "outcome" in line] == ["bug"]


async def test_a_cancelled_call_is_logged_and_stays_cancelled():
    """ENV-1: the client left; nobody swallows that."""
    desk = make_desk()
    desk.services.mailbox = stuck = Stuck()
    with captured_logs() as lines, trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.result, "recv")
            await stuck.reached.wait()
            nursery.cancel_scope.cancel()
    assert stuck.cancelled.is_set()
    assert lines[-1]["outcome"] == "cancelled"


async def test_an_answer_over_the_limit_is_clamped():
    """SURF-3: whatever a tool says."""

    async def chatty(_call, _arguments):
        await trio.lowlevel.checkpoint()
        return ToolAnswer(text="x" * 60_000, data={})

    result = await run(make_tool(chatty))
    assert len(result.text) <= 45_000
    assert result.text.endswith("more characters were left out of this answer]")
