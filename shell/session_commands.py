"""The commands below `statehold sessions`, with their arguments and options. Imports nothing heavy."""

from __future__ import annotations

from typing import Any, Final

import click

from .parser import Command, Number, Word

KINDS: Final = ("call", "transition", "message", "state", "run", "control", "compacted")
RIGHTS: Final = ("view", "use")
POLICIES: Final = ("last_wins", "first_wins", "fail")
SYSTEMS: Final = ("agentscope", "agno")
"""Systems whose sessions can be imported."""
# As in sessions/lifecycle.py, whose import would cost time at every start.
STATUSES: Final = ("creating", "idle", "active", "paused", "error", "closing", "closed")

JSON_OPTION: Final = click.Option(["--json"], is_flag=True, help="print one JSON document")
_SESSION_OPTIONS: Final[dict[str, Any]] = {"metavar": "SESSION", "help": "id or name of a session"}
# Not "session", which is the destination of the setting --session.
_SESSION: Final = click.Argument(["ref"], **_SESSION_OPTIONS)
_SESSIONS: Final = click.Argument(["refs"], nargs=-1, required=True, **_SESSION_OPTIONS)
_ANY_SESSIONS: Final = click.Argument(["refs"], nargs=-1, **_SESSION_OPTIONS)


def session_commands() -> list[click.Command]:
    """Return the commands in the order of the help."""
    return [
        *_read_commands(),
        *_lifecycle_commands(),
        *_sharing_commands(),
        *_copy_commands(),
        *_browser_commands(),
        _state_command(),
    ]


def _flag(name: str, text: str) -> click.Option:
    return click.Option([name], is_flag=True, help=text)


def _text(name: str, metavar: str, text: str) -> click.Option:
    return click.Option([name], metavar=metavar, help=text)


def _several(name: str, text: str, **more: Any) -> click.Option:
    return click.Option([name], multiple=True, help=f"{text}; may be given again", **more)


def _number(name: str, text: str, default: int | None = None, *, least: int = 1) -> click.Option:
    return click.Option([name], type=Number(least), default=default, metavar="N", help=text)


_FORCE: Final = _flag("--force", "do not wait for running calls")


def _read_commands() -> list[click.Command]:
    labels = [
        _text(f"--{label}", "ID", f"only those with this {label}_id")
        for label in ("user", "agent", "team", "workflow")
    ]
    return [
        Command(
            "list",
            "List the open sessions, the one used last first.",
            "statehold sessions list --status paused --json",
            _flag("--all", "also those that are closed"),
            _several("--status", "only this one", type=Word(STATUSES)),
            _text("--owner", "OWNER", "only those of one owner"),
            _text("--name", "TEXT", "only those whose name begins so"),
            *labels,
            _text("--metadata", "JSON", "only those whose metadata has what this object has"),
            _text("--since", "TIME", "only those used since, in ISO 8601"),
            _text("--query", "TEXT", "only those with this text in what was said of them"),
            _number("--limit", "at most N (1000)", 1000),
            JSON_OPTION,
        ),
        Command(
            "show",
            "Show one session: its clocks, its services and what happened last.",
            "statehold sessions show work --last 20",
            _SESSION,
            _number("--last", "journal entries (10)", 10),
            JSON_OPTION,
        ),
        Command(
            "history",
            "Show what was done and said in a session, the newest last.",
            "statehold sessions history work --kind call --last 20",
            _SESSION,
            _number("--last", "entries (50)", 50),
            _several("--kind", "only entries of this kind", type=Word(KINDS)),
            _several("--tool", "only calls of this tool", metavar="TOOL"),
            _several("--status", "only entries of this status", metavar="STATUS"),
            _several("--run", "only entries of this run", metavar="RUN"),
            _number("--last-runs", "only entries of the last N runs"),
            _several("--role", "only messages of this role", metavar="ROLE"),
            _several("--skip-role", "no messages of this role", metavar="ROLE"),
            _text("--cursor", "CURSOR", "go on where a page ended: older entries"),
            JSON_OPTION,
        ),
        Command(
            "test",
            "Write a test for pytest of what was done in a session.",
            "statehold sessions test work --param email=ada@example.org -o test_work.py",
            _SESSION,
            _text("--run", "RUN", "only the steps of this run"),
            click.Option(
                ["--from", "first"],
                type=Number(1),
                metavar="N",
                help="from this entry of its history on",
            ),
            click.Option(["--to", "last"], type=Number(1), metavar="N", help="up to this entry"),
            _several("--param", "make a value a parameter of the test", metavar="NAME=VALUE"),
            click.Option(
                ["-o", "output"], metavar="FILE", help="where to put it, a new file (stdout)"
            ),
            JSON_OPTION,
        ),
        Command(
            "summary",
            "Sum up a session: what its caller wrote of it, and what the history holds.",
            "statehold sessions summary work",
            _SESSION,
            JSON_OPTION,
        ),
    ]


def _lifecycle_commands() -> list[click.Command]:
    return [
        Command(
            "close",
            "Close sessions.",
            "statehold sessions close work --force",
            _SESSIONS,
            _FORCE,
            JSON_OPTION,
        ),
        Command(
            "pause",
            "Pause sessions until their next call.",
            "statehold sessions pause work",
            _SESSIONS,
            JSON_OPTION,
        ),
        Command(
            "resume",
            "Resume paused sessions.",
            "statehold sessions resume work",
            _SESSIONS,
            JSON_OPTION,
        ),
        Command(
            "purge",
            "Delete everything of closed sessions, or of sessions that nobody uses: state, journal and snapshots.",
            "statehold sessions purge --unused-for 30d",
            _ANY_SESSIONS,
            _flag("--closed", "every session that is closed"),
            _text(
                "--unused-for",
                "TIME",
                "every session that was not used for so long, such as 30d or 12h; open ones are closed",
            ),
            JSON_OPTION,
        ),
        Command(
            "delete",
            "Close sessions that are open, and delete everything of them.",
            "statehold sessions delete work --force",
            _SESSIONS,
            _FORCE,
            JSON_OPTION,
        ),
        Command(
            "rename",
            "Give a session another name, or other metadata.",
            "statehold sessions rename work play",
            _SESSION,
            click.Argument(["name"], required=False, metavar="NAME", help="the new name"),
            _flag("--unname", "take its name away"),
            _text("--metadata", "JSON", "merge this object into its metadata: null deletes"),
            JSON_OPTION,
        ),
    ]


