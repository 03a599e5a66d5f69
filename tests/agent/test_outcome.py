"""How a run ended, judged from lines that the real CLI printed, cut down to what counts."""

import json
from functools import reduce

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_agent._runtime._outcome import (
    DETAIL_CHARACTERS,
    RunFacts,
    SessionTrouble,
    classify,
    is_final,
    listed_sessions,
    session_trouble,
)
from hive_agent._runtime._stream import StreamLine
from hive_agent._turn import Outcome

SESSION = "d0259c59-c2ad-4a1a-ab50-f6dcaaa3648f"
INIT = {"type": "system", "subtype": "init", "mcp_servers": [], "session_id": SESSION}
DONE = {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed", "result": "hi"}
LIMIT = "You've hit your limit · resets 3pm (Europe/Berlin)"


def spoken(text: str = "hi", **more) -> dict:
    """A message of a model."""
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"model": "claude-opus-5-5", "content": content, **more}}


def synthetic(error: str | None = None, text: str = "") -> dict:
    """A message that the CLI wrote itself."""
    usage = {"input_tokens": 0, "output_tokens": 0}
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": text}], "usage": usage}
    return {"type": "assistant", "message": message} | ({"error": error} if error else {})


def failed(text: str, status: int | None = None, reason: str = "api_error") -> dict:
    """A result as the CLI gives it for an error of the service: its subtype says success all the same."""
    return DONE | {"is_error": True, "api_error_status": status, "terminal_reason": reason, "result": text}


def broken_off(subtype: str, reason: str, *errors: str) -> dict:
    """A result of a run that the CLI itself broke off."""
    reasons = {"terminal_reason": reason, "errors": list(errors)}
    return {"type": "result", "subtype": subtype, "is_error": True, **reasons}


def rejected(**more) -> dict:
    """The service refuses until a time."""
    info = {"status": "rejected", "resetsAt": 1893456000, "rateLimitType": "five_hour", "isUsingOverage": False}
    return {"type": "rate_limit_event", "rate_limit_info": info | more}


def facts_of(*lines: dict, code: int | None = 0, required: frozenset[str] = frozenset(), **more) -> RunFacts:
    """What is known of a process that printed these lines."""
    facts = RunFacts()
    for line in lines:
        facts = facts.with_line(StreamLine(line), required=required)
    return attrs.evolve(facts, exit_code=code, **more)


RETRY_401 = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 1,
    "max_retries": 10,
    "error_status": 401,
    "error": "authentication_failed",
}

