"""The suite as a tool: its manifest, its options, its report, and a real hive as its subject (CONF-1)."""

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from conformance import plugin
from conformance._manifest import MANIFEST, Entry, NotYet, dishonesties
from conformance._report import Outcome, Report

pytest_plugins = ["pytester"]

RUN = ("-p", "no:cacheprovider", "-q", "--pyargs", "conformance")

NOT_YET = NotYet(datetime.date(2026, 12, 1), "for a reason")


# --- the manifest


@pytest.mark.slow
def test_the_manifest_is_honest_about_the_whole_suite(pytester):
    """CONF-1: every id has a test or a reason, and never both."""
    items, _ = pytester.inline_genitems(*RUN)
    assert len(items) > 100
    assert dishonesties(MANIFEST, {id_ for item in items for id_ in plugin.ids_of(item)}) == []


@pytest.mark.parametrize(
    ("entry", "marked", "sentence"),
    [
        (Entry(title="x"), set(), "ABC-1 has neither a test nor a reason why not yet: write one of them"),
        (Entry(title="x", not_yet=NOT_YET), {"ABC-1"}, "ABC-1 has a test and still a reason"),
        (Entry(title="x"), {"ABC-1", "ABC-2"}, "ABC-2 is marked on a test but is no id of the contract"),
    ],
    ids=["nothing", "both", "unknown"],
)
def test_a_dishonest_manifest_is_found_out(entry, marked, sentence):
    """CONF-1: in each direction, in words."""
    (found,) = dishonesties({"ABC-1": entry}, marked)
    assert found.startswith(sentence)


def test_an_honest_manifest_is_let_alone():
    """CONF-1: a test, or a reason."""
    manifest = {"ABC-1": Entry(title="x"), "ABC-2": Entry(title="y", not_yet=NOT_YET)}
    assert dishonesties(manifest, {"ABC-1"}) == []


@pytest.mark.parametrize("marker", ["", '@pytest.mark.contract("MSG-99")', "@pytest.mark.contract()"])
def test_a_test_of_the_suite_must_be_marked_with_ids_of_the_contract(pytester, monkeypatch, marker):
    """CONF-1: before anything runs."""
    monkeypatch.setattr(plugin, "_SUITE", pytester.path)
    pytester.makepyfile(
        f"import pytest\n\n{marker}\nasync def test_it() -> None:\n    raise AssertionError('it ran')\n"
    )
    run = pytester.runpytest_inprocess()
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["ERROR: *test_it must be marked with ids of the contract, got *"])


