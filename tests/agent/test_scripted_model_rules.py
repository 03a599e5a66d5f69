"""Which rule answers a request, and what a rule can see of it."""

import json
import re

import pytest
import trio
import trio.testing

from hive_agent.testing import (
    BadRequest,
    ModelRequest,
    Reply,
    ScriptedModel,
    Usage,
    call,
    cut,
    delay,
    fail,
    prompt_too_long,
    say,
    stall,
)


def user(*content):
    return {"role": "user", "content": list(content)}


def text(words):
    return {"type": "text", "text": words}


def tool_use(name, call_id):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def tool_result(call_id, content, **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def record(model: ScriptedModel, *messages, headers=None, **body) -> ModelRequest:
    raw = json.dumps({"model": "opus", "messages": list(messages), **body}).encode()
    return model.record(path="/v1/messages", headers=headers or {}, raw=raw)


async def reply_to(model: ScriptedModel, *messages, **body) -> Reply:
    _, reply = await model.answer(record(model, *messages, **body))
    return reply


async def words(model: ScriptedModel, *messages, **body) -> list[object]:
    return [getattr(step, "text", step) for step in (await reply_to(model, *messages, **body)).steps]


async def test_the_first_rule_that_matches_answers():
    """EMBED-1: a script is read from the top."""
    model = ScriptedModel()
    model.when(last_user="wake").reply(say("first"))
    model.when(last_user=re.compile("^wake up$")).reply(say("second"))
    model.otherwise(say("idle"))
    assert await words(model, user(text("wake up"))) == ["first"]
    assert await words(model, user(text("sleep"))) == ["idle"]


async def test_a_rule_that_is_used_up_leaves_the_next_one_to_answer():
    """EMBED-1: ``times`` makes a sequence."""
    model = ScriptedModel()
    model.when(times=2).reply(fail(529))
    model.when().reply(say("at last"))
    replies = [await reply_to(model, user(text("go"))) for _ in range(3)]
    assert [reply.steps for reply in replies] == [(fail(529),), (fail(529),), (say("at last"),)]


@pytest.mark.parametrize("system", ["You are ruth", [text("x"), text("You are ruth")]], ids=["string", "blocks"])
async def test_the_system_prompt_may_be_a_string_or_blocks(system):
    """TURN-3: the CLI sends blocks, other clients a string."""
    model = ScriptedModel()
    model.when(system="You are ruth").reply(say("yes"))
    assert await words(model, user(text("?")), system=system) == ["yes"]


async def test_messages_of_role_system_belong_to_the_system_prompt_and_hide_no_user_text():
    """TURN-3: the CLI puts reminders between messages and after the last one."""
    model = ScriptedModel()
    model.when(system="be brief", last_user="hello").reply(say("hi"))
    assert await words(model, user(text("hello")), {"role": "system", "content": [text("be brief")]}) == ["hi"]


async def test_a_tool_result_is_matched_by_the_name_of_the_tool_that_was_called():
    """SURF-3: a request has the id of the call only; the transcript has the name."""
    model = ScriptedModel()
    model.when(tool_result=("recv", re.compile(r"\[msg #(\d+)\]"))).reply(
        lambda request: call("ack_until", up_to=int(request.search(r"#(\d+)\] hello")[1]))
    )
    transcript = [
        user(text("go")),
        {"role": "assistant", "content": [tool_use("set_status", "a"), tool_use("recv", "b")]},
        user(tool_result("a", "[msg #1] not this one"), tool_result("b", [text("[msg #7] hello")])),
    ]
    assert (await reply_to(model, *transcript)).steps == (call("ack_until", up_to=7),)


async def test_a_tool_result_of_an_earlier_step_is_not_the_last_one():
    """TURN-2: a rule for a result must not answer again when the loop went on."""
    model = ScriptedModel()
    model.when(tool_result="recv").reply(say("read"))
    model.otherwise(say("other"))
    transcript = [
        user(text("go")),
        {"role": "assistant", "content": [tool_use("recv", "a")]},
        user(tool_result("a", "mail")),
        {"role": "assistant", "content": "done"},
        user(text("again")),
    ]
    assert await words(model, *transcript) == ["other"]


def test_user_text_sent_beside_a_tool_result_is_seen_and_the_first_prompt_is_not():
    """TURN-2: a message folded into a running turn comes with the results."""
    model = ScriptedModel()
    request = record(
        model,
        user(text("the first prompt")),
        {"role": "assistant", "content": [tool_use("recv", "a")]},
        user(tool_result("a", "mail", is_error=True)),
        user(text("and this")),
    )
    assert request.last_user == "and this"
    assert [(result.name, result.text, result.is_error) for result in request.tool_results] == [("recv", "mail", True)]


def test_an_id_used_twice_in_a_transcript_means_the_latest_call():
    """SURF-3: a session may have been served by more than one model."""
    model = ScriptedModel()
    request = record(
        model,
        {"role": "assistant", "content": [tool_use("old", "a")]},
        {"role": "assistant", "content": [tool_use("new", "a")]},
        user(tool_result("a", "x"), tool_result("lost", "y")),
    )
    assert [result.name for result in request.tool_results] == ["new", ""]


async def test_a_rule_can_ask_for_tools_the_model_and_anything_else():
    """PERM-1: which tools are offered is worth a rule."""
    model = ScriptedModel()
    model.when(tools={"Read", "Write"}, model=re.compile("opus"), where=lambda request: request.number == 2).reply(
        say("yes")
    )
    model.otherwise(say("no"))
    tools = [{"name": "Read"}, {"name": "Write"}, {"name": "Grep"}, {"type": "nameless"}]
    assert await words(model, user(text("x")), tools=tools) == ["no"]
    assert await words(model, user(text("x")), tools=tools) == ["yes"]
    assert await words(model, user(text("x")), tools=tools[:1]) == ["no"]


async def test_what_no_rule_matches_is_refused_in_words_and_kept():
    """EMBED-1: a hole in a script must not pass for an answer."""
    model = ScriptedModel()
    model.when(last_user="something else").reply(say("no"))
    reply = await reply_to(model, user(text("wake " * 100)), system="You are iris")
    (error,) = reply.steps
    assert error.status == 400
    assert "'wake wake" in error.message
    assert "'You are iris'" in error.message
    assert len(error.message) < 600
    assert [request.number for request in model.unmatched] == [1]


async def test_a_rule_without_a_reply_is_not_in_force():
    """EMBED-1: half a rule answers nothing."""
    model = ScriptedModel()
    model.when()
    await reply_to(model, user(text("x")))
    assert len(model.unmatched) == 1


async def test_an_async_function_may_wait_before_it_answers():
    """EMBED-1: a script may wait for the test's own events."""
    model = ScriptedModel()
    ready = trio.Event()

    async def answer(request):
        await ready.wait()
        return Reply(steps=[say("now")], usage=Usage(input=5, output=6))

    model.when().reply(answer)
    request = record(model, user(text("x")))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.answer, request)
            await trio.testing.wait_all_tasks_blocked()
            ready.set()
        envelope, reply = await model.answer(request)
    assert reply.steps == (say("now"),)
    assert envelope.usage.context == 5


