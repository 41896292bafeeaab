"""The argparse parser of the command line. Imports nothing heavy, so that `--help` and `--version` answer at once."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, cast

from .exit_codes import EXIT_CODES, USAGE
from .flags import CHOOSING, FORCE, JSON_FLAG, MOVES, SESSIONS, Flag, positive, version

KINDS = ("call", "transition", "message", "compacted")
STATUSES = ("creating", "idle", "active", "paused", "error", "closing", "closed")

_EPILOG = "exit codes:\n" + "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())

GLOBAL_FLAGS: list[Flag] = [
    (("--config",), {"metavar": "FILE", "help": "settings in TOML (docs/configuration.md)"}),
    (
        ("--services",),
        {"metavar": "FILE", "help": "services: any client's mcpServers JSON, unchanged"},
    ),
    (("--data",), {"metavar": "DIR", "help": "folder of everything that is kept"}),
    (("--ephemeral",), {"action": "store_true", "help": "keep everything in memory only"}),
    (
        ("--session",),
        {"metavar": "NAME", "help": "serve one session: no tool has a session_id argument"},
    ),
    (
        ("--auto-session",),
        {"action": "store_true", "help": "give older clients a session per connection"},
    ),
    (
        ("--toolsets",),
        {"metavar": "A,B", "help": "core, lifecycle, state, history, branch, admin"},
    ),
    (("--host",), {"metavar": "ADDRESS", "help": "address to listen on (serve)"}),
    (("--port",), {"metavar": "PORT", "help": "port to listen on, 0 for any (serve)"}),
    (("--token-file",), {"metavar": "FILE", "help": "static bearer tokens (serve)"}),
    (
        ("--session-header",),
        {
            "action": "store_true",
            "help": "have clients repeat session_id as the header Mcp-Param-Session-Id, for a proxy to route by (serve)",
        },
    ),
    (
        ("--log-level",),
        {"metavar": "LEVEL", "help": "debug, info, warning or error"},
    ),
    (("--log-format",), {"metavar": "FORMAT", "help": "text or json"}),
]
"""Accepted before and after the command. Their values are checked with the other settings."""


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line, with the most similar valid word."""

    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if message.startswith(prefix):
            word = message.removeprefix(prefix).split()[0].split("=")[0]
            message = f"there is no {word} here"
        elif choice:
            choices = [word.strip(" '") for word in choice[2].split(",")]
            message = f"there is no {choice[1]!r}{_hint(choice[1], choices)} ({', '.join(choices)})"
        self.complain(message)

    def options(self) -> list[str]:
        return list(self._option_string_actions)

    def children(self) -> dict[str, Parser]:
        """Return the parsers of its commands, by name."""
        found: dict[str, Parser] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
                found.update(cast("dict[str, Parser]", action.choices))  # pyright: ignore[reportUnknownMemberType]
        return found

    def arguments(self) -> list[argparse.Action]:
        """Return its own arguments, without those that every command has."""
        common = {names[0] for names, _ in GLOBAL_FLAGS} | {"-h"}
        return [
            action
            for action in self._actions
            if not common & set(action.option_strings) and action.nargs != argparse.PARSER
        ]

    def complain(self, message: str) -> NoReturn:
        sys.stderr.write(f"statehold: {' '.join(message.split())}; see {self.prog} --help\n")
        raise SystemExit(USAGE)


def walk(parser: Parser) -> Iterator[Parser]:
    """Yield a parser and those of all its commands, in order."""
    yield parser
    for child in parser.children().values():
        yield from walk(child)