def _sharing_commands() -> list[click.Command]:
    grantee = [
        click.Option(
            ["--with", "subject"], metavar="SUBJECT", help="a user, as its issuer names it"
        ),
        _text("--group", "GROUP", "the members of a group, as their issuer names it"),
        _text("--issuer", "ISSUER", "who names that user or group (that of the session's owner)"),
    ]
    return [
        Command(
            "share",
            "Let another user or a group view or use a session by its id.",
            "statehold sessions share work --with ben --rights use --for 8h",
            _SESSION,
            *grantee,
            click.Option(
                ["--rights"],
                type=Word(RIGHTS),
                default=RIGHTS[0],
                help="view: read it; use: also call its tools (view)",
            ),
            click.Option(
                ["--for", "seconds"],
                default="8h",
                metavar="TIME",
                help="how long, such as 30min or 7d (8h)",
            ),
            JSON_OPTION,
        ),
        Command(
            "unshare",
            "End a share of a session.",
            "statehold sessions unshare work --with ben",
            _SESSION,
            *grantee,
            JSON_OPTION,
        ),
    ]


def _copy_commands() -> list[click.Command]:
    return [
        Command(
            "fork",
            "Make children of a session, from its state and from what its services can save.",
            "statehold sessions fork work --count 2 --name left --name right",
            _SESSION,
            _number("--count", "how many (1, or one for each name)"),
            _several("--name", "of a child", metavar="NAME"),
            JSON_OPTION,
        ),
        Command(
            "merge",
            "Bring into the state of a session what its children changed in theirs.",
            "statehold sessions merge work left right --policy first_wins",
            _SESSION,
            click.Argument(
                ["sources"],
                nargs=-1,
                required=True,
                metavar="CHILD",
                help="ids or names, in the order that counts",
            ),
            click.Option(
                ["--policy"],
                type=Word(POLICIES),
                default=POLICIES[0],
                help="what holds where they disagree (last_wins)",
            ),
            JSON_OPTION,
        ),
        Command(
            "export",
            "Write all that is kept of a session into a file, as one JSON document.",
            "statehold sessions export work work.json --secrets",
            click.Argument(["ref"], required=False, **_SESSION_OPTIONS),
            click.Argument(
                ["file"],
                required=False,
                default="-",
                metavar="FILE",
                help="where to put it (- for stdout)",
            ),
            click.Option(["-o", "output"], metavar="FILE", help="the same as FILE"),
            _flag("--secrets", "also what its services saved (logins), and what looks secret"),
            click.Option(
                ["--all", "folder"],
                metavar="FOLDER",
                help="all open sessions, a file for each; import reads the folder, also in a newer version",
            ),
            _text("--owner", "OWNER", "with --all: whose sessions (local)"),
            _flag("--force", "replace a file that is there"),
            JSON_OPTION,
        ),
        Command(
            "import",
            "Make a new session, paused, of each document that export wrote, or of each session of another system.",
            "statehold sessions import work.json --name again",
            click.Argument(
                ["file"],
                metavar="FILE",
                help="the document, - for stdin, or a folder of them; a folder of agentscope's JSONSession, a database of "
                "its SqliteSession or of agno's SqliteDb",
            ),
            click.Option(
                ["--from", "source"],
                type=Word(SYSTEMS),
                help="the other system; its sessions are imported once, however often this runs",
            ),
            _flag("--users", "agentscope: file names begin with a user's id and an underscore"),
            _several("--user", "agentscope: such a user, also with underscores", metavar="ID"),
            _flag("--update", "import again what has changed there and was not used here"),
            _text("--name", "NAME", "another name than the one in it"),
            _text("--owner", "OWNER", "whose it is to be (local)"),
            _flag("--lenient", "leave out what is not possible here, such as unknown services"),
            JSON_OPTION,
        ),
    ]


def _browser_commands() -> list[click.Command]:
    return [
        Command(
            "screenshot",
            "Take a picture of the page that a session shows, without its caller noticing.",
            "statehold sessions screenshot work page.png",
            _SESSION,
            click.Argument(["file"], metavar="FILE", help="where to put it: .png, .jpg or .webp"),
            _flag("--full-page", "the whole page, not only what is in view"),
            JSON_OPTION,
        ),
        Command(
            "open",
            "Take control of a session in the console, until you press Done there, or a minute after you close the page.",
            "statehold sessions open work",
            _SESSION,
            _flag(
                "--url-only",
                "print the address, which works once and for two minutes, instead of opening it",
            ),
            JSON_OPTION,
        ),
    ]


def _state_command() -> click.Command:
    return Command(
        "state",
        "Show the state that a session carries, or change it.",
        "statehold sessions state work --path /cart --merge '{\"paid\":true}'",
        _SESSION,
        click.Option(
            ["--path"],
            default="",
            metavar="POINTER",
            help="a place in it, such as /cart/items/0",
        ),
        _text("--set", "JSON", "replace what is there"),
        _text("--merge", "JSON", "merge into what is there: null deletes"),
        _number("--if-version", "change it only when it has this version", least=0),
        JSON_OPTION,
    )
