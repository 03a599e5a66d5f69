"""Which hive a command of ``hive`` is about, whether it runs or not.

Owns the choice between a hive.toml and a bare state folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from hive._config import HiveConfig
from hive._config_file import load_config
from hive._paths import HivePaths

__all__ = ["which_hive"]


def which_hive(config: Path | None, state: Path | None) -> tuple[HivePaths, HiveConfig | None]:
    """The hive of a hive.toml, or that of a state folder, of which no more is known.

    Raises:
        ConfigInvalid: the hive.toml is absent or wrong.
        SocketPathTooLong: the state folder's path is too long for the socket in it.
    """
    if state is not None and config is not None:
        raise click.UsageError("a hive.toml names its state folder; leave out --config or --state")
    if state is not None:
        return HivePaths(state_dir=state.absolute()), None
    loaded = load_config(config or Path("hive.toml"), environ=os.environ)
    return loaded.paths, loaded
