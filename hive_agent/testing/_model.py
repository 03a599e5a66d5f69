"""The scripted model: rules that choose a reply for each request, and the record of what was asked.

Owns the rules, their order and the record. Knows no HTTP: ``_server`` brings it requests and performs its replies.
"""

from __future__ import annotations

import inspect
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, final

import attrs

from hive_agent.testing._frames import Envelope, estimate_usage
from hive_agent.testing._log import RequestLog
from hive_agent.testing._reply import Call, Cut, Delay, Fail, Reply, Say, Stall, Step, Usage, fail
from hive_agent.testing._request import ModelRequest, parse_request, shortened

__all__ = ["Answer", "ReplyFunction", "Rule", "ScriptFailed", "ScriptedModel", "Text"]

_KEEP_STRAYS: Final = 1_000
"""Lines about requests that are none of the model's."""

_FINAL: Final = {"x-should-retry": "false"}
"""Tells the API's clients that trying again is useless, so that a test fails at once."""

Text: TypeAlias = str | re.Pattern[str]
"""A string that must occur in a text, or a pattern that must be found in it."""

Answer: TypeAlias = Reply | Step | Iterable[Step]
"""What a reply function may return."""

ReplyFunction: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""Makes the reply from the request; cancelled, when async, as soon as the client goes away."""


class ScriptFailed(Exception):
    """A function of the script raised, or returned what is no reply; ``__cause__`` is its error."""


@final
@attrs.frozen(kw_only=True)
class _Condition:
    model: Text | None
    system: Text | None
    last_user: Text | None
    tool_result: str | tuple[str, Text] | None
    tools: frozenset[str]
    where: Callable[[ModelRequest], bool] | None

    def holds(self, request: ModelRequest) -> bool:
        return (
            _found(self.model, request.model)
            and _found(self.system, request.system)
            and _found(self.last_user, request.last_user)
            and self._answered(request)
            and self.tools <= set(request.tools)
            and (self.where is None or self.where(request))
        )

    def _answered(self, request: ModelRequest) -> bool:
        if self.tool_result is None:
            return True
        name, text = (self.tool_result, None) if isinstance(self.tool_result, str) else self.tool_result
        return any(result.name == name and _found(text, result.text) for result in request.tool_results)


@final
@attrs.define(kw_only=True, eq=False)
class _Entry:
    condition: _Condition
    make: ReplyFunction
    times: int | None
    matched: int = 0


@final
class Rule:
    """A condition that waits for its reply; made by `ScriptedModel.when`, in force once `reply` was called."""

    def __init__(self, entries: list[_Entry], condition: _Condition, times: int | None) -> None:
        self._entries = entries
        self._condition = condition
        self._times = times

    def reply(self, *answer: Step | ReplyFunction, usage: Usage | None = None) -> None:
        """Answer the requests that match.

        Args:
            answer: the steps of the reply, or one function of the request that returns a `Reply`, a step or several.
                The function may be async: it is then cancelled when the client goes away.
            usage: the figures reported; by default an estimate. A function gives its own in a `Reply`.

        Raises:
            TypeError: a function beside other steps or with ``usage``, or something that is no step.
            ValueError: a step follows one that ended the answer.
        """
        self._entries.append(_Entry(condition=self._condition, make=_as_function(answer, usage), times=self._times))


@final
class ScriptedModel:
    """A stand-in for a language model that answers by rules.

    The first rule that matches and is not used up answers. A request that no rule matches is answered with an HTTP 400
    that describes it, and is kept in `unmatched`; a test ends with ``assert not model.unmatched``.

    Requests are remembered up to 10,000 and 64 MiB of bodies, the newest of them.

    Args:
        count: what ``count_tokens`` answers; by default an estimate from the size of the body.
    """

    def __init__(self, *, count: Callable[[ModelRequest], int] = lambda request: request.estimated_tokens) -> None:
        self._count = count
        self._entries: list[_Entry] = []
        self._otherwise: ReplyFunction | None = None
        self._requests = RequestLog()
        self._counts = RequestLog()
        self._unmatched = RequestLog()
        self._strays: deque[str] = deque(maxlen=_KEEP_STRAYS)
        self._failure: ScriptFailed | None = None
        # A session outlives the model that served it: ids of two models must not meet in one transcript.
        self._token = secrets.token_hex(6)

    def when(
        self,
        *,
        model: Text | None = None,
        system: Text | None = None,
        last_user: Text | None = None,
        tool_result: str | tuple[str, Text] | None = None,
        tools: Collection[str] = (),
        where: Callable[[ModelRequest], bool] | None = None,
        times: int | None = None,
    ) -> Rule:
        """Begin a rule; every condition given must hold.

        Args:
            model: the name of the model asked for.
            system: the system prompt.
            last_user: the text the user sent last, see `ModelRequest`.
            tool_result: a tool whose result came last, or the tool and its result's text.
            tools: names that must all be offered.
            where: any other condition; asked last.
            times: the rule answers so often and is then used up; by default for ever.

        Raises:
            ValueError: ``times`` is below 1.
        """
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, got {times}: leave it out for a rule that is never used up")
        if isinstance(tools, str):
            raise TypeError(f"tools must be a collection of names, got {tools!r}: write {{{tools!r}}}")
        condition = _Condition(
            model=model,
            system=system,
            last_user=last_user,
            tool_result=tool_result,
            tools=frozenset(tools),
            where=where,
        )
        return Rule(self._entries, condition, times)

    def otherwise(self, *answer: Step | ReplyFunction, usage: Usage | None = None) -> None:
        """Answer what no rule matches, instead of refusing it; takes what `Rule.reply` takes."""
        self._otherwise = _as_function(answer, usage)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The model steps asked for, oldest first, each recorded before it is answered."""
        return self._requests.newest()

    @property
    def counts(self) -> tuple[ModelRequest, ...]:
        """The ``count_tokens`` requests, oldest first."""
        return self._counts.newest()

    @property
    def unmatched(self) -> tuple[ModelRequest, ...]:
        """The requests that no rule matched, oldest first."""
        return self._unmatched.newest()

    @property
    def strays(self) -> tuple[str, ...]:
        """Everything else that came: unknown paths and bodies that are no request, one line each, oldest first."""
        return tuple(self._strays)

    @property
    def failure(self) -> ScriptFailed | None:
        """The first error of a function of the script, if one had an error."""
        return self._failure

    async def wait_requests(self, count: int) -> None:
        """Return as soon as ``count`` model steps were asked for in all; at once when they were already."""
        await self._requests.wait_total(count)

    def record(self, *, path: str, headers: Mapping[str, str], raw: bytes) -> ModelRequest:
        """Take one model step into the record; for the server, or to try rules without one.

        Raises:
            BadRequest: ``raw`` is no Messages API request.
        """
        request = parse_request(number=self._requests.total + 1, path=path, headers=headers, raw=raw)
        self._requests.add(request)
        return request

    async def answer(self, request: ModelRequest) -> tuple[Envelope, Reply]:
        """Choose the reply to a recorded request.

        A function of the script that fails makes the reply an error and is kept in `failure`.
        """
        try:
            make = self._choose(request)
            reply = await _made(make, request) if make else self._refusal(request)
        except Exception as exc:  # noqa: BLE001 - a stranger's function: it costs this request, and the test at its end
            reply = Reply(steps=[self._script_failed(request, exc)])
        envelope = Envelope(
            message_id=f"msg_{self._token}{request.number:06}",
            model=request.model,
            usage=reply.usage or estimate_usage(request, reply),
        )
        return envelope, reply

    def count_tokens(self, *, path: str, headers: Mapping[str, str], raw: bytes) -> int | Fail:
        """Record one ``count_tokens`` request and answer it.

        Raises:
            BadRequest: ``raw`` is no Messages API request.
        """
        request = parse_request(number=self._counts.total + 1, path=path, headers=headers, raw=raw)
        self._counts.add(request)
        try:
            if not isinstance(tokens := self._count(request), int):
                raise TypeError(f"count must return a number of tokens, got {tokens!r}")
            return tokens
        except Exception as exc:  # noqa: BLE001 - as in answer
            return self._script_failed(request, exc)

    def note_stray(self, line: str) -> None:
        """Record what came and is no request to the model."""
        self._strays.append(line)

    def _choose(self, request: ModelRequest) -> ReplyFunction | None:
        for entry in self._entries:
            if entry.matched != entry.times and entry.condition.holds(request):
                entry.matched += 1
                return entry.make
        return self._otherwise

    def _refusal(self, request: ModelRequest) -> Reply:
        self._unmatched.add(request)
        results = ", ".join(repr(result.name) for result in request.tool_results) or "none"
        message = (
            f"no rule of the scripted model matches request {request.number}: last user text "
            f"{shortened(request.last_user)}, tool results of {results}, system prompt {shortened(request.system)}, "
            f"{len(request.tools)} tools: add a rule with when(), or otherwise()"
        )
        return Reply(steps=[fail(400, message, headers=_FINAL)])

    def _script_failed(self, request: ModelRequest, exc: Exception) -> Fail:
        message = f"the script failed on request {request.number} with {type(exc).__name__}: {exc}"
        if self._failure is None:
            self._failure = ScriptFailed(message)
            self._failure.__cause__ = exc
        return fail(400, message, headers=_FINAL)


def _found(wanted: Text | None, text: str) -> bool:
    if wanted is None:
        return True
    return wanted in text if isinstance(wanted, str) else wanted.search(text) is not None


def _as_function(answer: tuple[Step | ReplyFunction, ...], usage: Usage | None) -> ReplyFunction:
    if len(answer) == 1 and callable(function := answer[0]):
        if usage is not None:
            raise TypeError("usage belongs in the Reply that the function returns: leave it out here")
        return function
    reply = Reply(steps=answer, usage=usage)  # type: ignore[arg-type] # a function among the steps is refused there
    return lambda _: reply


async def _made(make: ReplyFunction, request: ModelRequest) -> Reply:
    answer = make(request)
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Say | Call | Stall | Delay | Cut | Fail):
        return Reply(steps=[answer])
    return Reply(steps=answer)
