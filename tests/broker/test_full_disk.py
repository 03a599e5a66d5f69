"""A disk that fills up, and one that is read-only: a clear sentence, and nothing lost (REL-3).

Run as a program, this module is the process that does that to a small disk of its own.
"""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from hive_broker import BrokerUnavailable, open_broker

NEEDS_MOUNTS = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode != 0,
    reason="needs a mount namespace of its own",
)


def in_a_small_disk(tmp_path, what):
    """Run this module's program over a disk of 1.5 MiB that is there for it alone; gives the facts it tells."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=1500k tmpfs "$1" && exec "$2" "$3" "$4" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", disk, sys.executable, __file__, what],
        capture_output=True,
        check=True,
        timeout=30,
    )
    return json.loads(done.stdout)


@NEEDS_MOUNTS
@pytest.mark.slow
def test_a_disk_that_fills_up_refuses_in_words_and_keeps_what_it_took(tmp_path):
    """REL-3: reading goes on, and all of it works again as soon as there is room."""
    facts = in_a_small_disk(tmp_path, "full")
    assert facts["sent"] > 5
    assert "the disk is full: free some space and try again" in facts["refusal"]
    assert facts["read_when_full"] == facts["sent"]
    assert "the disk is full: free some space and try again" in facts["start_when_full"]
    assert "No space left on device" in facts["new_database"]
    assert facts["sent_when_there_is_room"] > facts["sent"]
    assert facts["read_in_the_end"] == facts["sent"] + 1


@NEEDS_MOUNTS
@pytest.mark.slow
def test_a_read_only_disk_or_file_is_said_in_words_and_left_as_it_was(tmp_path):
    """REL-3."""
    facts = in_a_small_disk(tmp_path, "read-only")
    assert "must be there and writable, and it is not (Read-only file system)" in facts["disk"]
    assert "read-only: make them writable and try again" in facts["file"]
    assert facts["read_in_the_end"] == 1


async def _send_until_full(broker):
    sent = 0
    try:
        while True:
            await broker.mailbox("iris").send(to="ruth", body="x" * 20_000)
            sent += 1
    except BrokerUnavailable as exc:
        return sent, str(exc)


async def _refusal_of(path):
    try:
        async with open_broker(path, owner="test"):
            return "opened"
    except BrokerUnavailable as exc:
        return str(exc)


async def _fill_up(disk):
    path, ballast, facts = disk / "db" / "broker.sqlite", disk / "ballast", {}
    ballast.write_bytes(bytes(1024 * 700))
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris", "ruth"])
        facts["sent"], facts["refusal"] = await _send_until_full(broker)
        facts["read_when_full"] = len(await broker.history())
        ballast.unlink()
        facts["sent_when_there_is_room"] = (await broker.mailbox("iris").send(to="ruth", body="room")).id
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024))
    facts["start_when_full"] = await _refusal_of(path)
    facts["new_database"] = await _refusal_of(disk / "other" / "broker.sqlite")
    ballast.unlink()
    async with open_broker(path, owner="test") as broker:
        facts["read_in_the_end"] = len(await broker.history())
    return facts


async def _find_it_read_only(disk):
    path, facts = disk / "db" / "broker.sqlite", {}

    async def mount(*arguments):
        await trio.run_process(["mount", *arguments])

    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        await broker.mailbox("iris").send(to="iris", body="x")
    await mount("-o", "remount,ro", str(disk))
    facts["disk"] = await _refusal_of(path)
    await mount("-o", "remount,rw", str(disk))
    await mount("--bind", str(path), str(path))
    await mount("-o", "remount,ro,bind", str(path))
    facts["file"] = await _refusal_of(path)
    await trio.run_process(["umount", str(path)])
    async with open_broker(path, owner="test") as broker:
        facts["read_in_the_end"] = len(await broker.history())
    return facts


if __name__ == "__main__":
    program = {"full": _fill_up, "read-only": _find_it_read_only}[sys.argv[1]]
    sys.stdout.write(json.dumps(trio.run(program, Path(sys.argv[2]))))