SAMPLES = {
    "a plain success": ([INIT, spoken(), DONE], 0, Outcome.DONE),
    "a success before a kill": ([INIT, spoken(), DONE], -9, Outcome.DONE),
    "401": (
        [INIT, synthetic("authentication_failed"), failed("Failed to authenticate. API Error: 401 …", 401)],
        1,
        Outcome.NEEDS_LOGIN,
    ),
    "403": (
        [INIT, synthetic("authentication_failed"), failed("Failed to authenticate. API Error: 403 …", 403)],
        1,
        Outcome.NEEDS_LOGIN,
    ),
    "401 by its status alone": ([INIT, failed("Failed", 401)], 1, Outcome.NEEDS_LOGIN),
    "no key": (
        [INIT, synthetic("authentication_failed"), failed("Not logged in · Please run /login")],
        1,
        Outcome.NEEDS_LOGIN,
    ),
    "429": (
        [INIT, synthetic("rate_limit"), failed("API Error: Request rejected (429) · …", 429)],
        1,
        Outcome.RATE_LIMITED,
    ),
    "a usage limit": (
        [INIT, rejected(), synthetic("rate_limit"), failed("You've hit your 5-hour limit · resets Jan 1", 429)],
        1,
        Outcome.RATE_LIMITED,
    ),
    "a usage limit inside a success": (
        [INIT, synthetic(text=LIMIT), DONE | {"result": LIMIT}],
        0,
        Outcome.RATE_LIMITED,
    ),
    "a usage limit inside a success, as if a model had said it": (
        [INIT, spoken(LIMIT), DONE | {"result": LIMIT}],
        0,
        Outcome.RATE_LIMITED,
    ),
    "a usage limit in older words": (
        [INIT, synthetic(), DONE | {"result": "Claude AI usage limit reached|1893456000"}],
        0,
        Outcome.RATE_LIMITED,
    ),
    "a refusal and then a success": ([INIT, rejected(), DONE], 0, Outcome.RATE_LIMITED),
    "a refusal that passed": ([INIT, rejected(), spoken(), DONE], 0, Outcome.DONE),
    "a refusal that is paid for": ([INIT, spoken(), rejected(isUsingOverage=True), DONE], 0, Outcome.DONE),
    "a refusal taken back": ([INIT, rejected(), rejected(status="allowed"), DONE], 0, Outcome.DONE),
    "a model that speaks about a limit": (
        [INIT, spoken("You've hit your word limit"), DONE | {"result": "You've hit your word limit"}],
        0,
        Outcome.DONE,
    ),
    "529": ([INIT, synthetic("server_error"), failed("API Error: 529 …", 529)], 1, Outcome.OVERLOADED),
    "500": ([INIT, synthetic("server_error"), failed("API Error: 500 …", 500)], 1, Outcome.OVERLOADED),
    "a connection that was cut": (
        [INIT, spoken("x"), synthetic("server_error"), failed("API Error: Connection dropped (ECONNRESET).")],
        1,
        Outcome.OVERLOADED,
    ),
    "a prompt that is too long": (
        [INIT, synthetic("invalid_request"), failed("Prompt is too long · …", 400, "prompt_too_long")],
        1,
        Outcome.PROMPT_TOO_LONG,
    ),
    "no credit": (
        [INIT, synthetic("billing_error"), failed("Credit balance is too low", 400)],
        1,
        Outcome.REFUSED,
    ),
    "max turns": (
        [INIT, spoken(), broken_off("error_max_turns", "max_turns", "Reached maximum number of turns (1)")],
        1,
        Outcome.REFUSED,
    ),
    "max budget": (
        [INIT, spoken(), broken_off("error_max_budget_usd", "budget_exhausted", "Reached maximum budget ($0.001)")],
        1,
        Outcome.REFUSED,
    ),
    "an interrupt, which exits with 0": (
        [INIT, spoken("x"), broken_off("error_during_execution", "aborted_streaming", "[ede_diagnostic] …")],
        0,
        Outcome.INTERRUPTED,
    ),
    "an interrupt within a tool, after an error that was tried again": (
        [INIT, synthetic("server_error"), broken_off("error_during_execution", "aborted_tools", "…")],
        0,
        Outcome.INTERRUPTED,
    ),
    "an image that is too large": (
        [INIT, synthetic("invalid_request"), failed("Request too large (max 32MB).", 413, "image_error")],
        1,
        Outcome.FAILED,
    ),
    "a model that does not exist": (
        [INIT, synthetic("model_not_found"), failed("There's an issue with the selected model", 404)],
        1,
        Outcome.FAILED,
    ),
    "an unknown way to fail": ([INIT, broken_off("error_of_tomorrow", "something_new")], 1, Outcome.FAILED),
    "an unknown way to succeed": ([INIT, DONE | {"subtype": "success_of_tomorrow"}], 0, Outcome.FAILED),
    "a result without anything": ([{"type": "result"}], 0, Outcome.FAILED),
    "a login refused more often than a renewed token explains": (
        [INIT, *[RETRY_401] * 3, broken_off("error_during_execution", "aborted_streaming")],
        0,
        Outcome.NEEDS_LOGIN,
    ),
    "a login refused and then renewed": ([INIT, RETRY_401, RETRY_401, spoken("hi"), DONE], 0, Outcome.DONE),
    "SIGTERM": ([INIT, spoken("x")], 143, Outcome.CRASHED),
    "SIGKILL": ([INIT, spoken("x")], -9, Outcome.CRASHED),
    "an exit in silence": ([], 0, Outcome.CRASHED),
}


@pytest.mark.parametrize(("lines", "code", "outcome"), SAMPLES.values(), ids=SAMPLES)
def test_each_end_of_a_run_has_its_outcome(lines, code, outcome):
    """TURN-5: one outcome for every way a run was seen to end."""
    report = classify(facts_of(*lines, code=code))

    assert report.outcome is outcome
    assert report.exit_code == code
    assert bool(report.detail) is (outcome is not Outcome.DONE)


def test_a_rate_limit_says_until_when():
    """TURN-5: the event names the reset time; a text alone does not."""
    limited = failed("You've hit your 5-hour limit", 429)

    assert classify(facts_of(INIT, rejected(), limited, code=1)).reset_at == 1893456000.0
    assert classify(facts_of(INIT, limited, code=1)).reset_at is None
    assert classify(facts_of(INIT, rejected(), failed("Prompt is too long", 400, "prompt_too_long"))).reset_at is None


