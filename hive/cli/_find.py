"""Which hive ``hivectl`` means.

Owns the order of the places where it looks, and the reading of ``run/hive.json``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from hive._errors import ConfigInvalid, HiveNotRunning, HiveUnintelligible
from hive._paths import hive_json_in

from ._program import shown_path

__all__ = ["FoundHive", "find_hive"]

STATE_VARIABLE = "HIVE_STATE_DIR"
_MAX_BYTES = 8 << 20  # hive.json has a few hundred bytes an agent


@attrs.frozen(kw_only=True)
class FoundHive:
    """A hive that runs, or did when it wrote its hive.json.

    Attributes:
        hive_json: where it says so; a clean stop removes it.
        host_sock: its admin socket.
    """

    hive_json: Path
    host_sock: Path


def find_hive(state_dir: Path | None, *, environ: Mapping[str, str], folder: Path) -> FoundHive:
    """The hive in ``state_dir``, or where ``HIVE_STATE_DIR`` says, or the first that runs in ``folder``.

    Raises:
        HiveNotRunning: with the places that were looked at.
        HiveUnintelligible: the hive.json that was found is not one.
    """
    named = state_dir or (Path(environ[STATE_VARIABLE]) if environ.get(STATE_VARIABLE) else None)
    if named is not None:
        if hive_json_in(named).exists():
            return _read(hive_json_in(named))
        raise HiveNotRunning(f"no hive is running on {named}: {hive_json_in(named)} is not there")
    looked = []
    for place in _usual_places(folder):
        if hive_json_in(place).exists():
            return _read(hive_json_in(place))
        looked.append(shown_path(place.absolute()))
    raise HiveNotRunning(
        f"no hive is running here (looked in {', '.join(dict.fromkeys(looked))}); "
        f"start one with `hive up`, or name its state folder by --state or {STATE_VARIABLE}"
    )


def _usual_places(folder: Path) -> Iterator[Path]:
    config = folder / "hive.toml"
    if config.exists():
        from hive._config_file import load_config

        # A hive that runs was started with an earlier text; `hive up` says what is wrong with this one.
        with suppress(ConfigInvalid):
            yield load_config(config).state_dir
    yield folder / "hive-state"
    yield folder / "hive-demo"


def _read(path: Path) -> FoundHive:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MAX_BYTES))
        return FoundHive(hive_json=path, host_sock=_path(found["host_sock"]))
    except FileNotFoundError as exc:
        raise HiveNotRunning(f"the hive of {path} has just stopped") from exc
    except PermissionError as exc:
        raise HiveUnintelligible(f"{path} must be readable for you; run this as the hive's user") from exc
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        raise HiveUnintelligible(f'{path} must be a JSON object with "host_sock"; restart that hive') from exc


def _path(text: str) -> Path:
    """``text`` as a path; JSON can spell what none can have: half of a surrogate pair, and NUL."""
    if b"\0" in os.fsencode(text):
        raise ValueError("a path has no NUL in it")
    return Path(text)
