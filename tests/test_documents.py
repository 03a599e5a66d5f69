"""What the documents promise is what the repository does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    """A green run means what a contributor's own run means."""
    (command,) = [line for line in README.splitlines() if line.startswith("python3 -m venv") and "tox" in line]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_readme_quotes_its_example_as_it_is() -> None:
    """Lines shown in the README stand in the file that the tests run."""
    example = (ROOT / "docs" / "examples" / "embed_hive.py").read_text()
    for line in (
        'operator = hive.broker.mailbox("operator")',
        'await operator.send(to="ruth", body="What is six times seven?")',
        "await operator.wait_unread()",
    ):
        assert line in README
        assert line in example


@pytest.mark.parametrize("page", [*sorted(path.name for path in ROOT.glob("*.md")), "docs"])
def test_every_relative_link_leads_to_a_file(page: str) -> None:
    """A page that was moved takes its links along."""
    pages = sorted((ROOT / "docs").glob("*.md")) if page == "docs" else [ROOT / page]
    for file in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}, which is not there"