def _hint(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.7)
    return f", did you mean {near[0]}?" if near else ""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read a command line. Ends with SystemExit after --help and after a mistake, which it explains in one line."""
    parser = build_parser()
    known = {option for command in walk(parser) for option in command.options()}
    for word in sys.argv[1:] if argv is None else argv:
        if word == "--":
            break
        name = word.split("=")[0]
        # argparse would first take the value behind an unknown option for a command, and complain about that.
        if name.startswith("--") and name not in known:
            parser.complain(f"there is no option {name}{_hint(name, known)}")
    return parser.parse_args(argv)


def build_parser() -> Parser:
    """Return the whole parser. `command` and, for groups, `action` hold the chosen command."""
    parser = _command(
        None,
        "statehold",
        "Sessions for MCP servers. Without a command: serve MCP on stdin and stdout.",
        "statehold --services ~/.cursor/mcp.json --session work",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _command(
        commands,
        "serve",
        "Serve MCP over HTTP: /mcp, /sse, /s/SESSION/mcp, /health and /livez.",
        "statehold serve --config statehold.toml --port 8931",
    )
    _add_sessions(commands)
    _add_services(commands)
    _command(
        commands,
        "backup",
        "Copy the database into a new file, also while Statehold runs.",
        "statehold backup ~/statehold-monday.db",
        [(("file",), {"metavar": "FILE", "help": "the copy; there must be none yet"}), JSON_FLAG],
    )
    _command(
        commands,
        "doctor",
        "Say what is installed, what is missing and what is wrong, and how to fix it.",
        "statehold doctor --config statehold.toml",
        [
            (
                ("--install",),
                {"action": "store_true", "help": "install the browser that is missing"},
            ),
            JSON_FLAG,
        ],
    )
    _command(
        commands,
        "demo",
        "A tour of one minute: two sessions of a real server, isolation, pause, crash and recovery.",
        "statehold demo",
    )
    return parser


def _add_sessions(commands: Any) -> None:
    group = _command(
        commands,
        "sessions",
        "See and change the sessions of a data folder, also while Statehold runs.",
        "statehold sessions list",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _command(
        actions,
        "list",
        "List the open sessions, the one used last first.",
        "statehold sessions list --status paused --json",
        [
            (("--all",), {"action": "store_true", "help": "also those that are closed"}),
            (
                ("--status",),
                {
                    "action": "append",
                    "choices": STATUSES,
                    "help": "only this one; may be given again",
                },
            ),
            (("--owner",), {"metavar": "OWNER", "help": "only those of one owner"}),
            *CHOOSING,
            (
                ("--limit",),
                {"type": positive, "default": 1000, "metavar": "N", "help": "at most N (1000)"},
            ),
            JSON_FLAG,
        ],
    )
    _command(
        actions,
        "show",
        "Show one session: its clocks, its services and what happened last.",
        "statehold sessions show work --last 20",
        [
            (("wanted",), {"metavar": "SESSION", "help": "id or name of a session"}),
            (
                ("--last",),
                {"type": positive, "default": 10, "metavar": "N", "help": "journal entries (10)"},
            ),
            JSON_FLAG,
        ],
    )
    _add_history(actions)
    every: Flag = (("--closed",), {"action": "store_true", "help": "every session that is closed"})
    for name, text, example, flags in (
        ("close", "Close sessions.", "close work --force", [SESSIONS, FORCE, JSON_FLAG]),
        ("pause", "Pause sessions until their next call.", "pause work", [SESSIONS, JSON_FLAG]),
        ("resume", "Resume paused sessions.", "resume work", [SESSIONS, JSON_FLAG]),
        (
            "purge",
            "Delete everything of closed sessions: state, journal and snapshots.",
            "purge --closed",
            [(SESSIONS[0], {**SESSIONS[1], "nargs": "*"}), every, JSON_FLAG],
        ),
    ):
        _command(actions, name, text, f"statehold sessions {example}", flags)
    for name, text, example, flags in MOVES:
        _command(actions, name, text, f"statehold sessions {example}", flags)
    _command(
        actions,
        "screenshot",
        "Take a picture of the page that a session shows, without its caller noticing.",
        "statehold sessions screenshot work page.png",
        [
            (("wanted",), {"metavar": "SESSION", "help": "id or name of a session"}),
            (("file",), {"metavar": "FILE", "help": "where to put it: .png, .jpg or .webp"}),
            (
                ("--full-page",),
                {"action": "store_true", "help": "the whole page, not only what is in view"},
            ),
            JSON_FLAG,
        ],
    )
    _command(
        actions,
        "state",
        "Show the state that a session carries, or change it.",
        "statehold sessions state work --path /cart --merge '{\"paid\":true}'",
        [
            (("wanted",), {"metavar": "SESSION", "help": "id or name of a session"}),
            (
                ("--path",),
                {
                    "default": "",
                    "metavar": "POINTER",
                    "help": "a place in it, such as /cart/items/0",
                },
            ),
            (("--set",), {"metavar": "JSON", "help": "replace what is there"}),
            (
                ("--merge",),
                {"metavar": "JSON", "help": "merge into what is there: null deletes"},
            ),
            (
                ("--if-version",),
                {
                    "type": version,
                    "metavar": "N",
                    "help": "change it only when it has this version",
                },
            ),
            JSON_FLAG,
        ],
    )
    _command(
        actions,
        "open",
        "Open the browser of a session in a window, and give it back when the window is closed.",
        "statehold sessions open work",
        [
            (("wanted",), {"metavar": "SESSION", "help": "id or name of a session"}),
            (
                ("--force",),
                {"action": "store_true", "help": "also when other services lose what they keep"},
            ),
            JSON_FLAG,
        ],
    )


def _add_history(actions: Any) -> None:
    session: Flag = (("wanted",), {"metavar": "SESSION", "help": "id or name of a session"})

    def several(name: str, text: str, **more: Any) -> Flag:
        return ((name,), {"action": "append", "help": f"{text}; may be given again", **more})

    _command(
        actions,
        "history",
        "Show what was done and said in a session, the newest last.",
        "statehold sessions history work --kind call --last 20",
        [
            session,
            (
                ("--last",),
                {"type": positive, "default": 50, "metavar": "N", "help": "entries (50)"},
            ),
            several("--kind", "only entries of this kind", choices=KINDS),
            several("--tool", "only calls of this tool", metavar="TOOL"),
            several("--status", "only entries of this status", metavar="STATUS"),
            several("--run", "only entries of this run", metavar="RUN"),
            (
                ("--last-runs",),
                {"type": positive, "metavar": "N", "help": "only entries of the last N runs"},
            ),
            several("--role", "only messages of this role", metavar="ROLE"),
            several("--skip-role", "no messages of this role", metavar="ROLE"),
            (
                ("--cursor",),
                {"metavar": "CURSOR", "help": "go on where a page ended: older entries"},
            ),
            JSON_FLAG,
        ],
    )
    _command(
        actions,
        "summary",
        "Sum up a session: what its caller wrote of it, and what the history holds.",
        "statehold sessions summary work",
        [session, JSON_FLAG],
    )


def _add_services(commands: Any) -> None:
    group = _command(
        commands,
        "services",
        "See and try the configured services.",
        "statehold services list --services ~/.cursor/mcp.json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _command(
        actions,
        "list",
        "List the services as configured, without their secrets.",
        "statehold services list",
        [JSON_FLAG],
    )
    _command(
        actions,
        "check",
        "Start each service once and count its tools.",
        "statehold services check playwright",
        [
            (
                ("wanted",),
                {"nargs": "*", "metavar": "SERVICE", "help": "only these (all enabled ones)"},
            ),
            JSON_FLAG,
        ],
    )


def _command(
    commands: Any, name: str, text: str, example: str, flags: Sequence[Flag] = ()
) -> Parser:
    options: dict[str, Any] = {
        "description": text,
        "epilog": f"example:\n  {example}\n\n{_EPILOG}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    if commands is None:
        parser = Parser(prog=name, **options)
    else:
        parser: Parser = commands.add_parser(name, help=text, **options)
    for names, details in flags:
        parser.add_argument(*names, **details)
    settings = parser.add_argument_group("settings")
    for names, details in GLOBAL_FLAGS:
        # Suppressed, so that the default after a command does not undo a flag before it.
        settings.add_argument(*names, default=argparse.SUPPRESS, **details)
    return parser
