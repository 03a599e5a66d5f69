"""A hive's configuration, made in code and read from a file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive._config import AgentSettings, HiveConfig, RuntimeConfig, RuntimeKind, Sandbox
from hive._config_file import load_config, parse_config
from hive._errors import ConfigInvalid, HiveError, SocketPathTooLong
from hive._paths import HivePaths

BASE = Path("/srv/hives")
AGENT_NAMES = (
    "[a-z0-9-], 1 to 63 bytes, no hyphen at an end, "
    "and none of graceful-stop, hyperhive, operator, reminder, schedule, system"
)
RUTH = "[agents.ruth]\n"


def refusal(text: str, **environ: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(text, base=BASE, environ=environ)
    return str(caught.value)


def test_an_embedder_needs_a_state_folder_and_an_agent():
    """EMBED-1: the defaults are those of a hive one can run."""
    config = HiveConfig(state_dir=BASE / "state", agents={"ruth": AgentSettings()})
    assert config.manager == "ruth"
    assert config.agents["ruth"].runtime.session_title == "hive-session"
    assert config.paths.host_sock == BASE / "state" / "run" / "host.sock"
    assert ["own rights" in warning for warning in config.warnings] == [True]


def test_a_value_made_in_code_obeys_the_same_rules():
    """EMBED-1: no wrong value gets past the constructor."""
    with pytest.raises(ConfigInvalid, match="grace_seconds must be a number of seconds above 0"):
        RuntimeConfig(grace_seconds=0)
    with pytest.raises(ConfigInvalid, match="mcp_port must be a whole number from 0 to 65535, got 70000"):
        HiveConfig(state_dir=BASE, mcp_port=70000, agents={"ruth": AgentSettings()})
    with pytest.raises(ConfigInvalid, match="agents must name at least one agent"):
        HiveConfig(state_dir=BASE, agents={})
    with pytest.raises(ConfigInvalid, match="allowed_recipients must be a list of agents' names, got 'iris'"):
        AgentSettings(allowed_recipients="iris")  # type: ignore[arg-type]  # the mistake at hand
    with pytest.raises(ConfigInvalid, match="runtime must be a RuntimeConfig, got a table"):
        AgentSettings(runtime={})  # type: ignore[arg-type]  # the mistake at hand


def test_mappings_of_a_configuration_cannot_be_changed():
    """EMBED-1: a configuration is a value."""
    env = {"A": "1"}
    config = HiveConfig(state_dir=BASE, agents={"ruth": AgentSettings(runtime=RuntimeConfig(env=env))})
    env["A"] = "2"
    assert config.agents["ruth"].runtime.env == {"A": "1"}
    with pytest.raises(TypeError):
        config.agents["iris"] = AgentSettings()  # type: ignore[index]  # what must not work


def test_an_agent_overrides_the_tables_it_inherits():
    """HOST-6: agent, then [runtime] and [defaults]; variables are merged one by one."""
    config = parse_config(
        """
        [runtime]
        model = "general"
        grace_seconds = 5
        env = { A = "1", B = "1" }
        [defaults]
        sandbox = "auto"
        [agents.ruth]
        [agents.iris]
        model = "special"
        env = { B = "2" }
        sandbox = "none"
        allowed_recipients = ["ruth", "operator", "ruth"]
        """,
        base=BASE,
    )
    ruth, iris = config.agents["ruth"], config.agents["iris"]
    assert (ruth.runtime.model, ruth.sandbox, ruth.runtime.env) == ("general", Sandbox.AUTO, {"A": "1", "B": "1"})
    assert (iris.runtime.model, iris.sandbox, iris.runtime.env) == ("special", Sandbox.NONE, {"A": "1", "B": "2"})
    assert iris.runtime.grace_seconds == 5.0
    assert iris.allowed_recipients == ("ruth", "operator")
    assert iris.runtime.kind is RuntimeKind.CLAUDE


def test_relative_paths_are_relative_to_the_file(tmp_path: Path):
    """HOST-6: where a hive is started from changes nothing."""
    file = tmp_path / "hive.toml"
    file.write_text('[hive]\nruntime_dir = "r"\n[runtime]\ncommand = "bin/claude"\n[agents.ruth]\ncommand = "claude"\n')
    config = load_config(file)
    assert config.state_dir == tmp_path / "hive-state"
    assert config.paths.host_sock == tmp_path / "r" / "host.sock"
    assert config.paths.hive_json == tmp_path / "hive-state" / "run" / "hive.json"
    assert config.agents["ruth"].runtime.command == "claude"
    assert (
        parse_config("[runtime]\ncommand='bin/x'\n" + RUTH, base=BASE).agents["ruth"].runtime.command == f"{BASE}/bin/x"
    )


def test_everything_that_is_wrong_is_said_at_once():
    """HOST-6: file, table, key, what must hold and what came, with the nearest name for an unknown one."""
    text = """
        [hive]
        manger = "ruth"
        mcp_port = true
        [runtim]
        [runtime]
        kind = "acp"
        grace_seconds = "x"
        [defaults]
        sandbox = "podman"
        [agents.ruth]
        gras_seconds = 1
        [agents.operator]
        [agents]
        iris = 1
        """
    assert refusal(text).splitlines() == [
        "hive.toml: [runtim] is not known; did you mean runtime?",
        "hive.toml: [hive] mcp_port must be a whole number from 0 to 65535, got true",
        "hive.toml: [hive] manger is not known; did you mean manager?",
        'hive.toml: [runtime] kind must be "claude"; "acp" is not available in this version',
        "hive.toml: [runtime] grace_seconds must be a number of seconds above 0 and at most 604800, got 'x'",
        'hive.toml: [defaults] sandbox must be "none" or "auto"; "podman" is not available in this version',
        "hive.toml: [agents.ruth] gras_seconds is not known; did you mean grace_seconds?",
        f"hive.toml: [agents.operator] must be {AGENT_NAMES}, got 'operator'",
        "hive.toml: [agents.iris] must be a table, got 1",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[hive\n", "line 1, column 6: expected ']'"),
        ("a = 1\nb = \n", "line 2, column 5: invalid value"),
        ("a =", "at its end: invalid value"),
        ("a = " + "9" * 5000, "must be TOML"),
        ("a = " + "[" * 5000, "must not be nested this deep"),
        ("", "[agents.<name>] must be there at least once; add [agents.ruth]"),
        ("agents = 3", "[agents] must be a table, got 3"),
        (
            "[hive]\nmanager = 'ruth'\n[agents.iris]",
            "manager must be one of the agents (iris), got 'ruth'; name one of them, or add that agent",
        ),
        (RUTH + 'allowed_recipients = ["rut"]', "must be agents of this hive, got 'rut'; did you mean ruth?"),
        (RUTH + "allowed_recipients = [1]", 'must be agents\' names or "operator", got 1'),
        (RUTH + 'model = "--danger"', 'must be one line of 1 to 200 characters that does not begin with "-"'),
        (RUTH + 'effort = "a\\nb"', "must be one line"),
        (RUTH + 'command = ""', "must be the path or name of an executable, got ''"),
        (RUTH + "grace_seconds = nan", "must be a number of seconds"),
        (RUTH + "grace_seconds = -1", "got -1"),
        (RUTH + "grace_seconds = true", "got true"),
        (RUTH + '[hive]\nstate_dir = ""', "must be the path of a folder, got ''"),
        (RUTH + '[hive]\nstate_dir = "~nobody-is-called-this/x"', "this host knows no such home"),
        (RUTH + '[hive]\nname = "My Hive"', "[hive] name must be [a-z0-9-]"),
    ],
)
def test_a_wrong_file_is_refused_in_words(text: str, sentence: str):
    """HOST-6: never a traceback, whatever is in the file."""
    assert sentence in refusal(text)


def test_values_of_variables_are_never_shown():
    """SEC-5: neither by a repr nor by an error."""
    secret = "sk-very-secret"
    assert secret not in refusal(RUTH + f'env = "{secret}"')
    assert secret not in refusal(RUTH + f'env = {{ KEY = ["{secret}"] }}')
    assert secret not in refusal(RUTH + f'env = {{ KEY = "{secret}\\u0000" }}')
    shown = repr(parse_config(RUTH + f'env = {{ KEY = "{secret}" }}', base=BASE))
    assert secret not in shown
    assert "KEY" in shown


def test_the_environment_overrides_what_it_may():
    """TURN-3, TURN-5: three names are read; an agent's own model is not a default and stays."""
    environ = {
        "HIVE_SESSION_TITLE": "t",
        "HIVE_DEFAULT_MODEL": "m",
        "HIVE_RATE_LIMIT_SLEEP_SECS": "7",
        "HIVE_PORT": "x",
    }
    config = parse_config(
        '[runtime]\nmodel = "r"\n[agents.ruth]\n[agents.iris]\nmodel = "own"', base=BASE, environ=environ
    )
    ruth = config.agents["ruth"].runtime
    assert (ruth.session_title, ruth.model, ruth.rate_limit_sleep_seconds) == ("t", "m", 7.0)
    assert config.agents["iris"].runtime.model == "own"
    assert parse_config(RUTH, base=BASE, environ={"HIVE_DEFAULT_MODEL": ""}).agents["ruth"].runtime.model is None


