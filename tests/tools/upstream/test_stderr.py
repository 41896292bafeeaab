"""The last output of a program becomes one line that names the cause."""

from __future__ import annotations

import logging
import sys

import pytest
from callers import Serving, view
from hypothesis import given
from hypothesis import strategies as st

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.processes.stderr import last_cause
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.known_secrets import Secrets
from statehold.tools.upstream.service import UpstreamService

NODE = """node:internal/modules/cjs/loader:1080
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1077:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.11.0
"""
NODE_EVENT = """node:events:497
      throw er; // Unhandled 'error' event
      ^

Error: listen EADDRINUSE: address already in use :::3000
    at Server.setupListenHandle [as _listen2] (node:net:1817:16)
Emitted 'error' event on Server instance at:
    at emitErrorNT (node:net:1796:8) {
  code: 'EADDRINUSE'
}
"""
PYTHON = """INFO starting
Traceback (most recent call last):
  File "/srv/main.py", line 3, in <module>
    raise ValueError("the port is taken")
ValueError: the port is taken
"""
CHAINED = (
    PYTHON
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/main.py", line 9, in <module>
    boot()
    ^^^^^^
pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing]
"""
)
NPM = """npm notice
npm notice New major version of npm available!
npm error code E404
npm error 404 Not Found - GET https://registry.example/mcp-nothing - Not found
npm error 404
npm error 404  'mcp-nothing@*' is not in this registry.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/x-debug-0.log
"""
UV = """  \u00d7 Failed to download `mcp-server-time`
  ├─▶ Failed to fetch: `https://files.example/x.whl`
  ╰─▶ invalid peer certificate: UnknownIssuer
  help: add the certificate
"""
UV_SPAWN = """error: Failed to spawn: `mcp-nothing`
  cause: No such file or directory (os error 2)
"""
UV_OFFLINE = """  INFO resolving
error: Failed to fetch: `https://pypi.example/simple/mcp-nothing/`
  Caused by: Could not connect, are you offline?
  Caused by: dns error: failed to lookup address information
hint: use --offline
"""
DOCKER = """Unable to find image 'mcp/nothing:latest' locally
docker: Error response from daemon: pull access denied for mcp/nothing

Run 'docker run --help' for more information
"""
GO = "panic: no configuration\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:5 +0x1d\nexit status 2\n"
JAVA = 'Exception in thread "main" java.lang.IllegalStateException: no key\n\tat Main.main(Main.java:3)\n'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (NODE, "Error: Cannot find module '/srv/index.js'"),
        (NODE_EVENT, "Error: listen EADDRINUSE: address already in use :::3000"),
        (PYTHON, "ValueError: the port is taken"),
        (CHAINED, "pydantic_core.ValidationError: 1 validation error for Settings"),
        (NPM, "Not Found - GET https://registry.example/mcp-nothing - Not found"),
        (
            NPM.replace("npm error", "npm ERR!"),
            "Not Found - GET https://registry.example/mcp-nothing - Not found",
        ),
        (UV, "invalid peer certificate: UnknownIssuer"),
        (UV_SPAWN, "error: Failed to spawn: `mcp-nothing`: No such file or directory (os error 2)"),
        (
            UV_OFFLINE,
            (
                "error: Failed to fetch: `https://pypi.example/simple/mcp-nothing/`: "
                "dns error: failed to lookup address information"
            ),
        ),
        (DOCKER, "docker: Error response from daemon: pull access denied for mcp/nothing"),
        (GO, "panic: no configuration"),
        (JAVA, 'Exception in thread "main" java.lang.IllegalStateException: no key'),
        (
            "usage: server [-h]\nserver: error: --port is missing\n",
            "server: error: --port is missing",
        ),
        ("\x1b[31mfatal:\x1b[0m no\x07 key\x1b]0;title\x07\n", r"fatal: no\x07 key"),
        ("  only indented\n", "only indented"),
        ("}\n", "}"),
        ("\n \n", ""),
    ],
)
def test_the_cause_of_an_end_is_one_line(text: str, cause: str) -> None:
    assert last_cause(text) == cause


@given(st.text(st.characters() | st.sampled_from("\x1b[]m\n\r\x9b\u2028")))
def test_any_output_of_a_program_becomes_one_harmless_line(text: str) -> None:
    for line in (last_cause(text), Secrets().describe_failure(text, text)):
        assert len(line.splitlines()) <= 1
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in line)


async def test_an_error_of_a_service_that_does_not_start_has_one_line(serving: Serving) -> None:
    program = f"import sys; sys.stderr.write({NODE + NODE_EVENT!r}); sys.exit(1)"
    for config in (
        serving("keeper").config.model_copy(update={"args": ["-c", program]}),
        UpstreamConfig(
            command="sh", args=["-c", "printf 'a\\033[2Jb\\nlast \\033[31mline' >&2; exit 2"]
        ),
    ):
        with pytest.raises(ServiceUnavailable) as unavailable:
            await UpstreamService("broken", config).open(view(), None)
        message = unavailable.value.message
        assert len(message.splitlines()) == 1
        assert "\x1b" not in message
        assert message.endswith(
            (
                "it last said: Error: listen EADDRINUSE: address already in use :::3000.",
                "it last said: last line.",
            )
        )


async def test_a_line_of_stderr_is_logged_without_secrets_and_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The secret has characters that are escaped, so escaping it first would hide it from the redaction."""
    secret = "s3cret\t\x1bv4lue-\xe9"
    program = (
        "import os, sys;"
        "os.write(2, f'key {os.environ[\"KEY\"]}\\x1b[31m red\\n'.encode()); sys.exit(3)"
    )
    config = UpstreamConfig(command=sys.executable, args=["-c", program], env={"KEY": secret})
    with caplog.at_level(logging.DEBUG, "statehold"), pytest.raises(ServiceUnavailable):
        await UpstreamService("loud", config).open(view(), None)
    (message,) = {line for line in caplog.messages if "stderr:" in line}
    assert message == r"loud stderr: key ***\x1b[31m red"
