"""What a scripted model can answer: words, tool calls, figures, and every way an answer can go wrong.

Owns the steps of a reply and the rules for their order. Knows no HTTP and no request; ``_frames`` writes a reply out
and ``_server`` performs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import attrs
import trio

__all__ = [
    "Call",
    "Cut",
    "Delay",
    "Fail",
    "Reply",
    "Say",
    "Stall",
    "Step",
    "Usage",
    "call",
    "cut",
    "delay",
    "fail",
    "half",
    "prompt_too_long",
    "say",
    "stall",
]

_ERROR_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The API's own word for each status; a client may branch on it."""

_HEADER: Final = re.compile(r"[a-z0-9-]+: [\x20-\x7e]*")
_FRAMING: Final = frozenset({"connection", "content-length", "transfer-encoding"})


@attrs.frozen(kw_only=True)
class Usage:
    """Token figures of one reply, as the client will count them (TURN-7).

    Attributes:
        input: tokens of the prompt that came from no cache.
        output: tokens of the reply.
        cache_read: tokens of the prompt read from the cache.
        cache_creation: tokens of the prompt written to the cache.
    """

    input: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    output: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    cache_read: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    cache_creation: int = attrs.field(default=0, validator=attrs.validators.ge(0))

    @property
    def context(self) -> int:
        """Tokens of the context window that the prompt took, cached or not."""
        return self.input + self.cache_read + self.cache_creation


@attrs.frozen(kw_only=True)
class Say:
    """A block of text; ``halved`` leaves its second half to come after the next silence."""

    text: str = attrs.field(validator=attrs.validators.instance_of(str))
    halved: bool = False


@attrs.frozen(kw_only=True)
class Call:
    """A block that calls a tool with a JSON object; ``halved`` as in `Say`."""

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    input: Mapping[str, object]
    halved: bool = False


@attrs.frozen(kw_only=True)
class Stall:
    """Silence until ``until`` is set, for ever when it is None."""

    until: trio.Event | None = attrs.field(
        validator=attrs.validators.optional(attrs.validators.instance_of(trio.Event))
    )


@attrs.frozen(kw_only=True)
class Delay:
    """Silence for some seconds of trio's clock."""

    seconds: float = attrs.field(validator=attrs.validators.ge(0))


@attrs.frozen(kw_only=True)
class Cut:
    """The connection ends here, in the middle of the answer."""


@attrs.frozen(kw_only=True)
class Fail:
    """An error in the API's own shape: a status line when nothing was sent yet, else an ``error`` event."""

    status: int = attrs.field(validator=[attrs.validators.ge(400), attrs.validators.le(599)])
    kind: str
    message: str
    headers: Mapping[str, str] = attrs.field()

    @headers.validator
    def _check_headers(self, _: object, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            if name in _FRAMING or not _HEADER.fullmatch(f"{name}: {value}"):
                raise ValueError(f"a header must be a name and printable text, and not of HTTP's framing, got {name!r}")


Step: TypeAlias = Say | Call | Stall | Delay | Cut | Fail
"""One thing a reply does; steps are performed in the order given."""


def _steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(steps)


@attrs.frozen(kw_only=True)
class Reply:
    """One answer of the model.

    Attributes:
        steps: what happens, in order. ``cut()`` and ``fail()`` end an answer, so they stand last.
        usage: the figures it reports; None estimates them from the sizes of prompt and reply.

    Raises:
        TypeError: a step is not one of ``Step``.
        ValueError: a step follows one that ended the answer.
    """

    steps: tuple[Step, ...] = attrs.field(converter=_steps)
    usage: Usage | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Usage))
    )

    @steps.validator
    def _check_steps(self, _: object, steps: tuple[object, ...]) -> None:
        for number, step in enumerate(steps, start=1):
            if not isinstance(step, Say | Call | Stall | Delay | Cut | Fail):
                raise TypeError(
                    f"a reply is made of say(), call(), stall(), delay(), cut() and fail(), got {step!r}: "
                    "wrap text in say(), and give a function alone"
                )
            if isinstance(step, Cut | Fail) and number != len(steps):
                raise ValueError(f"{type(step).__name__.lower()}() ends an answer: put it last, nothing can follow it")


def say(text: str) -> Say:
    """A block of text."""
    return Say(text=text)


def call(name: str, /, **arguments: object) -> Call:
    """A call of the tool ``name``, as the model sees it (``Read``, ``mcp__hyperhive__send``), with its arguments.

    Several calls in one reply reach the client together. Arguments must be JSON values; for one that is no Python
    name, write ``call("tool", **{"in-reply-to": 3})``.

    Raises:
        TypeError: an argument is no JSON value.
        ValueError: an argument is not a finite number, or holds itself.
    """
    return Call(name=name, input=json.loads(json.dumps(arguments, allow_nan=False)))


def half(block: Say | Call) -> Say | Call:
    """The first half of a block, for a stall, a cut or an error inside of it.

    After a silence the second half follows by itself; after ``cut()`` or ``fail()`` it never comes. A client that wants
    no stream gets whole blocks.
    """
    return attrs.evolve(block, halved=True)


def stall(until: trio.Event | None = None) -> Stall:
    """Silence: before the first byte when it is the first step, else after what the earlier steps sent.

    It ends when ``until`` is set (the reply then goes on), when the client goes away, or when the server is closed.
    """
    return Stall(until=until)


def delay(seconds: float) -> Delay:
    """Silence for ``seconds`` of trio's clock; the client's going away ends it sooner."""
    return Delay(seconds=seconds)


def cut() -> Cut:
    """The connection ends without the rest of the answer, like a proxy or a network that died."""
    return Cut()


def fail(
    status: int, message: str | None = None, *, retry_after: int | None = None, headers: Mapping[str, str] | None = None
) -> Fail:
    """An error as the API sends it: HTTP status, body with the API's word for it, headers.

    As the first step it is the status of the response; after ``say`` or ``call`` in a stream it is an ``error`` event,
    because the status line has gone out by then.

    Args:
        status: 400 to 599; 529 is "overloaded".
        message: the sentence; by default one that names the status.
        retry_after: seconds for the ``retry-after`` header. Claude's CLI waits for small ones and gives up at once
            when it is long.
        headers: more of them, such as the rate limit's own.
    """
    kind = _ERROR_KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    every = {name.lower(): value for name, value in (headers or {}).items()}
    if retry_after is not None:
        every["retry-after"] = str(retry_after)
    return Fail(status=status, kind=kind, message=message or f"scripted {kind} ({status})", headers=every)


def prompt_too_long(*, used: int = 250_000, limit: int = 200_000) -> Fail:
    """The API's refusal of a prompt over the context window, in the words clients look for (COMP-2)."""
    return fail(400, f"prompt is too long: {used} tokens > {limit} maximum")