def test_a_wrong_variable_of_the_environment_is_named():
    """TURN-5: the sentence says where to correct it."""
    assert "HIVE_RATE_LIMIT_SLEEP_SECS of the environment must be a number of seconds" in refusal(
        RUTH, HIVE_RATE_LIMIT_SLEEP_SECS="soon"
    )
    assert "HIVE_SESSION_TITLE of the environment must be one line" in refusal(RUTH, HIVE_SESSION_TITLE="-x")


def test_session_title_is_no_key_of_the_file():
    """TURN-3: only the environment sets it."""
    assert "session_title is not known" in refusal(RUTH + 'session_title = "x"')


def test_without_a_ruth_the_first_agent_is_the_manager():
    """SYS-2: nobody should have to know a name they never wrote."""
    assert parse_config("[agents.otto]\n[agents.iris]", base=BASE).manager == "otto"
    assert parse_config("[agents.otto]\n[agents.ruth]", base=BASE).manager == "ruth"


def test_auto_sandbox_is_none_and_says_so():
    """HOST-4: with a standing warning."""
    config = parse_config('[agents.ruth]\n[agents.iris]\nsandbox = "none"', base=BASE)
    (warning,) = config.warnings
    assert "ruth runs with your own rights" in warning


def test_an_unreadable_file_is_refused_in_words(tmp_path: Path):
    """REL-3: absent, a folder, not UTF-8, too long."""
    for path, content, sentence in (
        (tmp_path / "absent.toml", None, "make one with `hive init`"),
        (tmp_path, None, "must be a readable file: Is a directory"),
        (tmp_path / "latin.toml", b"# ok\n# caf\xe9\n", "line 2 must be UTF-8, byte 10 is not"),
        (tmp_path / "long.toml", b"#" * (1 << 20) + b"\n", "must have at most 1048576 bytes"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigInvalid) as caught:
            load_config(path)
        assert sentence in str(caught.value)


def test_a_socket_without_room_is_refused_before_anything_starts():
    """REL-3: 107 bytes, and runtime_dir is the way out."""
    deep = BASE / ("d" * 90)
    with pytest.raises(SocketPathTooLong, match="set runtime_dir"):
        HivePaths(state_dir=deep)
    assert "[hive] the path of a unix socket must have at most 107 bytes" in refusal(
        RUTH + f'[hive]\nstate_dir="{deep}"'
    )
    assert HivePaths(state_dir=deep, runtime_dir=Path("/run/h")).host_sock == Path("/run/h/host.sock")


def test_no_strangers_name_reaches_a_path():
    """SEC-4: a name is validated before it is a part of one."""
    paths = HivePaths(state_dir=BASE)
    assert paths.agent_prompt("ruth") == BASE / "agents" / "ruth" / "config" / "prompt.md"
    for make in (paths.token_file, paths.agent_dir, paths.agent_state_dir, paths.agent_harness_dir, paths.agent_prompt):
        with pytest.raises(ValueError, match="an agent's name must be"):
            make("../../etc")


def test_the_base_of_the_errors_is_not_raised():
    """House rule: a leaf says whose fault it is."""
    with pytest.raises(TypeError, match="raise one of its leaves"):
        HiveError("x")


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_refused(text: str):
    """HOST-6: nothing else happens."""
    with suppress(ConfigInvalid):
        parse_config(text, base=BASE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(key=st.sampled_from(["kind", "model", "env", "grace_seconds", "command", "session_title"]), value=VALUES)
def test_any_value_is_taken_or_refused(key: str, value: object):
    """EMBED-1: a rule raises nothing but its refusal."""
    with suppress(ConfigInvalid):
        RuntimeConfig(**{key: value})  # type: ignore[arg-type]  # any value at all