@pytest.mark.parametrize("at", [None, True, "soon", [], {}, -1, 0, 10**400, 1893456000000, float("nan"), float("inf")])
def test_a_reset_time_that_is_none_is_not_waited_for(at):
    """TURN-5: a number that is no time must not park an agent for ever, or end its task."""
    report = classify(facts_of(INIT, rejected(resetsAt=at), failed("limit", 429), code=1))

    assert report.outcome is Outcome.RATE_LIMITED
    assert report.reset_at is None


def test_a_process_that_never_was_has_failed_with_its_reason():
    """TURN-5: the sentence of the failed start is what the operator reads."""
    report = classify(RunFacts(spawn_error="cannot start 'claude': No such file or directory"))

    assert (report.outcome, report.exit_code) == (Outcome.FAILED, None)
    assert "No such file" in report.detail


def test_a_missing_required_server_fails_a_run_that_calls_itself_a_success():
    """SURF-7: the CLI goes on without its tools and says all is well."""
    down = INIT | {"mcp_servers": [{"name": "hyperhive", "status": "failed"}, {"name": "bash", "status": "connected"}]}
    facts = facts_of(down, spoken(), DONE, required=frozenset({"hyperhive", "bash"}))

    assert classify(facts).outcome is Outcome.FAILED
    assert "hyperhive did not connect" in classify(facts).detail


def test_a_required_server_that_is_not_listed_is_missing():
    """SURF-7: silence about a server is no connection."""
    for servers in (None, {}, [], ["hyperhive"], [{"name": ["hyperhive"], "status": "connected"}], [None]):
        facts = facts_of(INIT | {"mcp_servers": servers}, required=frozenset({"hyperhive"}))
        assert facts.missing_servers == ("hyperhive",)


def test_a_crash_is_told_with_its_last_words_and_the_lines_nobody_could_read():
    """TURN-5: what the operator needs to look further."""
    detail = classify(RunFacts(exit_code=3, stderr_tail="first\nlast words", garbage_lines=7)).detail

    assert detail == "the runtime exited with code 3 and gave no result (7 of its lines were not JSON): last words"
    assert classify(RunFacts(exit_code=-6)).detail == "the runtime was ended by signal 6"


def test_a_detail_is_short_and_can_be_written_anywhere():
    """REL-4: half a character in an error must not end whoever writes it down."""
    detail = classify(facts_of(failed("\ud800" + "x" * 5000), code=1)).detail

    assert len(detail) <= DETAIL_CHARACTERS + 5
    assert detail.encode().startswith(b"\\ud800x")


def test_the_last_result_counts():
    """TURN-5: a run can report more than once."""
    assert classify(facts_of(failed("API Error", 529), DONE)).outcome is Outcome.DONE


