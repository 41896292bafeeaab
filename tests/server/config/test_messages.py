"""The messages about wrong settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.settings import SECRET, client_file, refused, toml


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
        ("timeouts = 5", "timeouts: should be a table of settings, found 5"),
        (
            "[summary]\ncommand = 'ask --api-key hunter2'",
            "found 'ask --api-key [redacted]'",
        ),
        (
            "[logins.git]\nkind = 'key'",
            "logins.git: needs a `file` or a `command`; give one of the two",
        ),
        (
            "[services.x]\nurl = 'https://x.test'\nheaders = { A = '${login:a key}' }",
            "services.x.headers: the NAME in ${login:NAME} has 1 to 128 letters",
        ),
        (
            "[logins.'a key']\nkind = 'key'\nfile = 'x'",
            "logins.a key: the name of a login has 1 to 128 letters",
        ),
        ("[recovery]\nbackoff = []", "recovery.backoff: list should have at least 1 item"),
        (
            "[server]\nport = 70000",
            "server.port: should be less than or equal to 65535, found 70000",
        ),
        ("[server]\nsession = 'a/b'", "server.session: should have 1 to 128 characters"),
        ("[server]\nsession = 'sh_x'", "server.session: should have 1 to 128 characters"),
        (
            "[server]\nsession = 'a'\nauto_session = true",
            "server.auto_session: a pinned session and",
        ),
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
            f"[services.x]\nurl = 'http://a'\nheaders = {{A = '{SECRET}ï'}}",
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
            "[logins.shop]\nkind = 'browser'\nsites = ['shop.test']",
            "logins.shop.sites.0: 'shop.test' is no origin; write one such as https://shop.test",
        ),
        (
            "[services.'']\ncommand = 'a'",
            "the name of a service needs 1 to 128 printable characters",
        ),
    ],
)
def test_a_mistake_in_the_file_is_reported_in_one_line_that_names_it(
    tmp_path: Path, text: str, found: str
) -> None:
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
        (
            '{"mcpServers": {"s": {"command": "ls", "env": {"A": {}}}}}',
            "services.s.env.A: should be a valid string",
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
        (
            "STATEHOLD_SERVICES_FILE",
            "/none.json",
            "there is no such file; correct STATEHOLD_SERVICES_FILE",
        ),
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
