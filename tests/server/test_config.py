"""Settings: their sources, their order, and the messages about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from statehold.server.config.load import load
from statehold.server.config.model import Config, ConfigError, ServerSettings, TimeoutSettings
from statehold.sessions.policy import Policy
from statehold.sessions.records import Timeouts
from statehold.tools.upstream.service import UpstreamService

SECRET = "s3cret-v4lue"


def toml(folder: Path, text: str) -> Path:
    path = folder / "statehold.toml"
    path.write_text(text, encoding="utf-8")
    return path


def client_file(folder: Path, text: str | Mapping[str, Any]) -> Path:
    path = folder / "mcp.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def refused(**sources: Any) -> str:
    """Return the one-line error about these sources."""
    with pytest.raises(ConfigError) as caught:
        load(environ=sources.pop("environ", {}), **sources)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


# Defaults and precedence.


def test_defaults_are_those_of_the_design() -> None:
    config = load(environ={})
    assert config == Config()
    assert config.timeouts.session() == Timeouts(idle=900, paused=86_400, lifetime=604_800)
    assert (config.timeouts.call, config.timeouts.connect, config.timeouts.close_grace) == (
        300,
        30,
        5,
    )
    assert config.timeouts.retention == 604_800
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8931)
    assert config.limits.live_sessions == 100
    assert config.limits.sessions_per_principal == 1000
    assert config.toolsets == ["core", "lifecycle", "state", "history", "branch"]
    assert config.data.name == "statehold"


def test_policy_of_the_defaults_is_the_default_policy_with_a_bound_on_what_callers_ask_for() -> (
    None
):
    found = Config().policy()
    assert found.longest == Timeouts(idle=86_400, paused=2_592_000, lifetime=2_592_000)
    assert Policy(longest=found.longest) == found


def test_last_backoff_repeats_until_the_attempts_are_used_up(tmp_path: Path) -> None:
    path = toml(tmp_path, "[recovery]\nattempts = 4\nbackoff = [1, 2]\n")
    assert load(config=path, environ={}).policy().recovery_backoff == (1, 2, 2, 2)
    assert load(environ={"STATEHOLD_RECOVERY__ATTEMPTS": "0"}).policy().recovery_backoff == ()


def test_maximum_is_never_below_the_default() -> None:
    found = TimeoutSettings(idle=100_000, paused=0, max_lifetime=0).maximum()
    assert found == Timeouts(idle=100_000, paused=0, lifetime=0)


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "[server]\nport = 1\nhost = '::1'\n[timeouts]\nidle = 1\ncall = 1\n")
    environ = {"STATEHOLD_SERVER__PORT": "2", "STATEHOLD_TIMEOUTS__IDLE": "2"}
    config = load(config=path, environ=environ, flags={"server": {"port": "3"}})
    assert config.server.port == 3
    assert config.timeouts.idle == 2
    assert config.timeouts.call == 1
    assert config.server.host == "::1"


def test_files_can_be_named_by_the_environment(tmp_path: Path) -> None:
    environ = {
        "STATEHOLD_CONFIG": str(toml(tmp_path, "on_idle = 'close'")),
        "STATEHOLD_SERVICES_FILE": str(
            client_file(tmp_path, {"servers": {"a": {"command": "ls"}}})
        ),
    }
    config = load(environ=environ)
    assert config.on_idle == "close"
    assert list(config.services) == ["a"]


def test_environment_gives_lists_tables_and_services() -> None:
    config = load(
        environ={
            "STATEHOLD_TOOLSETS": "core, admin",
            "STATEHOLD_SERVER__ALLOWED_HOSTS": '["a.example", "b.example:*"]',
            "STATEHOLD_RECOVERY__BACKOFF": "[1, 2.5]",
            "STATEHOLD_EPHEMERAL": "true",
            "STATEHOLD_SERVICES__LOCAL__COMMAND": "ls",
            "STATEHOLD_SERVICES__LOCAL__ARGS": '["-l"]',
            "STATEHOLD_NAMESPACE": "",
        }
    )
    assert config.toolsets == ["core", "admin"]
    assert config.server.allowed_hosts == ["a.example", "b.example:*"]
    assert config.recovery.backoff == [1, 2.5]
    assert config.ephemeral
    assert config.upstreams()["local"].args == ["-l"]


def test_variables_of_kubernetes_and_of_a_statehold_above_are_no_settings() -> None:
    load(
        environ={
            "STATEHOLD_PORT": "tcp://10.0.0.1:8931",
            "STATEHOLD_PORT_8931_TCP_ADDR": "10.0.0.1",
            "STATEHOLD_SERVICE_HOST": "10.0.0.1",
            "STATEHOLD_SERVICE_PORT_HTTP": "8931",
            "STATEHOLD_CHILD": "n:1-1",
        }
    )


def test_relative_paths_are_relative_to_the_file_they_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "conf", tmp_path / "elsewhere"
    (folder / "work").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "run.sh").touch()
    (folder / "tokens").touch()
    path = toml(
        folder,
        "data = 'kept'\n[server]\ntokens = 'tokens'\n"
        "[services.a]\ncommand = './run.sh'\ncwd = 'work'\n[services.b]\ncommand = 'ls'\ncwd = '{dir}'",
    )
    monkeypatch.chdir(elsewhere)
    config = load(config=path, environ={})
    assert config.data == folder / "kept"
    assert config.server.tokens == folder / "tokens"
    assert config.upstreams()["a"].command == str(folder / "run.sh")
    assert config.upstreams()["a"].cwd == str(folder / "work")
    assert (config.upstreams()["b"].command, config.upstreams()["b"].cwd) == ("ls", "{dir}")
    assert load(config=path, environ={}, flags={"data": "here"}).data == elsewhere / "here"
    assert load(config="../conf/statehold.toml", environ={}).upstreams()["a"].cwd is not None


def test_home_stands_for_the_home_folder(tmp_path: Path) -> None:
    config = load(config=toml(tmp_path, "data = '~/x'"), environ={})
    assert config.data == Path.home() / "x"


def test_upstreams_are_the_enabled_services_with_the_global_times(tmp_path: Path) -> None:
    path = toml(
        tmp_path,
        "[timeouts]\nconnect = 7\ncall = 8\n[services.b]\ncommand = 'ls'\n"
        "[services.a]\ncommand = 'ls'\nconnect_seconds = 1\ncall_seconds = 2\n"
        "[services.off]\ndisabled = true\n",
    )
    found = load(config=path, environ={}).upstreams()
    assert list(found) == ["b", "a"]
    assert (found["b"].connect_seconds, found["b"].call_seconds) == (7, 8)
    assert (found["a"].connect_seconds, found["a"].call_seconds) == (1, 2)
    assert (found["b"].first_connect_seconds, found["a"].first_connect_seconds) == (7, None)


def test_toml_given_as_a_clients_file_is_told_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give it as --config"):
        load(services=toml(tmp_path, "[services.a]\ncommand = 'ls'\n"), environ={})


def test_the_first_start_of_a_command_has_longer_by_default(tmp_path: Path) -> None:
    path = toml(tmp_path, "[services.a]\ncommand = 'npx'\n")
    found = load(config=path, environ={}).upstreams()["a"]
    assert (found.connect_seconds, found.first_connect_seconds) == (30, 120)
    service = UpstreamService("a", found)
    assert service.connect_seconds == 120


# A client's file.

CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Claude Desktop": (
        '{"mcpServers": {"s": {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}}}, "theme": 1}',
        {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}},
    ),
    "Claude Code": (
        (
            '{"mcpServers": {"s": {"type": "http", "url": "${BASE:-https://x.example}/mcp",'
            ' "headers": {"Authorization": "Bearer ${KEY}"}}}}'
        ),
        {
            "type": "http",
            "url": "https://x.example/mcp",
            "headers": {"Authorization": f"Bearer {SECRET}"},
        },
    ),
    "Cursor": (
        (
            '{"mcpServers": {"s": {"command": "python", "args": ["${workspaceFolder}/server.py"],'
            ' "env": {"KEY": "${env:KEY}"}, "envFile": ".env"}}}'
        ),
        {"command": "python", "env": {"KEY": SECRET}},
    ),
    "VS Code": (
        (
            '{\n// local\n"inputs": [], "servers": {"s": {"type": "stdio", "command": "node", /* the\nserver */\n'
            '"args": ["a//b", "/*c*/",], "env": {"PORT": 3000, "NONE": null}, "dev": {"watch": "**"}},},}'
        ),
        {
            "type": "stdio",
            "command": "node",
            "args": ["a//b", "/*c*/"],
            "env": {"PORT": "3000"},
        },
    ),
    "VS Code user settings": (
        '{"editor.fontSize": 12, "mcp": {"servers": {"s": {"command": "ls"}}}}',
        {"command": "ls"},
    ),
    "Windsurf": (
        '{"mcpServers": {"s": {"serverUrl": "https://x.example/sse", "disabled": false}}}',
        {"url": "https://x.example/sse", "type": None},
    ),
    "Cline": (
        (
            '{"mcpServers": {"s": {"type": "streamableHttp", "url": "https://x.example/mcp", "timeout": 60,'
            ' "autoApprove": ["a"]}}}'
        ),
        {"url": "https://x.example/mcp", "type": "http"},
    ),
    "Gemini CLI": (
        '{"mcpServers": {"s": {"httpUrl": "https://x.example/mcp", "trust": true}}}',
        {"url": "https://x.example/mcp", "type": "http"},
    ),
    "langchain-mcp-adapters": (
        '{"mcpServers": {"s": {"transport": "streamable_http", "url": "https://x.example/mcp"}}}',
        {"url": "https://x.example/mcp", "type": "http"},
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_file_of_a_client_is_read_unchanged(tmp_path: Path, client: str) -> None:
    text, expected = CLIENTS[client]
    config = load(services=client_file(tmp_path, text), environ={"KEY": SECRET})
    found = config.upstreams()["s"].model_dump()
    assert {key: found[key] for key in expected} == expected


def test_workspace_of_an_editor_is_the_folder_above_its_own(tmp_path: Path) -> None:
    folder = tmp_path / ".vscode"
    folder.mkdir()
    text = '{"servers": {"s": {"command": "ls", "args": ["${workspaceFolder}${/}x", "${workspaceFolderBasename}"]}}}'
    config = load(services=client_file(folder, text), environ={})
    assert config.upstreams()["s"].args == [f"{tmp_path}/x", tmp_path.name]


def test_names_of_services_may_be_whatever_clients_allow(tmp_path: Path) -> None:
    names = ["Sequential Thinking", "github.com/a/b", "@org/server", "größe"]
    path = client_file(tmp_path, {"mcpServers": {name: {"command": "ls"} for name in names}})
    assert list(load(services=path, environ={}).services) == names


def test_our_options_stand_beside_a_service_of_the_client_and_win(tmp_path: Path) -> None:
    entry = {"command": "npx", "args": ["old"], "env": {"A": "theirs", "B": "${GONE}", "C": "3"}}
    config = load(
        config=toml(
            tmp_path,
            "[services.s]\nprefix = 'p_'\nargs = ['new']\nenv = {A = 'ours', B = 'b'}\n"
            "[services.mine]\ncommand = 'ls'",
        ),
        services=client_file(tmp_path, {"mcpServers": {"s": entry, "other": {"command": "ls"}}}),
        environ={},
    )
    found = config.upstreams()["s"]
    assert (found.command, found.args, found.prefix) == ("npx", ["new"], "p_")
    assert found.env == {"A": "ours", "B": "b", "C": "3"}
    assert set(config.services) == {"s", "mine", "other"}


def test_disabled_service_needs_no_variable_and_no_program(tmp_path: Path) -> None:
    entry = {"command": "./none", "env": {"A": "${GONE}"}, "disabled": True}
    path = client_file(tmp_path, {"mcpServers": {"s": entry, "t": {"enabled": False, "x": 1}}})
    assert load(services=path, environ={}).upstreams() == {}
    again = toml(tmp_path, "[services.s]\ndisabled = false")
    assert "GONE" in refused(services=path, config=again)


def test_variables_are_expanded_in_the_toml_as_well(tmp_path: Path) -> None:
    path = toml(
        tmp_path,
        "[services.s]\ncommand = 'sh'\nargs = ['${A}', '${B:-b}', '${EMPTY:-e}', '$${A}', '${A%x}', '$A']\n"
        "env = {H = '${userHome}'}",
    )
    found = load(config=path, environ={"A": "a", "EMPTY": ""}).upstreams()["s"]
    assert found.args == ["a", "b", "e", "${A}", "${A%x}", "$A"]
    assert found.env == {"H": str(Path.home())}


def test_settings_do_not_show_the_secrets_of_services(tmp_path: Path) -> None:
    path = toml(tmp_path, f"[services.s]\ncommand = 'ls'\nenv = {{A = '{SECRET}'}}")
    config = load(config=path, environ={})
    assert SECRET not in repr(config)
    assert SECRET not in str(config)


# Mistakes.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[timeouts]\nidel = 3", "timeouts.idel: is not a setting; did you mean timeouts.idle?"),
        ("port = 3", "port: is not a setting; did you mean server.port?"),
        ("[timeout]\nidle = 3", "timeout: is not a setting; did you mean timeouts?"),
        ("[zzz]\nq = 3", "zzz: is not a setting; remove it"),
        (
            "[services.x]\ncommand = 'ls'\nprefx = 'a'",
            "services.x.prefx: is not a setting; did you mean services.x.prefix?",
        ),
        (
            "[services.x]\ncommand = 'ls'\n[services.x.recipe]\nsaev = []",
            "services.x.recipe.saev: is not a setting; did you mean services.x.recipe.save?",
        ),
        ("[timeouts]\nidle = 'soon'", "timeouts.idle: should be a valid number"),
        ("[timeouts]\nidle = true", "timeouts.idle: should be a number, not true or false"),
        ("[timeouts]\nidle = -1", "timeouts.idle: should be greater than or equal to 0, found -1"),
        ("[timeouts]\nidle = inf", "timeouts.idle: should be"),
        ("[timeouts]\ncall = 0", "timeouts.call: should be greater than 0"),
        ("timeouts = 5", "timeouts: should be a table of settings, found 5"),
        ("[limits]\nqueue = 1.5", "limits.queue: should be a valid integer"),
        (
            "[limits]\nlive_sessions = 0",
            "limits.live_sessions: should be greater than or equal to 1",
        ),
        ("[recovery]\nbackoff = []", "recovery.backoff: list should have at least 1 item"),
        (
            "[server]\nport = 70000",
            "server.port: should be less than or equal to 65535, found 70000",
        ),
        ("[server]\nport = 'http'", "server.port: should be a valid integer"),
        ("[server]\nhost = ''", "server.host: string should have at least 1 character"),
        ("[server]\nsession = 'a/b'", "server.session: should have 1 to 128 characters"),
        ("[server]\nsession = 'sh_x'", "server.session: should be a name, not an id"),
        (
            "[server]\nsession = 'a'\nauto_session = true",
            "server.auto_session: a pinned session and",
        ),
        ("[server]\ntokens = 'none'", "server.tokens: there is no such file"),
        ("[log]\nlevel = 'loud'", "log.level: should be 'debug', 'info'"),
        ("toolsets = ['core', 'adm']", "toolsets.1: should be 'core', 'lifecycle'"),
        ("namespace = 'a/b'", "namespace: should have 1 to 128 characters"),
        ("data = 'statehold.toml'", "statehold.toml is not a folder; give a folder"),
        ("data = 'statehold.toml/below/it'", "statehold.toml is not a folder; give a folder"),
        ("x = [", "end of file: Invalid value; correct the TOML"),
        ("a = 1\nb = = 2", "line 2, column 5: Invalid value; correct the TOML"),
        ("a = 1\na = 2", "Cannot overwrite a value"),
        ('{"mcpServers": {}}', "it looks like JSON: give a client's file as --services"),
        ("services = 1", "services: should be a table of settings"),
        ("[services]\nx = 1", "services.x: should be a table of settings"),
        ("[services.x]\nprefix = 'a'", "services.x: needs a `command`"),
        ("[services.x]\ncommand = 'a'\nurl = 'http://x'", "services.x: has both"),
        ("[services.x]\nurl = 'x.example'", "services.x.url: should start with http://"),
        (
            "[services.x]\nurl = 'http://x'\ntype = 'stdio'",
            'services.x: type = "stdio" needs a `command`',
        ),
        ("[services.x]\ncommand = 'a'\ntype = 'sse'", 'services.x: type = "sse" needs a `url`'),
        (
            "[services.x]\ncommand = 'a'\ntype = 'smoke'",
            "services.x.type: should be 'stdio', 'http' or 'sse'",
        ),
        ("[services.x]\ncommand = 'a'\nargs = 'b'", "services.x.args: should be a valid list"),
        (
            f"[services.x]\ncommand = 'a'\nenv = {{A = ['{SECRET}']}}",
            "services.x.env.A: should be a valid string",
        ),
        (f"[services.x]\ncommand = 'a'\nenv = '{SECRET}'", "services.x.env: should be a table"),
        (f"[services.x]\nurl = '{SECRET}'", "services.x.url: should start"),
        ("[services.x]\nurl = 'http://[bad/mcp'", "services.x.url: is no address of a server"),
        ("[services.x]\nurl = 'http://:80/mcp'", "services.x.url: is no address of a server"),
        ("[services.x]\nurl = 'http://a:99999'", "services.x.url: is no address of a server"),
        ("[services.x]\nurl = 'http://a/b c'", "services.x.url: is no address of a server"),
        (
            f"[services.x]\nurl = 'http://a'\nheaders = {{A = \"{SECRET}\\n\"}}",
            "services.x.headers: the value of A holds a character that no header can",
        ),
        (
            f"[services.x]\nurl = 'http://a'\nheaders = {{'A b' = '{SECRET}'}}",
            "services.x.headers: 'A b' is no name of a header",
        ),
        (
            f"[services.x]\ncommand = 'a'\nenv = {{A = \"{SECRET}\\u0000\"}}",
            "services.x.env: no environment can hold 'A'",
        ),
        ("[services.x]\ncommand = 'a'\nenv = {'A=B' = 'c'}", "no environment can hold 'A=B'"),
        ("[services.x]\ncommand = 'a'\nargs = [\"\\u0000\"]", "services.x.args: a command line"),
        ("[services.x]\ncommand = 'a'\nprefix = 'a b'", "services.x.prefix: string should match"),
        (
            "[services.x]\ncommand = 'a'\n[[services.x.recipe.save]]\ntool = 't'\nkeep = {a = 'text:('}",
            "services.x.recipe.save.0.keep.a: is no regular expression (missing ), ",
        ),
        (
            "[services.x]\ncommand = 'a'\n[[services.x.recipe.save]]\ntool = 't'\nkeep = {a = 'id'}",
            "services.x.recipe.save.0.keep.a: should be file:PATH, text, text:REGEX or a pointer",
        ),
        (
            "[services.x]\ncommand = 'a'\n[[services.x.recipe.save]]\ntool = 't'\nkeep = {a = 'file:../b'}",
            "services.x.recipe.save.0.keep.a: file:PATH names a file below {dir}",
        ),
        ("[services.x]\ncommand = './none'", "services.x.command: there is no program"),
        ("[services.x]\ncommand = 'a'\ncwd = 'none'", "services.x.cwd: there is no folder"),
        (
            "[services.x]\ncommand = 'a'\nenv = {A = '${GONE}'}",
            "services.x.env.A: the environment variable GONE is not set; set it, or write ${GONE:-default}",
        ),
        (
            "[services.x]\ncommand = 'a'\nargs = ['${input:k}']",
            "${input:k} is asked for by the editor only",
        ),
        (
            "[services.'']\ncommand = 'a'",
            "the name of a service needs 1 to 128 printable characters",
        ),
    ],
)
def test_mistake_in_the_file_is_one_line_that_names_it(
    tmp_path: Path, text: str, found: str
) -> None:
    """Covers AM-05."""
    message = refused(config=toml(tmp_path, text))
    assert message.startswith(str(tmp_path / "statehold.toml"))
    assert found in message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"mcpServers": {"s":\n{"command" "x"}}}', "line 2, column 12: Expecting ':' delimiter"),
        ("", "line 1, column 1: Expecting value; correct the JSON"),
        ("[]", 'has no "mcpServers" (or "servers") object'),
        ('{"mcpServers": []}', 'has no "mcpServers" (or "servers") object'),
        ('{"mcpServers": {"s": "ls"}}', 'the server "s" should be an object'),
        ('{"mcpServers": {"s": {}}}', "services.s: needs a `command`"),
        (
            '{"mcpServers": {"s": {"command": ["ls"]}}}',
            "services.s.command: should be a valid string",
        ),
        (
            '{"mcpServers": {"s": {"command": "ls", "env": {"A": {}}}}}',
            "services.s.env.A: should be a valid string",
        ),
        (
            '{"mcpServers": {"s": {"url": "http://x/${env:GONE}"}}}',
            "services.s.url: the environment variable GONE",
        ),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_mistake_in_the_file_of_a_client_is_one_line_that_names_it(
    tmp_path: Path, text: str, found: str
) -> None:
    message = refused(services=client_file(tmp_path, text))
    assert message.startswith(str(tmp_path / "mcp.json"))
    assert found in message


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        (
            "STATEHOLD_TIMEOUTS__IDEL",
            "3",
            "is not a setting; did you mean STATEHOLD_TIMEOUTS__IDLE?",
        ),
        (
            "STATEHOLD_TIMEOUT__IDLE",
            "3",
            "is not a setting; did you mean STATEHOLD_TIMEOUTS__IDLE?",
        ),
        ("STATEHOLD_PORT", "3", "is not a setting; did you mean STATEHOLD_SERVER__PORT?"),
        ("STATEHOLD_QQQ", "3", "is not a setting"),
        ("STATEHOLD_SERVER__PORT", "99999", "should be less than or equal to 65535, found '99999'"),
        ("STATEHOLD_TIMEOUTS", "[1", "should be a table of settings"),
        ("STATEHOLD_SERVICES", f"{{{SECRET}", "should be a table of settings"),
        ("STATEHOLD_CONFIG", "/none.toml", "there is no such file; correct STATEHOLD_CONFIG"),
        ("STATEHOLD_SERVICES_FILE", "/none.json", "there is no such file; correct --services"),
        ("STATEHOLD_SERVICES__S__ENV__KEY", SECRET, "cannot be given one by one"),
    ],
)
def test_mistake_in_the_environment_is_one_line_that_names_it(
    variable: str, value: str, found: str
) -> None:
    message = refused(environ={variable: value, "STATEHOLD_SERVICES__S__COMMAND": "ls"})
    assert found in message
    assert message.startswith((variable[:25], value))


def test_mistake_on_the_command_line_names_the_flag() -> None:
    assert refused(flags={"server": {"port": "x"}}).startswith("--port: should be a valid integer")
    assert refused(flags={"toolsets": "core,x"}).startswith("--toolsets: should be 'core'")


def test_several_mistakes_are_counted(tmp_path: Path) -> None:
    message = refused(config=toml(tmp_path, "[timeouts]\nidle = 'a'\ncal = 1\ncall = 'b'"))
    assert "timeouts.cal:" in message
    assert message.endswith("(and 2 more)")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(config=tmp_path)
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xff")
    assert "UTF-8" in refused(config=path)
    assert "UTF-8" in refused(services=path)


# Exposure.


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"]
)
def test_loopback_needs_no_tokens(host: str) -> None:
    config = load(environ={}, flags={"server": {"host": host}, "timeouts": {"lifetime": 0}})
    assert config.server.loopback


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "mcp.example.org", "localhost.example.org"]
)
def test_address_that_others_can_reach_needs_tokens(host: str, tmp_path: Path) -> None:
    message = refused(flags={"server": {"host": host}})
    assert message.startswith("--host: ")
    assert "give server.tokens (--token-file FILE), or listen on 127.0.0.1" in message
    tokens = tmp_path / "tokens"
    tokens.touch()
    load(environ={}, flags={"server": {"host": host, "tokens": str(tokens)}})


def test_unlimited_lifetime_is_named_when_callers_are_unauthenticated(tmp_path: Path) -> None:
    flags = {"server": {"host": "0.0.0.0"}}
    message = refused(flags=flags, config=toml(tmp_path, "[timeouts]\nlifetime = 0"))
    assert "timeouts.lifetime = 0" in message


def test_settings_made_in_code_read_nothing_and_are_checked_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATEHOLD_ON_IDLE", "close")
    assert Config().on_idle == "pause"
    with pytest.raises(ValidationError, match="without authentication"):
        Config(server=ServerSettings(host="0.0.0.0"))
