"""How a run of the Claude CLI ended, judged from what it printed and how it left (TURN-5).

Owns the facts that are kept of a run and the rules over them; pure. The rules go by what the CLI was measured to do: a
failing run says ``subtype: success`` with ``is_error: true``, a usage limit can hide in a true success, an interrupted
run exits with 0, and a session that cannot be resumed is told on stderr and in ``errors``.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from hive_agent._turn import Outcome

from ._port import RunReport
from ._stream import StreamLine

__all__ = [
    "LOGIN_REFUSALS_BORNE",
    "RunFacts",
    "SessionTrouble",
    "classify",
    "is_final",
    "listed_sessions",
    "session_trouble",
]

DETAIL_CHARACTERS = 300
"""Longest sentence kept of what the CLI said about its own failure."""

TOOLS_COUNTED = 200
"""Tools whose calls are counted by name; a broken runtime can make up a name a call (REL-4)."""

OTHER_TOOLS = "(other tools)"
"""What all further ones are counted under."""

_TOOL_NAME_CHARACTERS = 128

_STATISTIC_CHARACTERS = 16 * 1024
_STATISTIC_DEPTH = 8
"""A figure that is longer as JSON, or deeper, is none: the broker must be able to store what a turn used (TURN-7)."""

_SYNTHETIC = "<synthetic>"
"""The model of a message that the CLI wrote itself."""

LOGIN_REFUSALS_BORNE = 2
"""Refused logins the CLI may try to make good, by renewing a token; more of them only cost minutes of silence."""

_YEAR_5000 = 1e11
"""In unix seconds. A greater number counts something else."""

_USAGE_LIMIT = re.compile(
    r"you(?:['\u2019]ve| have) (?:hit|reached) your [^.\n]{0,40}\blimit\b"
    r"|(?:claude(?: ai)? |\d-)?(?:usage|hour|weekly) limit reached\b",
    re.IGNORECASE,
)
_MISSING = re.compile(r"does not match any session title|No conversation found", re.IGNORECASE)
_DUPLICATE = re.compile(r"matches \d+ sessions", re.IGNORECASE)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class SessionTrouble(enum.Enum):
    """Why a session was not resumed (TURN-3)."""

    MISSING = "missing"
    DUPLICATE = "duplicate"


@attrs.frozen(kw_only=True)
class RunFacts:
    """What is known of one process.

    Attributes:
        spawn_error: why it never came to be.
        exit_code: negative for a signal.
        result: the ``result`` object, the last one if there were several.
        error: the ``error`` of the last synthetic assistant message.
        rejected: the last ``rate_limit_event`` that refused, its ``rate_limit_info``; None once a model answered again.
        answered: the last assistant message came from a model.
        login_refusals: how often in a row the service refused the credentials, as far as the CLI said while it retried.
        session_id: of the session that ran.
        missing_servers: required MCP servers that did not connect (SURF-7).
        usage: of the last assistant message: what the context holds.
        tool_calls: by name.
        stderr_tail: the end of what it complained of.
        garbage_lines: lines that were no JSON.
    """

    spawn_error: str | None = None
    exit_code: int | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    rejected: Mapping[str, Any] | None = None
    answered: bool = False
    login_refusals: int = 0
    session_id: str | None = None
    missing_servers: tuple[str, ...] = ()
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    tool_calls: Mapping[str, int] = attrs.field(factory=dict)
    stderr_tail: str = ""
    garbage_lines: int = 0

    def with_line(self, line: StreamLine, *, required: frozenset[str] = frozenset()) -> RunFacts:
        """These facts and what ``line`` adds. A line of an unknown type or shape adds nothing.

        Args:
            line: as printed.
            required: MCP servers that must be connected once the CLI says which are.
        """
        match line.type:
            case "result":
                return attrs.evolve(self, result=line.data)
            case "assistant":
                return self._with_assistant(line.data)
            case "rate_limit_event":
                return self._with_rate_limit(_mapping(line.data.get("rate_limit_info")))
            case "system" if line.subtype == "init":
                return self._with_init(line.data, required)
            case "system" if line.subtype == "api_retry":
                refused = line.data.get("error") == "authentication_failed"
                return attrs.evolve(self, login_refusals=self.login_refusals + 1 if refused else 0)
            case _:
                return self

    def _with_rate_limit(self, info: Mapping[str, Any]) -> RunFacts:
        refused = info.get("status") == "rejected" and info.get("isUsingOverage") is not True
        return attrs.evolve(self, rejected=info if refused else None)

    def _with_init(self, data: Mapping[str, Any], required: frozenset[str]) -> RunFacts:
        servers = data.get("mcp_servers")
        entries = [_mapping(entry) for entry in servers] if isinstance(servers, list) else []
        connected = [entry.get("name") for entry in entries if entry.get("status") == "connected"]
        session_id = data.get("session_id")
        # It becomes an argument of the next command line, so nothing else than an id may pass (SEC-4).
        known = isinstance(session_id, str) and _UUID.fullmatch(session_id)
        return attrs.evolve(
            self,
            session_id=session_id if known else self.session_id,
            missing_servers=tuple(sorted(name for name in required if name not in connected)),
        )

    def _with_assistant(self, data: Mapping[str, Any]) -> RunFacts:
        message = _mapping(data.get("message"))
        error = data.get("error")
        if isinstance(error, str) or message.get("model") == _SYNTHETIC:
            return attrs.evolve(self, error=error if isinstance(error, str) else None, answered=False)
        content = message.get("content")
        blocks = [_mapping(block) for block in content] if isinstance(content, list) else []
        called = [block.get("name") for block in blocks if block.get("type") == "tool_use"]
        usage = _mapping(message.get("usage"))
        return attrs.evolve(
            self,
            error=None,
            rejected=None,
            answered=True,
            login_refusals=0,
            usage=usage or self.usage,
            tool_calls=_counted(self.tool_calls, (name for name in called if isinstance(name, str))),
        )


def _counted(calls: Mapping[str, int], names: Iterable[str]) -> Mapping[str, int]:
    """The counts after calls of ``names``."""
    counts: dict[str, int] = {}
    for name in names:
        counts = counts or dict(calls)
        known = name[:_TOOL_NAME_CHARACTERS]
        key = known if known in counts or len(counts) < TOOLS_COUNTED else OTHER_TOOLS
        counts[key] = counts.get(key, 0) + 1
    return counts or calls


def is_final(line: StreamLine) -> bool:
    """Whether ``line`` is a run's result, and not one that says its session could not be resumed."""
    if line.type != "result":
        return False
    said = _errors(RunFacts(result=line.data))
    return not _DUPLICATE.search(said) and not _MISSING.search(said)


