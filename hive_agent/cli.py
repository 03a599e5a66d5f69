"""``hive-agent``: one agent in a process of its own, the entry point of a container (HOST-6).

Owns the command line, the exit codes (0 stopped as asked, 1 cannot run, 2 usage) and what is said on stderr. Importing
it costs little: pid 1 stays as small as it is when it splits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

__all__ = ["main"]

_FAILED = 1
_USAGE = 2


@click.command(
    help="Run one agent of a hive that serves its mailbox at HIVE_BROKER_SOCKET, until SIGTERM or SIGINT; a second one "
    "cuts a running turn off.",
    epilog="Environment, over the file: HIVE_NAME, HIVE_STATE_DIR, HIVE_BROKER_SOCKET [/run/hive/mcp.sock], HIVE_PORT "
    "[0: a free one, kept], HIVE_DEFAULT_MODEL, HIVE_SESSION_TITLE, HIVE_RATE_LIMIT_SLEEP_SECS.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="HIVE_AGENT_CONFIG",
    show_envvar=True,
    help="A TOML file with the keys name, state_dir, broker_socket, port, model and those of [runtime] in hive.toml.",
)
@click.option("--verbose", is_flag=True, help="Log more.")
@click.version_option(package_name="hyperhive", message="hive-agent %(version)s")
@click.pass_context
def hive_agent(ctx: click.Context, config: Path | None, *, verbose: bool) -> None:
    """See the help."""
    from hive_agent._alone_settings import read_settings
    from hive_agent._errors import SettingsInvalid

    try:
        settings = read_settings(config, environ=os.environ)
    except SettingsInvalid as exc:
        _say(str(exc))
        ctx.exit(_USAGE)

    import trio

    from hive_agent._alone import run_alone
    from hive_agent._errors import AgentError
    from hive_broker import BrokerError

    _set_up_logging(verbose=verbose)
    code = 0
    try:
        trio.run(run_alone, settings)
    except* (AgentError, BrokerError, OSError) as group:
        for sentence in dict.fromkeys(str(exc) for exc in _leaves(group)):
            _say(sentence)
        code = _FAILED
    ctx.exit(code)


def main() -> NoReturn:
    """The program ``hive-agent``."""
    if os.getpid() == 1:
        from hive_agent._pid1 import become_init

        if (code := become_init()) is not None:
            sys.exit(code)
    sys.exit(hive_agent.main(prog_name="hive-agent"))


def _say(sentences: str) -> None:
    for sentence in sentences.splitlines():
        click.echo(f"hive-agent: {sentence}", err=True)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for exc in group.exceptions:
        found += _leaves(exc) if isinstance(exc, BaseExceptionGroup) else [exc]
    return found


def _set_up_logging(*, verbose: bool) -> None:
    import logging

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s  %(levelname)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for stranger in ("mcp", "hypercorn"):
        # Their information is about each request; ours says the same once.
        logging.getLogger(stranger).setLevel(logging.WARNING)
