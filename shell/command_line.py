"""The values of a command line, and the settings that it may hold. Settings alone are read here, without click."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final

from .call import words

SETTINGS: Final[dict[str, tuple[str, str]]] = {
    **words.SETTINGS,
    "--ephemeral": ("", "keep everything in memory only"),
    "--session": ("NAME", "serve one session: no tool has a session_id argument"),
    "--shared": (
        "",
        "share one background server and its sessions with the other stdio clients of the data folder",
    ),
    "--auto-session": ("", "give older clients a session per connection"),
    "--host": ("ADDRESS", "address to listen on (serve)"),
    "--port": ("PORT", "port to listen on, 0 for any (serve)"),
    "--workers": ("N", "processes that serve the port (serve)"),
    "--token-file": ("FILE", "static bearer tokens (serve)"),
    "--session-header": (
        "",
        "have clients repeat session_id as the header Mcp-Param-Session-Id, for a proxy to route by (serve)",
    ),
}
"""The settings of every command, as words.SETTINGS has those of commands that call tools."""


class CommandLine(SimpleNamespace):
    """The values of the arguments and options of one command line, by name.

    `command` and, for groups, `action` name the command. Every argument and option of that command has a value; a setting
    is there only if the command line gives it.
    """


def attribute_of(flag: str) -> str:
    """Return the attribute of a CommandLine that has the value of a setting."""
    return flag.removeprefix("--").replace("-", "_")


def read_settings(line: Sequence[str]) -> CommandLine | None:
    """Read a command line that holds settings alone, as clients start a server. None for another, which takes click."""
    values: dict[str, str | bool] = {}
    following = iter(line)
    for word in following:
        name, is_joined, value = word.partition("=")
        if name not in SETTINGS:
            return None
        takes_value = SETTINGS[name][0]
        if takes_value and not is_joined:
            value = next(following, "-")
        if value.startswith("-") or (is_joined and not takes_value):
            return None
        values[attribute_of(name)] = value if takes_value else True
    return CommandLine(command=None, action=None, version=False, **values)