@pytest.mark.parametrize(
    "function", [lambda request: request.search("not there"), lambda request: "text", lambda request: 3]
)
async def test_a_function_that_fails_makes_an_error_and_is_kept(function):
    """EMBED-1: the author of a script learns about its bugs."""
    model = ScriptedModel()
    model.when().reply(function)
    (error,) = (await reply_to(model, user(text("x")))).steps
    assert error.status == 400
    assert error.headers == {"x-should-retry": "false"}
    assert model.failure is not None
    assert model.failure.__cause__ is not None


async def test_figures_that_no_reply_gives_are_estimated_from_the_sizes():
    """TURN-7: a demo's figures move with the talk."""
    model = ScriptedModel()
    model.otherwise(say("x" * 400), call("Read", file_path="/a"))
    small, _ = await model.answer(record(model, user(text("x"))))
    large, _ = await model.answer(record(model, user(text("x" * 4000))))
    assert small.usage.output >= 100
    assert large.usage.input > small.usage.input + 900


async def test_ids_of_two_models_do_not_meet_in_one_transcript():
    """TURN-3: a client merges what shares an id, and a session outlives a model."""
    ids = set()
    for model in (ScriptedModel(), ScriptedModel()):
        model.otherwise(say("x"))
        for _ in range(2):
            envelope, _ = await model.answer(record(model, user(text("x"))))
            ids |= {envelope.message_id, envelope.call_id(0), envelope.call_id(1)}
    assert len(ids) == 12


def test_a_record_has_no_credentials_and_does_not_change():
    """SEC-5: secrets are not kept, also in a test."""
    headers = {"x-api-key": "secret", "authorization": "Bearer secret", "cookie": "secret", "accept": "x"}
    request = record(ScriptedModel(), user(text("x")), headers=headers)
    assert request.headers == {"accept": "x"}
    assert "secret" not in repr(request)
    request.messages[0]["role"] = "changed"
    request.body["messages"].clear()
    assert request.messages[0]["role"] == "user"