def test_statistics_hold_what_the_run_used():
    """TURN-7: figures of this run, tool calls by name, and what the context holds."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 500}
    calls = [{"type": "tool_use", "name": "Read"}, {"type": "tool_use", "name": "mcp__hyperhive__recv"}]
    first = spoken() | {"message": {"model": "m", "content": calls, "usage": {"input_tokens": 1}}}
    second = spoken() | {"message": {"model": "m", "content": calls[:1], "usage": usage}}
    result = DONE | {"duration_ms": 5, "num_turns": 2, "total_cost_usd": 0.5, "usage": usage, "uuid": "not kept"}

    statistics = classify(facts_of(INIT, first, second, synthetic(), result)).statistics

    assert statistics == {
        "duration_ms": 5,
        "num_turns": 2,
        "total_cost_usd": 0.5,
        "usage": usage,
        "context_usage": usage,
        "tool_calls": {"Read": 2, "mcp__hyperhive__recv": 1},
    }


def test_made_up_tool_names_are_counted_together():
    """REL-4: a runtime that makes up a name a call fills neither memory nor record; what was known goes on."""
    facts = RunFacts()
    for number in range(1000):
        content = [{"type": "tool_use", "name": f"{number} " + "x" * 5000}, {"type": "tool_use", "name": "Read"}]
        facts = facts.with_line(StreamLine({"type": "assistant", "message": {"model": "m", "content": content}}))
    calls = classify(facts).statistics["tool_calls"]
    assert (calls["Read"], calls["(other tools)"], len(calls)) == (1000, 801, 201)
    assert max(map(len, calls)) == 128


def test_facts_of_an_earlier_line_stay_as_they_were():
    """TURN-5: they are values."""
    before = facts_of(spoken() | {"message": {"model": "m", "content": [{"type": "tool_use", "name": "Read"}]}})
    before.with_line(StreamLine({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Read"}]}}))
    assert before.tool_calls == {"Read": 1}


@pytest.mark.parametrize(
    "figure",
    [{"": "x" * 20_000}, reduce(lambda inner, _: [inner], range(10), []), {"x": [0] * 10_000}],
    ids=["long", "deep", "wide"],
)
def test_what_cannot_be_a_figure_is_not_among_the_statistics(figure):
    """TURN-7, REL-4: a turn whose record the broker cannot take would never end."""
    said = spoken() | {"message": {"model": "m", "content": [], "usage": {"": figure}}}
    statistics = classify(facts_of(said, DONE | {"usage": figure, "num_turns": 2})).statistics
    assert statistics == {"num_turns": 2, "context_usage": {}, "tool_calls": {}}


MISSING = broken_off(
    "error_during_execution", "", 'Provided value "t" is not a UUID and does not match any session title.'
)
GONE = broken_off("error_during_execution", "", f"No conversation found with session ID: {SESSION}")
TWICE = 'Error: --resume "t" matches 2 sessions. Pass one of these session IDs to disambiguate:'
OTHER = "aaa5cef0-26d1-4b93-875c-7a4652beeaba"
DUPLICATE = broken_off("error_during_execution", "", f"{TWICE}\n  {OTHER}  (modified …)\n  {SESSION}  (modified …)")


def test_a_session_that_cannot_be_resumed_is_recognised():
    """TURN-3: from the result, or from what the CLI complained of."""
    assert session_trouble(facts_of(MISSING, code=1)) is SessionTrouble.MISSING
    assert session_trouble(facts_of(GONE, code=1)) is SessionTrouble.MISSING
    assert session_trouble(facts_of(DUPLICATE, code=1)) is SessionTrouble.DUPLICATE
    assert session_trouble(facts_of(code=1, stderr_tail=MISSING["errors"][0])) is SessionTrouble.MISSING
    assert listed_sessions(facts_of(DUPLICATE, code=1)) == (OTHER, SESSION)


def test_a_run_whose_session_was_there_has_no_trouble_with_it():
    """TURN-3: a model can say anything, and a run that began is never done twice."""
    assert session_trouble(facts_of(INIT, MISSING, code=1)) is None
    assert session_trouble(facts_of(MISSING, code=0)) is None
    assert session_trouble(facts_of(MISSING, code=None)) is None
    assert session_trouble(facts_of(failed("API Error", 500), code=1)) is None


def test_a_result_about_the_session_is_not_the_turns_result():
    """TURN-6: the process is started again after it, so nobody must wait for its exit."""
    assert is_final(StreamLine(DONE))
    assert is_final(StreamLine(failed("API Error", 500)))
    assert not is_final(StreamLine(spoken()))
    for about_the_session in (MISSING, GONE, DUPLICATE):
        assert not is_final(StreamLine(about_the_session))


@pytest.mark.parametrize("session_id", ["--dangerously-skip-permissions", "", "x", SESSION + "\n", 5, None, [SESSION]])
def test_what_is_no_id_of_a_session_is_not_kept(session_id):
    """SEC-4: it would become an argument of the next command line."""
    assert facts_of(INIT | {"session_id": session_id}).session_id is None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=4)
TYPES = st.sampled_from(["result", "assistant", "rate_limit_event", "system", "user", "of_tomorrow"])
FIELDS = {
    "subtype": st.sampled_from(["init", "success", "error_max_turns"]) | JSON,
    "is_error": st.booleans() | JSON,
    "message": st.fixed_dictionaries({}, optional={"content": JSON, "usage": JSON, "model": JSON}) | JSON,
    "rate_limit_info": st.fixed_dictionaries({"status": st.just("rejected"), "resetsAt": JSON}) | JSON,
    **dict.fromkeys(("error", "errors", "result", "api_error_status", "terminal_reason", "session_id"), JSON),
    "mcp_servers": st.lists(st.fixed_dictionaries({}, optional={"name": JSON, "status": JSON})) | JSON,
}
HOSTILE = st.fixed_dictionaries({"type": TYPES}, optional=FIELDS)


@pytest.mark.slow
@given(lines=st.lists(HOSTILE, max_size=4), code=st.none() | st.integers(-64, 255), stderr=st.text())
def test_no_line_of_any_shape_makes_the_judgement_fail(lines, code, stderr):
    """REL-4: a field of a wrong type is a field that says nothing."""
    facts = facts_of(*lines, code=code, required=frozenset({"hyperhive"}), stderr_tail=stderr)
    report = classify(facts)

    assert isinstance(report.outcome, Outcome)
    assert report.detail.encode() is not None
    json.dumps(report.statistics)
    assert session_trouble(facts) in (None, *SessionTrouble)
    assert all(isinstance(is_final(StreamLine(line)), bool) for line in lines)