# --- options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--contract", "MSG-99"], "--contract must be an id such as MSG-5, got 'MSG-99'"),
        (["--conformance-json", "nowhere/x.json"], "--conformance-json must be in a folder that exists"),
        (["--hive-state", "x", "--subject", "y:z"], "but --hive-state and --subject are given: keep one"),
        (["--hive-state", "nowhere"], "no hive runs on nowhere: nowhere/run/hive.json cannot be read"),
        (["--hive-state", "bad"], "must be written by a hive of this version"),
        (["--hive-state", "empty"], "has no agent that runs"),
        (["--hive-mcp-url", "http://127.0.0.1:1/"], "--hive-mcp-token-file is missing"),
        (["--hive-mcp-url", "u", "--hive-mcp-token-file", "token"], "--hive-agent-name is missing"),
        (
            ["--hive-mcp-url", "u", "--hive-mcp-token-file", "no-token", "--hive-agent-name", "a"],
            "the token file no-token must be readable text",
        ),
        (
            ["--hive-mcp-url=u", "--hive-mcp-token-file=token", "--hive-agent-name=a", "--hive-peer-name=b"],
            "--hive-peer-mcp-url is missing",
        ),
        (["--hive-peer-name", "b"], "--hive-peer-name says which agents, but not of what: give --hive-mcp-url"),
        (["--subject", "nowhere:factory"], "--subject must be an importable module:factory, got 'nowhere:factory'"),
        (["--subject", "json:nothing"], "--subject must be an importable module:factory"),
        (["--subject", "json"], "--subject must be an importable module:factory"),
    ],
)
def test_a_wrong_option_is_a_sentence_before_anything_runs(pytester, options, sentence):
    """CONF-1: with what to do."""
    for folder, text in (("bad", '{"agents": {"iris": {}}}'), ("empty", '{"agents": {}, "host_sock": "x"}')):
        run_dir = pytester.mkdir(folder) / "run"
        run_dir.mkdir()
        (run_dir / "hive.json").write_text(text)
    (pytester.path / "token").write_text("secret\n")
    run = pytester.runpytest_inprocess(*RUN, *options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in run.stderr.str()


def test_a_factory_that_opens_nothing_is_said(pytester):
    """CONF-1: a coroutine function is the usual mistake."""
    pytester.makepyfile(strange="def factory():\n    return 7\n")
    pytester.syspathinsert()
    run = pytester.runpytest_inprocess(*RUN, "--subject", "strange:factory", "--contract", "SELF-1", "-x")
    run.assert_outcomes(failed=1, deselected=run.parseoutcomes()["deselected"])
    run.stdout.fnmatch_lines(["*strange:factory must return an async context manager*"])


def test_a_run_of_other_tests_is_left_alone(pytester):
    """CONF-1: the plugin is loaded wherever the package is installed."""
    pytester.makepyfile("def test_it(): pass")
    run = pytester.runpytest_inprocess("--conformance-json", "x.json")
    run.assert_outcomes(passed=1)
    run.stdout.no_fnmatch_line("*the contract, by id*")
    assert not (pytester.path / "x.json").exists()


# --- the report


def test_the_table_has_a_line_for_each_id_and_one_failure_fails_an_id():
    """CONF-1: what was skipped says why, and what has no test too."""
    manifest = {
        "ABC-1": Entry(title="one"),
        "ABC-2": Entry(title="two"),
        "ABC-3": Entry(title="three", not_yet=NOT_YET),
        "ABC-4": Entry(title="four"),
        "ABC-5": Entry(title="five", not_yet=attrs.evolve(NOT_YET, reason="for another")),
    }
    report = Report(manifest)
    report.add(("ABC-1", "ABC-2"), test="a", outcome=Outcome.PASSED)
    report.add(("ABC-1",), test="b", outcome=Outcome.FAILED)
    report.add(("ABC-2",), test="c", outcome=Outcome.SKIPPED, reason="no restart")
    assert [*report.lines()] == [
        "ABC-1    failed   one: 1 passed, 1 failed",
        "ABC-2    passed   two: 1 passed, 1 skipped (no restart)",
        "ABC-4    not run  four",
        "not yet  since 2026-12-01: for a reason: ABC-3",
        "not yet  since 2026-12-01: for another: ABC-5",
    ]
    rows = report.data()["ids"]
    assert [row["verdict"] for row in rows.values()] == ["failed", "passed", "not yet", "not run", "not yet"]
    assert rows["ABC-2"]["tests"][1] == {"test": "c", "outcome": "skipped", "reason": "no restart"}
    assert rows["ABC-3"]["not_yet"] == "since 2026-12-01: for a reason"


@pytest.mark.slow
def test_a_run_prints_the_table_and_writes_it_as_json(pytester):
    """CONF-1: against this repository's agents, when nothing else is asked for."""
    run = pytester.runpytest_inprocess(*RUN, "--contract", "SELF-1", "--conformance-json", "table.json")
    assert run.ret == pytest.ExitCode.OK
    run.stdout.fnmatch_lines(["*the contract, by id: this repository's agents*", "SELF-1 * passed * 12 passed"])
    table = json.loads((pytester.path / "table.json").read_text())
    assert table["version"] == 1
    assert table["ids"]["SELF-1"]["verdict"] == "passed"
    assert table["ids"]["MSG-5"]["verdict"] == "not run"
    assert table["ids"].keys() == MANIFEST.keys()


# --- a real hive


@pytest.fixture
def hive_state(tmp_path) -> Iterator[Path]:
    """The state folder of a hive that runs in a process of its own."""
    state = tmp_path / "state"
    command = [sys.executable, str(Path(__file__).with_name("hive_child.py")), str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            yield state
        finally:
            child.communicate(timeout=20)
    assert child.returncode == 0


def verdicts(path: Path) -> dict[str, set[str]]:
    """What became of the tests of each id, and why."""
    rows = json.loads(path.read_text())["ids"]
    return {id_: {test["reason"] or test["outcome"] for test in row["tests"]} for id_, row in rows.items()}


@pytest.mark.slow
def test_a_running_hive_passes_and_what_it_cannot_be_asked_for_is_skipped(pytester, hive_state):
    """CONF-1: by its state folder; the operator is reached over its socket."""
    ids = ("MSG-1", "MSG-2", "MSG-4", "MSG-5", "MSG-9", "STOP-1", "SURF-2", "SURF-5", "SELF-1")
    chosen = [option for id_ in ids for option in ("--contract", id_)]
    run = pytester.runpytest_inprocess(
        *RUN, *chosen, "-k", "not 2025-11-25", "--hive-state", hive_state, "--conformance-json", "table.json"
    )
    assert run.ret == pytest.ExitCode.OK
    found = verdicts(pytester.path / "table.json")
    assert found["MSG-4"] == found["SURF-2"] == found["SURF-5"] == found["SELF-1"] == {"passed"}
    no_restart = "the subject cannot be restarted from here"
    no_turn = "the turns of the subject cannot be played from here"
    assert found["MSG-1"] == {"passed", no_restart}
    assert found["MSG-5"] == {"passed", no_restart, no_turn}
    assert found["MSG-9"] == found["STOP-1"] == {no_turn}
    assert found["MSG-2"] == {"passed", "the subject has no agent that is known to be limited in whom it writes to"}


@pytest.mark.slow
@pytest.mark.parametrize("with_peer", [True, False], ids=["two agents", "one agent"])
def test_agents_can_be_named_by_url_token_file_and_name(pytester, hive_state, with_peer):
    """CONF-1: any implementation has these; what needs a second agent is skipped without one."""
    agents = json.loads((hive_state / "run" / "hive.json").read_text())["agents"]
    options = []
    for prefix, of_name, name in (("", "agent", "iris"), ("peer-", "peer", "ruth"))[: 1 + with_peer]:
        options += [f"--hive-{prefix}mcp-url", agents[name]["mcp"]["hyperhive"]]
        options += [f"--hive-{prefix}mcp-token-file", agents[name]["mcp_token_file"], f"--hive-{of_name}-name", name]
    chosen = ["--contract", "MSG-11", "--contract", "SURF-2", "--contract", "SELF-1"]
    run = pytester.runpytest_inprocess(*RUN, *options, *chosen, "--conformance-json", "table.json")
    assert run.ret == pytest.ExitCode.OK
    found = verdicts(pytester.path / "table.json")
    assert found["SURF-2"] == {"passed"}
    assert found["SELF-1"] == {"passed", "the state folders of the subject's agents cannot be read from here"}
    no_operator = "the operator of the subject cannot write from here"
    assert found["MSG-11"] == {"passed" if with_peer else "the subject has one agent only", no_operator}