def session_trouble(facts: RunFacts) -> SessionTrouble | None:
    """Whether the process ended because its session could not be resumed; nothing was asked of the model then."""
    if facts.exit_code in (None, 0) or facts.session_id is not None:
        return None
    said = f"{facts.stderr_tail}\n{_errors(facts)}"
    if _DUPLICATE.search(said):
        return SessionTrouble.DUPLICATE
    return SessionTrouble.MISSING if _MISSING.search(said) else None


def listed_sessions(facts: RunFacts) -> tuple[str, ...]:
    """The ids the CLI named when a title was not unique, the latest first."""
    return tuple(_UUID.findall(f"{facts.stderr_tail}\n{_errors(facts)}"))


def classify(facts: RunFacts) -> RunReport:
    """Judge a run that is over."""
    outcome, detail = _judge(facts)
    limited = outcome is Outcome.RATE_LIMITED and facts.rejected is not None
    return RunReport(
        outcome=outcome,
        # What JSON calls a character may be half of one, which no file, log or prompt can hold.
        detail=detail[:DETAIL_CHARACTERS].encode("utf-8", "backslashreplace").decode(),
        reset_at=_instant((facts.rejected or {}).get("resetsAt")) if limited else None,
        exit_code=facts.exit_code,
        statistics=_statistics(facts),
    )


