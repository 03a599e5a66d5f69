"""The page of promises is true: its tests exist, and each fails when its promise is broken as the page says."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()

ROW = re.compile(
    r"\| (?P<ids>[A-Z0-9-]+) \| (?P<promise>[^|]+) \| `(?P<test>[^`]+)` "
    r"\| `(?P<file>[^`]+)`: `(?P<old>[^`|]+)` → `(?P<new>[^`|]+)` \|"
)

COPIED = ("hive", "hive_agent", "hive_broker", "tests", "pyproject.toml")


@attrs.frozen
class Guarantee:
    """One row of the page."""

    ids: str
    promise: str
    test: str
    file: str
    old: str
    new: str


LINES = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z]+-\d", line)]
GUARANTEES = [Guarantee(**found.groupdict()) for line in LINES if (found := ROW.fullmatch(line))]


def names_in(file: Path) -> set[str]:
    """Tests a file defines, its own and those of the suite it imports whole."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            names |= names_in(file.with_name(f"{node.module}.py"))
    return names


def test_every_row_can_be_read() -> None:
    """A row that this module does not understand would be a promise that nothing holds."""
    assert len(GUARANTEES) == len(LINES) > 0


@pytest.mark.parametrize("promised", ["REL-1", "REL-2", "REL-3", "REL-4", "REL-5", "WAKE-2", "MSG-1", "MSG-2", "MSG-3"])
def test_what_is_promised_has_a_row(promised: str) -> None:
    """REL-1 to REL-5, MSG-1 to MSG-11, WAKE-2."""
    messaging = {f"MSG-{number}" for number in range(1, 12)}
    assert {promised, *messaging} <= {guarantee.ids for guarantee in GUARANTEES}


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: f"{guarantee.ids} {guarantee.promise[:40]}")
def test_every_test_that_is_named_exists_and_can_be_made_to_fail(guarantee: Guarantee) -> None:
    """A test that was renamed takes its row along, and so does the code that is to be broken."""
    file, name, *_ = guarantee.test.split("::")
    assert name in names_in(ROOT / file)
    assert (ROOT / guarantee.file).read_text().count(guarantee.old) >= 1


@pytest.mark.slow
@pytest.mark.skipif("HIVE_BREAK_PROMISES" not in os.environ, reason="takes minutes: tox -e torture does it")
@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: f"{guarantee.ids} {guarantee.promise[:40]}")
def test_a_broken_promise_is_seen(guarantee: Guarantee, tmp_path: Path) -> None:
    """Break it in a copy, and see its test fail there."""
    for part in COPIED:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    broken = tmp_path / guarantee.file
    broken.write_text(broken.read_text().replace(guarantee.old, guarantee.new))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", guarantee.test],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "HIVE_TORTURE_KILLS": "15", "HIVE_MODEL_PROFILE": "brief"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout
