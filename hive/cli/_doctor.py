"""``hive doctor``: one line a check, for people or as JSON.

Owns layout only; ``hive._doctor`` looks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from hive._doctor import Finding, Verdict, examine_hive
from hive._errors import ConfigInvalid

from ._text import on_terminal
from ._which import which_hive

__all__ = ["run_doctor"]

_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "red"}


def run_doctor(config: Path | None, state: Path | None, *, as_json: bool) -> bool:
    """Show all findings; give whether none of them has failed."""
    found: list[Finding] = []
    for finding in _findings(config, state):
        found.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        rows = [{"check": each.check, "verdict": each.verdict.value, "text": each.text} for each in found]
        click.echo(json.dumps(rows, indent=2))
    return all(finding.verdict is not Verdict.FAILED for finding in found)


def _findings(config: Path | None, state: Path | None) -> Iterator[Finding]:
    try:
        paths, settings = which_hive(config, state)
    except ConfigInvalid as exc:
        yield Finding.failed("config", "; ".join(str(exc).splitlines()))
        return
    if settings is None:
        yield Finding.ok("config", f"not looked at, only {paths.state_dir}")
    elif settings.warnings:
        yield Finding.warning("config", "; ".join(settings.warnings))
    else:
        yield Finding.ok("config", f"sound; {len(settings.agents)} agents, state in {paths.state_dir}")
    yield from examine_hive(paths, settings)


def _show(finding: Finding) -> None:
    verdict = click.style(f"{finding.verdict.value:<9}", fg=_COLOURS[finding.verdict])
    click.echo(f"{verdict}{finding.check:<13}{on_terminal(finding.text)}")
