"""Reads the command line of a command that calls tools: its options, and the arguments of the tool as texts."""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SETTINGS = {
    "--config": ("FILE", "settings in TOML (docs/reference/configuration.md)"),
    "--services": (
        "FILE",
        "services: the file of a client with its MCP servers, unchanged (docs/use/services.md)",
    ),
    "--data": ("DIR", "folder of everything that is kept"),
    "--strict": (
        "",
        "refuse to start when a setting of a service is wrong, instead of running the others",
    ),
    "--toolsets": ("A,B", "core, lifecycle, state, history, branch, admin, view, calls"),
    "--log-level": ("LEVEL", "debug, info, warning or error"),
    "--log-format": ("FORMAT", "text or json"),
}
"""The settings of a server that the command starts: the kind of the value, "" for none, and the help. click has them from
here."""

REMOTE = {
    "--url": ("URL", "a server elsewhere (slower: it loads the client)"),
    "--token-file": ("FILE", "the bearer token for --url"),
}
"""The options of a command that also works with a server elsewhere."""
_JSON = {"--json": ("", "print one JSON document")}
CALLS = {
    **_JSON,
    "--quiet": ("", 'leave out the page ("Snapshot")'),
    "-o": ("PATH", "the file or the folder for pictures and files"),
    "--timeout": ("S", "wait so many seconds; a call that is a task by then goes on"),
    "--no-input": ("", "never ask here; exit with 6"),
    "--progress": ("", "progress on stderr also without a terminal"),
    **REMOTE,
}
_ANSWERS = {
    **CALLS,
    "--decline": ("", "decline to answer"),
    "--cancel": ("", "dismiss the question"),
}
OPTIONS = {
    "call": {
        **CALLS,
        "--new": ("", "the session must not exist"),
        "--exists": ("", "the session must exist"),
        "--operation": ("ID", "run the call at most once, also when the command is repeated"),
        "--detach": ("", "print the id of the task that the call is, and end"),
    },
    "answer": _ANSWERS,
    "tasks": _ANSWERS,
    "tools": {
        "--session": ("NAME", "those that a session offers"),
        "--grep": ("TEXT", "those with this text"),
        **_JSON,
        **REMOTE,
    },
    "complete": {},
}
"""The options of each command, as SETTINGS has them."""
SHORT = {"-q": "--quiet"}
FIND = "See: statehold tools --grep TEXT"


class WrongUsage(Exception):
    """Raised for a command line that cannot be carried out. Its text says why in one line."""


class Words:
    """The parts of a command line."""

    def __init__(self, command: str, words: list[str]) -> None:
        """Read a command line. `--` ends the options.

        Raises:
            WrongUsage: an option is unknown, or lacks its value.
        """
        self.command = command
        self.options: dict[str, str] = {}
        """The options by name; "" for one without a value."""
        self.settings: list[str] = []
        """The settings of the server, as they were given."""
        self.rest: list[str] = []
        known = OPTIONS[command]
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                self.rest += words
                break
            name, is_joined, value = (
                word.partition("=") if word.startswith("--") else (word, "", "")
            )
            name = SHORT.get(name, name)
            if not word.startswith("-") or word == "-":
                self.rest.append(word)
            elif name in known or name in SETTINGS:
                takes_value = bool((known.get(name) or SETTINGS[name])[0])
                if takes_value and not is_joined:
                    if not words:
                        raise WrongUsage(f"{name} needs a value")
                    value = words.pop(0)
                self.options[name] = value
                if name in SETTINGS:
                    self.settings += [f"{name}={value}"] if takes_value else [name]
            else:
                # Imported here: only a mistake needs it.
                from ...sessions.wording import near_names

                near = near_names(name, [*known, *SETTINGS])
                hint = f", did you mean {near[0]}?" if near else ""
                raise WrongUsage(f"there is no option {name}{hint}")

    def has(self, option: str) -> bool:
        return option in self.options

    def seconds(self) -> float | None:
        """Return the value of --timeout; None without one."""
        text = self.options.get("--timeout")
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise WrongUsage(f"--timeout should be a number of seconds, found {text!r}")
        return seconds


def read_arguments(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a tool: those given as JSON, and the texts of the others.

    `key=value` is a text, `key=@@x` the text `@x`, `key=@FILE` the text of a file, `key=-` stdin, `key:=JSON` is JSON, also
    `key:=@FILE` and `key:=-`. A JSON object has all arguments, also as `@FILE` or `-`.

    Raises:
        WrongUsage: a word has none of these forms, or a file cannot be read.
    """
    given: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for word in words:
        if word.startswith(("{", "@")) or word == "-":
            given |= _json_object(word)
            continue
        key, equals, text = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise WrongUsage(f"{word[:60]!r} should be key=value, or a JSON object")
        if key.endswith(":"):
            given[key[:-1]] = _json(key[:-1], text)
        else:
            _add(texts, key, _text(key, text))
    return given, texts


def _add(texts: dict[str, Any], key: str, text: str) -> None:
    if key not in texts:
        texts[key] = text
    elif isinstance(texts[key], list):
        texts[key].append(text)
    else:
        texts[key] = [texts[key], text]


def _text(key: str, text: str) -> str:
    if text == "-":
        return _read(key, "stdin", sys.stdin.buffer.read)
    if text.startswith("@@"):
        return text[1:]
    if not text.startswith("@"):
        # Bytes that are no UTF-8 came in as halves of surrogate pairs.
        return _read(key, "the command line", lambda: text.encode(errors="surrogateescape"))
    try:
        with open(text[1:], "rb") as file:
            return _read(key, text[1:], file.read)
    except OSError as error:
        raise WrongUsage(f"{key}: {text[1:]}: {error.strerror}") from None


def _read(key: str, source: str, read: Any) -> str:
    try:
        return read().decode()
    except UnicodeDecodeError:
        raise WrongUsage(f"{key}: {source} is no UTF-8") from None


def _json(key: str, text: str) -> Any:
    document = _text(key, text) if text.startswith("@") or text == "-" else text
    try:
        return json.loads(document)
    except (ValueError, RecursionError) as error:
        quoting = ""
        if document is text and '"' not in text and text.startswith(("{", "[")):
            quoting = "; if your shell took the quotes away, as PowerShell does, write key=value, or @FILE or - for stdin"
        raise WrongUsage(f"{key}: is no JSON ({error}){quoting}") from None


def _json_object(word: str) -> dict[str, Any]:
    arguments = _json("the arguments", word)
    if not isinstance(arguments, dict):
        raise WrongUsage(f"{word[:60]!r} should hold a JSON object with the arguments")
    return arguments  # pyright: ignore[reportUnknownVariableType]
