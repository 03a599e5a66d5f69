"""Which hive ``hivectl`` means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hive._errors import HiveNotRunning, HiveUnintelligible
from hive.cli._find import find_hive


def publish(state_dir: Path) -> Path:
    run = state_dir / "run"
    run.mkdir(parents=True)
    (run / "hive.json").write_text(json.dumps({"version": 1, "pid": 1, "host_sock": str(run / "host.sock")}))
    return run / "host.sock"


def test_the_places_are_looked_at_in_their_order(tmp_path: Path):
    """HOST-2: --state, HIVE_STATE_DIR, ./hive.toml's, ./hive-state, ./hive-demo; the first that runs."""
    (tmp_path / "hive.toml").write_text('[hive]\nstate_dir = "own"\n[agents.ruth]\n')
    places = [tmp_path / name for name in ("given", "variable", "own", "hive-state", "hive-demo")]
    sockets = [publish(place) for place in places]
    environ = {"HIVE_STATE_DIR": str(places[1])}
    assert find_hive(places[0], environ=environ, folder=tmp_path).host_sock == sockets[0]
    assert find_hive(None, environ=environ, folder=tmp_path).host_sock == sockets[1]
    for index in (2, 3, 4):
        assert find_hive(None, environ={"HIVE_STATE_DIR": ""}, folder=tmp_path).host_sock == sockets[index]
        (places[index] / "run" / "hive.json").unlink()
    with pytest.raises(HiveNotRunning) as caught:
        find_hive(None, environ={}, folder=tmp_path)
    assert all(str(place) in str(caught.value) for place in places[2:])


def test_a_place_that_was_named_is_the_only_one(tmp_path: Path):
    """HOST-2: never another hive than the one that was meant."""
    publish(tmp_path / "hive-state")
    for state, environ in ((tmp_path / "x", {}), (None, {"HIVE_STATE_DIR": str(tmp_path / "x")})):
        with pytest.raises(HiveNotRunning, match=r"no hive is running on .*/x: "):
            find_hive(state, environ=environ, folder=tmp_path)


def test_a_damaged_hive_toml_hides_no_running_hive(tmp_path: Path):
    """HOST-2: it runs by the text it was started with."""
    (tmp_path / "hive.toml").write_text("[hive")
    sock = publish(tmp_path / "hive-state")
    assert find_hive(None, environ={}, folder=tmp_path).host_sock == sock


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"host_sock": 3}', "[" * 100_000, "\udcff"])
def test_a_damaged_hive_json_is_said_as_such(tmp_path: Path, content: str):
    """REL-3: no traceback, whatever is in it."""
    publish(tmp_path)
    (tmp_path / "run" / "hive.json").write_text(content, errors="surrogateescape")
    with pytest.raises(HiveUnintelligible, match='must be a JSON object with "host_sock"'):
        find_hive(tmp_path, environ={}, folder=tmp_path)
