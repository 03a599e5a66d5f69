"""The suite's part in pytest: its options, its markers and its report.

Loaded by pytest wherever hyperhive is installed, so it imports nothing that is heavy and does nothing in a run that has
no test of this suite.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import final

import pytest

from ._manifest import MANIFEST
from ._report import Outcome, Report
from ._subject import SubjectFactory

__all__ = ["FACTORY", "REPORT", "Lacking", "ids_of"]

FACTORY = pytest.StashKey[SubjectFactory]()
"""What opens the subject of a run that has tests of the suite."""

REPORT = pytest.StashKey[Report]()
"""The report of a run that has tests of the suite."""

_SUITE = Path(__file__).parent

_CLIENT_LEAKS = "ignore:Async generator 'http:ResourceWarning"
"""mcp's client of the 2025 era leaves generators of its HTTP library unfinished."""


@final
class Lacking(Exception):
    """The subject does not offer what a test needs: the test is skipped with this reason."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what the suite can be pointed at."""
    group = parser.getgroup("conformance", "the contract's suite: pytest --pyargs conformance")
    group.addoption("--hive-state", metavar="DIR", help="a running hive, by its state folder (with run/hive.json)")
    group.addoption("--hive-mcp-url", metavar="URL", help="one agent's built-in MCP server")
    group.addoption("--hive-mcp-token-file", metavar="FILE", help="with its bearer token")
    group.addoption("--hive-agent-name", metavar="NAME", help="and its name")
    group.addoption("--hive-peer-mcp-url", metavar="URL", help="another agent's built-in MCP server")
    group.addoption("--hive-peer-mcp-token-file", metavar="FILE", help="with its bearer token")
    group.addoption("--hive-peer-name", metavar="NAME", help="and its name")
    group.addoption("--subject", metavar="MODULE:FACTORY", help="a function that opens a conformance.Subject")
    group.addoption("--contract", metavar="ID", action="append", help="run this id's tests only; may be repeated")
    group.addoption("--conformance-json", metavar="FILE", help="write the table by id as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and refuse what cannot be done before anything runs."""
    config.addinivalue_line("markers", "contract(*ids): what a test of the conformance suite is about")
    for id_ in config.getoption("--contract") or ():
        if id_ not in MANIFEST:
            raise pytest.UsageError(f"--contract must be an id such as MSG-5, got {id_!r}: see docs/conformance.md")
    path = config.getoption("--conformance-json")
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise pytest.UsageError(f"--conformance-json must be in a folder that exists, got {path!r}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Prepare the suite's tests, and leave out those that were not asked for."""
    ours = [item for item in items if item.path.is_relative_to(_SUITE)]
    if not ours:
        return
    from ._choose import chosen_factory  # reached in runs of the suite only

    config.stash[REPORT] = Report(MANIFEST)
    config.stash[FACTORY] = chosen_factory(config)
    for item in ours:
        if not (ids := ids_of(item)) or not MANIFEST.keys() >= set(ids):
            raise pytest.UsageError(f"{item.nodeid} must be marked with ids of the contract, got {ids}")
        item.add_marker(pytest.mark.trio)
        item.add_marker(pytest.mark.filterwarnings(_CLIENT_LEAKS))
    if wanted := set(config.getoption("--contract") or ()):
        unwanted = [item for item in ours if not wanted & set(ids_of(item))]
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in unwanted]


def ids_of(item: pytest.Item) -> tuple[str, ...]:
    """The ids a test is marked with."""
    return tuple(id_ for mark in item.iter_markers("contract") for id_ in mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Turn what a subject lacks into a skip; pytest-trio would lose the reason of one that a fixture raises."""
    try:
        yield
    except BaseExceptionGroup as group:
        lacking, rest = group.split(Lacking)
        if lacking is None or rest is not None:
            raise
        pytest.skip("; ".join(_words(lacking)))


def _words(raised: BaseException) -> Iterator[str]:
    if isinstance(raised, BaseExceptionGroup):
        for inner in raised.exceptions:
            yield from _words(inner)
    else:
        yield str(raised)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a test of the suite once its outcome is known."""
    result = yield
    report = item.config.stash.get(REPORT, None)
    ids = ids_of(item)
    if report is not None and ids and (result.when == "call" or result.outcome != "passed"):
        reason = result.longrepr[2] if isinstance(result.longrepr, tuple) else ""
        report.add(ids, test=item.nodeid, outcome=Outcome(result.outcome), reason=reason.removeprefix("Skipped: "))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    if (report := config.stash.get(REPORT, None)) is not None:
        terminalreporter.section(f"the contract, by id: {report.subject or 'nothing was run'}")
        for line in report.lines():
            terminalreporter.line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the JSON that was asked for."""
    path = session.config.getoption("--conformance-json")
    report = session.config.stash.get(REPORT, None)
    if path is not None and report is not None:
        Path(path).write_text(json.dumps(report.data(), indent=2) + "\n", encoding="utf-8")
