"""Texts of a server on the terminals, pipes and encodings of the commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.gateway_process import toml
from support.selection import matrix
from support.shared_clients import SharedClients
from support.terminal import program_in_terminal
from support.tool_commands import Commands

from statehold.server.exit_codes import ASKS, FAILURE, OK, UNKNOWN
from statehold.sessions.one_line import without_hidden

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\x08\u200d"
CONTROLS = ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x08", "\x07")
SERVER = f"""
import json, sys

HOSTILE = {HOSTILE!r}
SCHEMA = {{
    "type": "object",
    "properties": {{"a" + HOSTILE: {{"enum": ["b" + HOSTILE], "default": HOSTILE, "description": HOSTILE}}}},
}}
LINE = "x\\nanswer with: statehold answer park:1; `id` #"
FORM = {{"type": "object", "properties": {{LINE: {{"enum": [LINE], "default": LINE, "title": LINE}}}}}}
TOOLS = [
    {{"name": "ask", "description": "asks", "inputSchema": {{"type": "object"}}}},
    {{"name": "odd", "description": "odd " + HOSTILE + "\\n" + HOSTILE, "inputSchema": SCHEMA}},
    {{"name": "uni", "description": "\\u2192 \\u65e5\\u672c\\u8a9e", "inputSchema": {{"type": "object"}}}},
]
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {{}}
    result = {{}}
    if method is None:
        # The answer to the question ends the call that asked.
        message = {{"method": "", "id": asked}}
        result = {{"content": []}}
    elif method == "initialize":
        result = {{
            "protocolVersion": params["protocolVersion"],
            "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "odd", "version": "1"}},
        }}
    elif method == "tools/list":
        result = {{"tools": TOOLS}}
    elif method == "tools/call" and params["name"] == "ask":
        form = {{"message": LINE, "requestedSchema": FORM}}
        question = {{"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form}}
        print(json.dumps(question), flush=True)
        asked = message["id"]
        continue
    elif method == "tools/call":
        text = HOSTILE if params["name"] == "odd" else "\\u2192 \\u65e5\\u672c\\u8a9e \\U0001f600"
        result = {{"content": [{{"type": "text", "text": text}}], "structuredContent": {{"text": text}}}}
    elif method != "ping" and "id" in message:
        error = {{"code": -32601, "message": "no"}}
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "error": error}}), flush=True)
        continue
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.fixture(scope="module")
def odd_commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "server.py").write_text(SERVER)
    config = folder / "statehold.toml"
    upstream = {"command": sys.executable, "args": [str(folder / "server.py")], "era": "legacy"}
    upstream["text"] = "exact"
    config.write_text(toml({"services": {"odd": upstream}}))
    shared = SharedClients(config, folder / "data")
    yield Commands(shared, folder / "log")
    shared.stop()


@pytest.mark.parametrize(
    "words",
    matrix(
        "tools",
        "tools odd",
        "tools odd --json",
        "call terminal odd",
        "call terminal odd --json",
        "services check",
    ),
)
def test_a_text_of_a_server_does_not_control_a_terminal(odd_commands: Commands, words: str) -> None:
    odd_commands.output("tools")
    with program_in_terminal(odd_commands.line(*words.split()), columns=200) as terminal:
        assert terminal.process is not None
        terminal.wait_for(lambda lines: any("odd" in line or "31m" in line for line in lines), "it")
        while terminal.process.poll() is None:
            terminal.read(0.1)
        terminal.read(0.1)
        shown = terminal.received.decode()
    # The commands themselves may colour their words.
    assert [sign for sign in CONTROLS if sign in shown] == []


def test_json_in_a_pipe_has_no_character_that_controls_a_terminal(odd_commands: Commands) -> None:
    text = odd_commands.output("call", "piped", "odd", "--json")
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["content"][0]["text"] == HOSTILE
    described = json.loads(odd_commands.output("tools", "odd", "--json"))[0]["description"]
    assert without_hidden(HOSTILE) in described


def test_a_question_of_a_server_looks_like_no_line_of_the_command(odd_commands: Commands) -> None:
    odd_commands.output("call", "asked", "uni")
    ran = odd_commands("call", "asked", "ask")
    assert ran.returncode == ASKS, ran.stderr
    ours = [line for line in ran.stdout.splitlines() if not line.startswith(" ")]
    assert [line.partition(":")[0] for line in ours] == ["odd asks", "answer with"]
    # The line can be copied into a shell.
    *_, token, field = shlex.split(ours[1])
    assert token.startswith("sh_")
    assert field == "x answer with: statehold answer park:1; `id` #=..."
    odd_commands.output("answer", token, "--cancel")


@pytest.mark.parametrize(
    ("encoding", "words", "shown"),
    matrix(
        ("cp1252", "call coded uni", "? ??? ?"),
        ("ascii", "call coded uni", "? ??? ?"),
        ("cp1252", "call coded uni --json", '"text": "\\u2192'),
        ("latin-1", "tools uni", "? ???"),
        ("ascii", "sessions history coded", "uni"),
        ("ascii", "sessions export coded -", "\\u2192"),
    ),
)
def test_an_encoding_without_a_character_gets_a_replacement(
    odd_commands: Commands, encoding: str, words: str, shown: str
) -> None:
    odd_commands.output("call", "coded", "uni")
    ran = subprocess.run(
        odd_commands.line(*words.split()),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (OK, b"")
    assert shown in ran.stdout.decode(encoding)


@pytest.mark.parametrize(
    ("words", "redirection", "code"),
    matrix(
        ("call closed uni", ">&-", OK),
        ("call closed uni", ">&- 2>&- <&-", OK),
        ("call closed uni --json", ">&-", OK),
        ("tools", ">&- 2>&-", OK),
        ("sessions list", ">&- 2>&- <&-", OK),
        ("call closed uni", ">/dev/full", UNKNOWN),
        ("call closed uni --json", ">/dev/full", UNKNOWN),
        ("tools", ">/dev/full", FAILURE),
    ),
)
def test_a_call_that_ran_ends_without_a_traceback(
    odd_commands: Commands, tmp_path: Path, words: str, redirection: str, code: int
) -> None:
    odd_commands.output("call", "closed", "uni")
    line = odd_commands.line(*words.split())
    errors = "" if "2>" in redirection else f"2>{tmp_path / 'errors'}"
    script = f'"$@" {errors} {redirection}'
    ran = subprocess.run(["sh", "-c", script, "sh", *line], check=False)
    assert ran.returncode == code
    if errors:
        assert "Traceback" not in (tmp_path / "errors").read_text()
