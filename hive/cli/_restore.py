"""``hive restore``: a backup put back, and in words what that could not bring back.

Owns the wording; ``hive_broker.restore_database`` does it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs
import click

import hive_broker

from ._text import on_terminal
from ._which import which_hive

__all__ = ["run_restore"]


def run_restore(file: Path, config: Path | None, state: Path | None, *, as_json: bool) -> None:
    """Restore ``file``, and say what it meant.

    Raises:
        HiveError: there is no such hive.
        hive_broker.BrokerError: the hive runs, the file is no backup, or the disk says no; nothing was replaced.
    """
    paths, _ = which_hive(config, state)
    restored = hive_broker.restore_database(paths.broker_db, file, owner="hive restore", now=time.time())
    if as_json:
        click.echo(json.dumps(attrs.asdict(restored), indent=2))
        return
    for sentence in _sentences(file, restored):
        click.echo(on_terminal(sentence))


def _sentences(file: Path, restored: hive_broker.Restored) -> Iterator[str]:
    made = ""
    if restored.made_at is not None:
        made = f", as of {datetime.fromtimestamp(restored.made_at, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}"
    yield f"{restored.path} is {file} now: {restored.messages} messages{made}."
    for path in restored.set_aside:
        yield f"What was there is kept as {path}."
    yield _lost(restored)
    yield "What was popped, read or acked after the backup counts as not yet done: agents get it again."
    yield f"Ids go on at #{restored.next_message_id}. Start the hive with hive up."


def _lost(restored: hive_broker.Restored) -> str:
    last = restored.last_message_id
    if restored.lost_messages is not None:
        if restored.lost_messages == 0:
            return "No message is newer than the backup."
        return (
            f"{restored.lost_messages} messages newer than the backup (after #{last}) are not in it; "
            "the file that is kept has them."
        )
    if restored.given_out is not None and restored.given_out >= last:
        most = restored.given_out - last
        return (
            f"What was replaced cannot be read. Ids up to #{restored.given_out} had been given out and the backup ends "
            f"at #{last}: at most {most} messages are lost."
        )
    return (
        f"Messages newer than the backup (after #{last}) are lost, if there were any: nothing here says how many. "
        "So that no id is given out twice, ids leave a wide gap."
    )
