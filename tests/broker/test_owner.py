"""One owner of a database at a time, whoever it is and however it ends."""

import os
import signal
import subprocess
import sys

import pytest

from hive_broker import BrokerLocked, open_broker

HOLD = """
import sys, trio, hive_broker

async def main():
    async with hive_broker.open_broker(sys.argv[1], owner="the first"):
        print("open", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""

HOLD_AND_FORK = """
import os, sys, time
from hive_broker._owner import own_database

with own_database(sys.argv[1], owner="the parent"):
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    sys.stdin.read()
"""


def start(script, path, **options):
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


async def must_not_open(path):
    async with open_broker(path, owner="the second"):
        raise AssertionError("must not open")


async def test_a_second_opener_in_this_process_is_refused_by_name(path):
    """REL-2, failure 19."""
    async with open_broker(path, owner="the first"):
        with pytest.raises(BrokerLocked, match=f"belongs to 'the first', pid {os.getpid()}: stop that") as caught:
            await must_not_open(path)
    assert (caught.value.owner, caught.value.pid) == ("the first", os.getpid())
    async with open_broker(path, owner="the second"):
        pass


@pytest.mark.slow
async def test_a_second_process_is_refused_and_the_claim_dies_with_the_first(path):
    """REL-2, failure 7: no stale claim, even after a kill."""
    with start(HOLD, path) as child:
        try:
            assert child.stdout.readline() == "open\n"
            with pytest.raises(BrokerLocked) as caught:
                await must_not_open(path)
            assert (caught.value.owner, caught.value.pid) == ("the first", child.pid)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
    async with open_broker(path, owner="the second"):
        pass


async def test_a_symlink_is_the_file_it_leads_to(path, tmp_path):
    """REL-2."""
    link, folder = tmp_path / "link.sqlite", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(path.parent)
    async with open_broker(path, owner="the first"):
        with pytest.raises(BrokerLocked):
            await must_not_open(link)
        with pytest.raises(BrokerLocked):
            await must_not_open(folder / path.name)
    async with open_broker(link, owner="the second"):
        assert path.exists()


@pytest.mark.slow
async def test_children_do_not_keep_the_claim_of_a_parent_that_died(path):
    """REL-2: neither forked nor executed ones."""
    with start(HOLD_AND_FORK, path) as parent:
        forked = int(parent.stdout.readline())
        try:
            with pytest.raises(BrokerLocked):
                await must_not_open(path)
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            async with open_broker(path, owner="the second"):
                pass
        finally:
            os.kill(forked, signal.SIGKILL)


async def test_an_executed_child_does_not_have_the_claim(path):
    """REL-2."""
    async with open_broker(path, owner="the first"):
        child = start("input()", path, close_fds=False)
    try:
        async with open_broker(path, owner="the second"):
            assert child.poll() is None
    finally:
        child.communicate("")