def _judge(facts: RunFacts) -> tuple[Outcome, str]:
    if facts.spawn_error is not None:
        return Outcome.FAILED, facts.spawn_error
    if facts.missing_servers:
        return Outcome.FAILED, f"the tool server {', '.join(facts.missing_servers)} did not connect"
    if facts.login_refusals > LOGIN_REFUSALS_BORNE:
        return Outcome.NEEDS_LOGIN, "the model's service refuses the credentials"
    if facts.result is None:
        return _judge_without_result(facts)
    said = _said(facts)
    # Only a success that is beyond doubt may ack what the turn popped (MSG-5).
    if facts.result.get("subtype") != "success" or facts.result.get("is_error"):
        return _judge_error(facts, said)
    if facts.rejected is not None or _is_limit_in_success(facts, said):
        return Outcome.RATE_LIMITED, said
    return Outcome.DONE, ""


def _is_limit_in_success(facts: RunFacts, said: str) -> bool:
    # A model may well end with words about some limit; the CLI's own sentence stands alone and names the reset.
    if len(said) >= DETAIL_CHARACTERS or not _USAGE_LIMIT.match(said.strip()):
        return False
    return not facts.answered or "resets" in said


def _judge_error(facts: RunFacts, said: str) -> tuple[Outcome, str]:
    result = facts.result or {}
    status = result.get("api_error_status")
    subtype = result.get("subtype")
    reason = str(result.get("terminal_reason") or "")
    if reason == "prompt_too_long":
        return Outcome.PROMPT_TOO_LONG, said
    if reason.startswith("aborted"):
        return Outcome.INTERRUPTED, "the run was interrupted"
    if facts.error == "authentication_failed" or status in (401, 403):
        return Outcome.NEEDS_LOGIN, said
    if facts.error == "rate_limit" or status == 429 or facts.rejected is not None or _USAGE_LIMIT.search(said):
        return Outcome.RATE_LIMITED, said
    if facts.error == "billing_error" or subtype in ("error_max_turns", "error_max_budget_usd"):
        return Outcome.REFUSED, said or str(subtype)
    if facts.error == "server_error" or (isinstance(status, int) and status >= 500):
        return Outcome.OVERLOADED, said
    return Outcome.FAILED, said or f"the runtime reported {subtype or 'an error'}"


def _judge_without_result(facts: RunFacts) -> tuple[Outcome, str]:
    code = facts.exit_code or 0
    if code < 0:
        how = f"the runtime was ended by signal {-code}"
    else:
        how = f"the runtime exited with code {code} and gave no result"
    last = facts.stderr_tail.rpartition("\n")[2].strip()
    if facts.garbage_lines:
        how += f" ({facts.garbage_lines} of its lines were not JSON)"
    return Outcome.CRASHED, f"{how}: {last}" if last else how


def _said(facts: RunFacts) -> str:
    text = (facts.result or {}).get("result")
    return text if isinstance(text, str) else _errors(facts)


def _errors(facts: RunFacts) -> str:
    errors = (facts.result or {}).get("errors")
    return "\n".join(str(error) for error in errors) if isinstance(errors, list) else ""


def _statistics(facts: RunFacts) -> Mapping[str, Any]:
    result = facts.result or {}
    kept = ("duration_ms", "num_turns", "usage", "model_usage_since_last_result", "total_cost_usd", "session_id")
    return {
        **{key: result[key] for key in kept if key in result and _is_figure(result[key])},
        "context_usage": dict(facts.usage) if _is_figure(facts.usage) else {},
        "tool_calls": dict(facts.tool_calls),
    }


def _is_figure(value: object) -> bool:
    return len(json.dumps(value)) <= _STATISTIC_CHARACTERS and _depth(value) <= _STATISTIC_DEPTH


def _depth(value: object) -> int:
    """How many lists and objects are within one another; a line's own depth was bounded when it was read."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


def _instant(value: object) -> float | None:
    plausible = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _YEAR_5000
    return float(value) if plausible else None  # type: ignore[arg-type] # it is a number then


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