@pytest.mark.slow
async def test_only_the_newest_requests_are_remembered():
    """REL-4: no peer can grow memory without bound."""
    model = ScriptedModel()
    for size in (1, 50_000_000, 50_000_000):
        record(model, user(text("x" * size)))
    assert [request.number for request in model.requests] == [3]
    for _ in range(10_001):
        record(model, user(text("x")))
    assert len(model.requests) == 10_000
    with trio.fail_after(5):
        await model.wait_requests(10_004)


async def test_waiting_for_requests_returns_at_the_last_of_them():
    """TURN-2: a test waits for an event and not for a while."""
    model = ScriptedModel()
    done = trio.Event()

    async def wait():
        await model.wait_requests(2)
        done.set()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            record(model, user(text("one")))
            await trio.testing.wait_all_tasks_blocked()
            assert not done.is_set()
            record(model, user(text("two")))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"model":"m","messages":"x"}',
        b'{"model":"m","messages":[1]}',
        b'{"messages":[]}',
    ],
)
def test_a_body_that_is_no_request_is_refused_in_words(raw):
    """REL-4: a stranger's bytes end no task."""
    model = ScriptedModel()
    with pytest.raises(BadRequest, match=r"must be|required"):
        model.record(path="/v1/messages", headers={}, raw=raw)
    assert model.requests == ()


def test_odd_but_legal_shapes_are_read_without_an_error():
    """REL-4: fields of unexpected types have no text."""
    request = record(
        ScriptedModel(),
        {"role": "user", "content": 3},
        {"role": "user"},
        {"role": "user", "content": ["x", {"type": "image"}, {"type": "text"}]},
        {"content": "nobody"},
        system=7,
        tools="x",
        stream="yes",
    )
    assert (request.last_user, request.system, request.tools, request.stream) == ("", "", (), False)


@pytest.mark.parametrize(
    ("build", "error", "sentence"),
    [
        (lambda rule: rule.reply(cut(), say("x")), ValueError, "put it last"),
        (lambda rule: rule.reply(fail(500), say("x")), ValueError, "put it last"),
        (lambda rule: rule.reply("text"), TypeError, r"wrap text in say\(\)"),
        (lambda rule: rule.reply(say("x"), lambda request: say("y")), TypeError, "give a function alone"),
        (lambda rule: rule.reply(lambda request: say("y"), usage=Usage()), TypeError, "belongs in the Reply"),
        (lambda rule: delay(-1), ValueError, "seconds"),
        (lambda rule: say(3), TypeError, "text"),
        (lambda rule: stall("gate"), TypeError, "until"),
        (lambda rule: call("Read", path=object()), TypeError, "JSON"),
        (lambda rule: call("Read", limit=float("nan")), ValueError, "JSON"),
        (lambda rule: fail(429, headers={"x-two": "a\r\nb: c"}), ValueError, "printable"),
        (lambda rule: fail(429, headers={"Content-Length": "3"}), ValueError, "framing"),
        (lambda rule: rule.reply(say("x"), usage=3), TypeError, "usage"),
        (lambda rule: fail(200), ValueError, "status"),
        (lambda rule: Usage(input=-1), ValueError, "input"),
    ],
)
def test_a_reply_that_makes_no_sense_is_refused_when_it_is_written(build, error, sentence):
    """EMBED-1: a mistake in a script shows at its own line."""
    with pytest.raises(error, match=sentence):
        build(ScriptedModel().when())


def test_a_condition_that_makes_no_sense_is_refused_when_it_is_written():
    """EMBED-1: a mistake in a script shows at its own line."""
    model = ScriptedModel()
    with pytest.raises(ValueError, match="at least 1"):
        model.when(times=0)
    with pytest.raises(TypeError, match="collection of names"):
        model.when(tools="Read")


def test_errors_have_the_words_clients_look_for():
    """TURN-5: outcomes are told by the API's own words."""
    assert prompt_too_long().message == "prompt is too long: 250000 tokens > 200000 maximum"
    limited = fail(429, retry_after=600, headers={"x": "y"})
    assert (limited.kind, dict(limited.headers)) == ("rate_limit_error", {"x": "y", "retry-after": "600"})
    assert [fail(status).kind for status in (401, 418, 529, 599)] == [
        "authentication_error",
        "invalid_request_error",
        "overloaded_error",
        "api_error",
    ]
    assert stall().until is None
