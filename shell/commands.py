"""The commands of `statehold`, with their arguments and options, and the table of them in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from ..server.exit_codes import EXIT_CODES
from . import command_line
from .call import words
from .call.tool_commands import tool_commands
from .command_line import CommandLine
from .parser import Command, Group, ParserSetting, Word, options, parse, walk
from .principals.principal_commands import principals_group
from .session_commands import JSON_OPTION, session_commands

SETTINGS: Final = options(command_line.SETTINGS, ParserSetting)
CLIENT_NAMES: Final = (
    *("claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "devin-desktop"),
    *("codex", "gemini-cli", "zed", "cline", "goose", "opencode"),
)
"""The clients of `statehold setup`; setup/clients.py has them, which takes too long to import for `--help`."""


def build_commands() -> Group:
    """Return `statehold` with all its commands."""
    root = Group(
        "statehold",
        "Sessions for MCP servers. Without a command: serve MCP on stdin and stdout.",
        "statehold --services ~/.cursor/mcp.json --session work",
        click.Option(["--version"], is_flag=True, help="print the version and exit"),
        commands=[
            Command(
                "serve",
                "Serve MCP over HTTP: /mcp, /sse, /s/SESSION/mcp, /health, /livez and /readyz.",
                "statehold serve --config statehold.toml --port 8931",
            ),
            Command(
                "status",
                "Show the server that commands and clients use, what else runs for the data folder, and the processes that "
                "the keeper holds.",
                "statehold status",
                JSON_OPTION,
            ),
            Command(
                "top",
                "Watch the sessions live: calls, memory, questions. Ctrl-C ends it.",
                "statehold top",
                *options(words.REMOTE),
            ),
            Command(
                "console",
                "Open the web console of the server that runs for the data folder: a login that is good for two minutes and "
                "one browser.",
                "statehold console",
                click.Option(
                    ["--url-only"], is_flag=True, help="print the address instead of opening it"
                ),
                JSON_OPTION,
            ),
            Command(
                "stop",
                "End the servers of the data folder, the background server and `statehold serve`: their sessions are "
                "paused, and the next client or command starts a background server.",
                "statehold stop",
                click.Option(
                    ["--all"],
                    is_flag=True,
                    help="also end the processes that the keeper holds for no server, and the keeper",
                ),
            ),
            *tool_commands(),
            Group(
                "sessions",
                "See and change the sessions of a data folder, also while Statehold runs.",
                "statehold sessions list",
                commands=session_commands(),
            ),
            _services(),
            _logins(),
            _approvals(),
            _nodes(),
            _tokens(),
            principals_group(),
            _audit(),
            Command(
                "backup",
                "Copy the database into a new file, also while Statehold runs.",
                "statehold backup ~/statehold-monday.db",
                click.Argument(["file"], metavar="FILE", help="the copy; there must be none yet"),
                JSON_OPTION,
            ),
            Command(
                "doctor",
                "Say what is installed, what is missing and what is wrong, and how to fix it.",
                "statehold doctor --config statehold.toml",
                click.Option(
                    ["--install"], is_flag=True, help="install the browser that is missing"
                ),
                click.Option(
                    ["--assurance"],
                    type=click.Choice(["L1", "L2", "L3"]),
                    help="look at the controls of a level of CoSAI's MCP Security instead",
                ),
                JSON_OPTION,
            ),
            _setup(),
            Command(
                "demo",
                "A tour of 20 seconds that ends at the console: a login outlives kill -9, a crash is told, a pause saved.",
                "statehold demo",
            ),
        ],
        has_default=True,
    )
    for _, command in walk(root):
        own = {param.name for param in command.params}
        command.params += [setting for setting in SETTINGS if setting.name not in own]
    return root


def _setup() -> Command:
    def flag(name: str, text: str, *short: str) -> click.Option:
        return click.Option([name, *short], is_flag=True, help=text)

    return Command(
        "setup",
        "Put Statehold into the files of the clients on this machine, after it showed the change; try it out.",
        "statehold setup --client cursor",
        click.Option(
            ["--client"],
            multiple=True,
            type=Word(CLIENT_NAMES),
            help="only this one; may be repeated (all that are found)",
        ),
        flag("--move-servers", "also put the servers of these clients behind Statehold"),
        flag("--remove", "take Statehold out again, and put the servers back"),
        flag("--dry-run", "show the change only"),
        flag("--yes", "ask nothing: write the change, and install a missing browser", "-y"),
    )


def _services() -> Group:
    return Group(
        "services",
        "See and try the configured services.",
        "statehold services list --services ~/.cursor/mcp.json",
        commands=[
            Command(
                "list",
                "List the services as configured, without their secrets.",
                "statehold services list",
                JSON_OPTION,
            ),
            Command(
                "check",
                "Start each service, count its tools, and say what two sessions of it share.",
                "statehold services check playwright",
                click.Argument(
                    ["names"],
                    nargs=-1,
                    metavar="SERVICE",
                    help="only these (all enabled ones)",
                ),
                JSON_OPTION,
            ),
            Command(
                "accept",
                "Show what a service has changed in its tools, prompts and pages, word by word, and accept it.",
                "statehold services accept tracker",
                click.Argument(["service"], metavar="SERVICE", help="the service"),
                click.Option(["--yes", "-y"], is_flag=True, help="ask nothing: accept all changes"),
                JSON_OPTION,
            ),
        ],
    )


def _approvals() -> Group:
    wanted = click.Argument(
        ["id"], metavar="ID", help="the request, as the error or the list has it"
    )
    return Group(
        "approvals",
        "See the calls that wait for a person, and approve or refuse them.",
        "statehold approvals list",
        commands=[
            Command(
                "list",
                "List the calls that wait, and what is approved for longer.",
                "statehold approvals list",
                JSON_OPTION,
            ),
            Command(
                "approve",
                "Show a call and approve it, once and within five minutes.",
                "statehold approvals approve apr_T0ken",
                wanted,
                click.Option(
                    ["--always"], is_flag=True, help="approve all calls of the tool in the session"
                ),
                click.Option(["--yes"], is_flag=True, help="approve without a question"),
            ),
            Command(
                "refuse",
                "Refuse a call, or end what is approved for longer.",
                "statehold approvals refuse apr_T0ken",
                wanted,
            ),
        ],
    )


def _logins() -> Group:
    name = click.Argument(
        ["name"],
        metavar="NAME",
        help="the service or login, as the configuration has it, or the key",
    )
    owner = [
        click.Option(
            ["--subject"], metavar="SUBJECT", help="the principal whose it is (the local user)"
        ),
        click.Option(["--issuer"], metavar="ISSUER", help="the issuer of the subject"),
    ]
    return Group(
        "logins",
        "Log in at services that ask for OAuth and at websites, and store keys. Logins are used, and never shown.",
        "statehold logins list",
        commands=[
            Command(
                "add",
                "Log in at a service in your browser, or at a website in the console, or store a key for `${login:NAME}`.",
                "statehold logins add tracker",
                name,
                *owner,
                click.Option(
                    ["--key"], is_flag=True, help="store the key that is typed, or given as stdin"
                ),
                click.Option(["--scope"], metavar="TEXT", help="scopes to ask for, in one word"),
                click.Option(
                    ["--url-only"], is_flag=True, help="print the address instead of opening it"
                ),
            ),
            Command(
                "list",
                "List the logins, with those whose person has to log in again.",
                "statehold logins list",
                JSON_OPTION,
            ),
            Command(
                "revoke",
                "End a login, here within a second and then at its authorization server.",
                "statehold logins revoke tracker",
                name,
                *owner,
            ),
            Command(
                "show",
                "Show a login: its state, the session that has it, and its last use; never its value.",
                "statehold logins show tracker",
                name,
                *owner,
                JSON_OPTION,
            ),
            Command(
                "import",
                "Store a login of the built-in browser from a storage state, as Playwright writes it.",
                "statehold logins import shop state.json",
                name,
                click.Argument(["file"], metavar="FILE", help="the storage state"),
                *owner,
            ),
            Command(
                "lend",
                "Lend a login of the built-in browser to a session.",
                "statehold logins lend shop cart",
                name,
                click.Argument(["ref"], metavar="SESSION", help="id or name of the session"),
            ),
            Command(
                "take-back",
                "Have the session that has a login of the built-in browser give it back.",
                "statehold logins take-back shop",
                name,
                *owner,
            ),
            Command(
                "check",
                "Have the server check now whether a login of the built-in browser is valid, and renew it if it is not.",
                "statehold logins check shop",
                name,
                *owner,
            ),
            Command(
                "forget",
                "Forget a login; sessions use it for a second at most.",
                "statehold logins forget tracker",
                name,
                *owner,
            ),
        ],
    )


def _nodes() -> Group:
    node = click.Argument(["node"], metavar="NODE", help="the id, as `statehold nodes list` shows")
    return Group(
        "nodes",
        "See and change the processes of a store, with [cluster] also those on other machines.",
        "statehold nodes list",
        commands=[
            Command(
                "list",
                "List the processes that are not dead, with their sessions at their last heartbeat.",
                "statehold nodes list",
                JSON_OPTION,
            ),
            Command(
                "drain",
                "Have a node give up its sessions and take on none; it passes requests on until it is stopped.",
                "statehold nodes drain n_0123456789abcdef",
                node,
            ),
            Command(
                "remove",
                "Declare a node dead that is gone for good, and pause its sessions.",
                "statehold nodes remove n_0123456789abcdef",
                node,
                click.Option(
                    ["--force"], is_flag=True, help="also when its lease is valid: it may live"
                ),
            ),
        ],
    )


def _tokens() -> Group:
    return Group(
        "tokens",
        "Make and remove the bearer tokens of callers: digests in the file of server.tokens.",
        "statehold tokens list --token-file tokens.txt",
        commands=[
            Command(
                "add",
                "Make a token, print it once, and add its digest to the file. A running server knows it within a second.",
                "statehold tokens add ada --expires 90d --token-file tokens.txt",
                click.Argument(["subject"], metavar="SUBJECT", help="the caller"),
                click.Option(
                    ["--expires"],
                    metavar="TIME",
                    help="90d, 12h, or a date or time in UTC such as 2027-01-31; without, it stays valid",
                ),
                click.Option(["--issuer"], metavar="ISSUER", help="the issuer of the subject"),
                click.Option(["--client-id"], metavar="ID", help="the program of the caller"),
                click.Option(
                    ["--role"],
                    type=click.Choice(["user", "operator", "admin"]),
                    help="an operator sees and closes sessions of others without their content",
                ),
                click.Option(["--name"], metavar="NAME", help="a note, such as the machine"),
                JSON_OPTION,
            ),
            Command(
                "list",
                "List the tokens with the beginning of their digest, subject and expiry.",
                "statehold tokens list",
                JSON_OPTION,
            ),
            Command(
                "remove",
                "Remove a token. A running server refuses it within a second, and ends its streams.",
                "statehold tokens remove 3f1d0c6e9a7b",
                click.Argument(["id"], metavar="ID", help="as `statehold tokens list` shows it"),
                JSON_OPTION,
            ),
        ],
    )


def parse_command_line(line: Sequence[str]) -> CommandLine:
    """Read a command line. Ends with SystemExit after --help and after a mistake, which it explains in one line."""
    return parse(build_commands(), line)


def _audit() -> Group:
    return Group(
        "audit",
        'Read the audit log, which `audit = "on"` begins: who asked for what, what was decided, how it ended.',
        "statehold audit tail",
        commands=[
            Command(
                "tail",
                "Show the last entries.",
                "statehold audit tail --last 20 --follow",
                click.Option(
                    ["--last"],
                    type=click.IntRange(1, 10_000),
                    default=20,
                    metavar="N",
                    help="that many (20)",
                ),
                click.Option(["--follow"], is_flag=True, help="go on with new ones until Ctrl-C"),
                JSON_OPTION,
            ),
            Command(
                "export",
                "Write the entries, one JSON object a line.",
                "statehold audit export --format ocsf",
                click.Option(
                    ["--format"],
                    type=click.Choice(["jsonl", "ocsf"]),
                    default="jsonl",
                    help="as they are, or as events of the Open Cybersecurity Schema Framework",
                ),
                click.Option(
                    ["--after"],
                    type=click.IntRange(0),
                    default=0,
                    metavar="N",
                    help="only those after this position",
                ),
            ),
            Command(
                "verify",
                "Check that no entry was changed, removed or moved, and print the end of the chain.",
                "statehold audit verify",
                click.Option(
                    ["--head"],
                    metavar="N:HASH",
                    help="an end that was printed earlier, and kept elsewhere: it has to be in the chain",
                ),
                JSON_OPTION,
            ),
        ],
    )


def markdown() -> str:
    """Return the tables of commands and exit codes as docs/reference/cli.md holds them."""
    commands = [
        (f"`{path}`", command.help or "")
        for path, command in walk(build_commands())
        if not (isinstance(command, Group) and not command.has_default)
    ]
    codes = [(f"`{code}`", text) for code, text in EXIT_CODES.items()]
    tables = [
        _table(["command", "effect"], commands),
        "### Exit codes",
        _table(["code", "meaning"], codes),
    ]
    return "\n\n".join(tables) + "\n"


def _table(head: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
