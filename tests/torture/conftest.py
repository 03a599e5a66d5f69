"""Where a tortured broker lives."""

import tempfile
from pathlib import Path

import pytest

pytest.register_assert_rewrite("children", "ledger")


@pytest.fixture
def path(tmp_path) -> Path:
    """Where its database may be."""
    return tmp_path / "db" / "broker.sqlite"


@pytest.fixture
def socket_folder():
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="hive-") as folder:
        yield Path(folder)
