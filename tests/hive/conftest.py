"""What the tests of a hive's furniture share: a served admin socket, in this event loop or in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from fake_hive import FakeHive, Served, publish

from hive._hostsock import serve_host_socket


@pytest.fixture
async def served(tmp_path: Path, nursery: trio.Nursery) -> Served:
    """A fake hive served by this event loop."""
    hive = FakeHive("ruth", "iris")
    path = tmp_path / "run" / "host.sock"
    await nursery.start(serve_host_socket, path, hive)
    return Served(hive, path)


@pytest.fixture
def running_hive(tmp_path: Path) -> Iterator[FakeHive]:
    """A fake hive in a thread, published in ``tmp_path`` as a hive is in its state folder."""
    hive = FakeHive("ruth", "iris")
    ready = threading.Event()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_host_socket, publish(tmp_path), hive)
            stop.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            ready.set()
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(5)
    yield hive
    ((token, scope),) = stop
    token.run_sync_soon(scope.cancel)
    thread.join(5)
    assert not thread.is_alive()
