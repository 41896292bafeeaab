"""`statehold setup`: finds the clients of this machine, shows the change of their files, and writes it after a yes."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ...server.config.data_folder import CONFIG_VARIABLE, DATA_VARIABLE, SERVICES_VARIABLE
from ...server.config.load import load_for
from ...server.config.model import Config
from ...server.exit_codes import FAILURE, INTERRUPTED, OK, USAGE
from ...server.printing import complain, is_terminal
from ...server.shared.folder import SharedFolder
from ...server.sockets.command import VERB
from ...server.sockets.processes import read_processes
from ...server.sockets.request import Refused
from ...sessions.json_codec import JSON
from ...sessions.one_line import one_line, plural
from ..doctor.browser import install_missing
from ..output import as_typed, colour, confirm, say
from ..parser import CommandLine
from ..shared import start_and_send
from ..status import stop
from .client_file import ClientText, EditableFile, FileChange, Unwritable, copy_of, write
from .clients import ENTRY, KnownClient, known_clients
from .entry_command import exchange, program
from .moved_servers import MovedServers, movable

LOCK: Final = "setup.lock"
LOCK_SECONDS: Final = 10.0
SENTENCE: Final = (
    "With Statehold, create a session named work and open https://example.com in its browser."
)
Result = TypeVar("Result")
_HIDDEN: Final = "\u2026"
_HIDDEN_RUN: Final = re.compile(r"\u2026(?:[ \t]+\u2026)+")
_COLOURS: Final = {"+": "green", "-": "red"}
_PART: Final = re.compile(
    r"""("(?:\\.|[^"\\])*"(?=\s*[:=])|^[ \t]*[\w.-]+(?=[ \t]*[:=])|^[ \t]*\[\[?[\w.-]+\]\]?\s*$"""
    r"""|[{}\[\],=]|:(?=\s|$|[{\["])|\s+|\b(?:true|false|null)\b)|"(?:\\.|[^"\\])*"|'[^']*'|."""
)
"""Matches the parts of a line; those that are no values as group 1."""


def set_up(config: Config, arguments: CommandLine) -> int:
    """Run the command and return its exit code. Nothing is written before the yes."""
    if config.ephemeral:
        return complain("clients share the sessions of the data folder; leave out ephemeral", USAGE)
    try:
        setup = Setup(config, arguments)
        (setup.remove if arguments.remove else setup.add)()
    except Unwritable as error:
        return complain(str(error))
    except KeyboardInterrupt:
        say("")
        return INTERRUPTED
    return FAILURE if setup.problems else OK


class Setup:
    """One run of the command. `problems` counts what was left undone, with a line on stderr for each."""

    def __init__(self, config: Config, arguments: CommandLine) -> None:
        """Raises Unwritable if our file of services cannot be read."""
        self.problems = 0
        self._config = config
        self._arguments = arguments
        self._may_ask = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not arguments.yes
        self._given_services = self._given("services", SERVICES_VARIABLE)
        self._moved = MovedServers(config.data)
        found = [(client, client.find()) for client in known_clients(os.environ, Path.home())]
        if arguments.remove:
            found = [(client, path) for client, path in found if path and copy_of(path).exists()]
        files = [
            self._attempt(c, path, partial(EditableFile, c, path, self._moved.has))
            for c, path in found
            if path
        ]
        self._files = [file for file in files if file and self._is_chosen(file.client)]
        self._others = [file for file in files if file and not self._is_chosen(file.client)]
        self._changes: list[FileChange] = []
        self._results: dict[str, str] = {}

    def _is_chosen(self, client: KnownClient) -> bool:
        return not self._arguments.client or client.name in self._arguments.client

    def _attempt(
        self, client: KnownClient, path: Path, work: Callable[[], Result]
    ) -> Result | None:
        """Return the result of work on the file of a client; None if it fails, which holds up no other client."""
        try:
            return work()
        except (Unwritable, RuntimeError) as error:
            if self._is_chosen(client):
                self._complain(f"{client.title}: {path}: {error}")
            return None

    def _complain(self, text: str) -> None:
        self.problems += 1
        complain(one_line(text))

    def add(self) -> None:
        """Put Statehold into the files of the clients."""
        chosen = self._choose_servers()
        words = self._words()
        if not self._files and not self.problems:
            entry = {ENTRY: {"command": words[0], "args": words[1:]}}
            say(f"the entry for a client: {json.dumps({'mcpServers': entry})}")
            return self._complain("found no such client on this machine")
        for file in self._files:
            self._plan(file, partial(file.add, words, chosen[file.path]))
        if self._confirm() and self._changes:
            self._try_out()
        return None

    def remove(self) -> None:
        """Take Statehold out of the files of the clients, and put their servers back."""
        kept = [each for file in self._others for each in _settings_of_moved(file)]
        for file in self._files:
            back = [each for each in _settings_of_moved(file) if each not in kept]
            self._moved.remove(back, is_named=bool(self._others))
            self._plan(file, file.remove)
        if not self._changes:
            say("no file has an entry of setup")
        elif self._confirm():
            if self._moved.services and not kept:
                say(f"{self._moved.path} stays: it has other servers")
            say(
                f"start these clients again; `{as_typed('statehold stop')}` ends the background server"
            )

    def _plan(self, file: EditableFile, work: Callable[[], FileChange]) -> None:
        change = self._attempt(file.client, file.path, work)
        self._changes += [change] if change else []

    def _choose_servers(self) -> dict[Path, list[str]]:
        """Return the servers of each file that are to be behind Statehold; ask about those that are not yet."""
        servers = {file.path: self._movable(file) for file in self._files}
        new = {name for file in self._files for name in servers[file.path].keys() - {*file.moved}}
        is_wanted = bool(self._arguments.move_servers)
        if new and not is_wanted:
            say(f"These clients have other servers: {', '.join(sorted(new))}.")
            if self._may_ask and not self._arguments.dry_run:
                is_wanted = confirm("Put them behind Statehold, so that they keep their state too?")
            else:
                say("They stay there; --move-servers puts them behind Statehold.")
        chosen: dict[Path, list[str]] = {}
        for file in self._files:
            wanted = {**dict.fromkeys(file.moved), **(servers[file.path] if is_wanted else {})}
            chosen[file.path] = [name for name in file.base.table if name in wanted]
            self._moved.add({n: each for n, each in servers[file.path].items() if n in wanted})
        return chosen

    def _movable(self, file: EditableFile) -> dict[str, JSON]:
        if self._given_services or (file.own and not file.has_copy):
            return {}  # the user has chosen the services
        servers, reasons = movable(file)
        if self._arguments.move_servers or self._may_ask:
            for name, reason in reasons.items():
                say(one_line(f"{file.client.title}: {name} stays there: {reason}"))
        return servers

    def _given(self, flag: str, variable: str) -> str | None:
        path = getattr(self._arguments, flag, None) or os.environ.get(variable)
        return str(Path(path).expanduser().absolute()) if path else None

    def _services(self) -> str | None:
        """Return the file of services that the entries name."""
        return self._given_services or (str(self._moved.path) if self._moved.services else None)

    def _words(self) -> list[str]:
        """Return the command line for the entries of clients."""
        # A desktop may lack the variable of the folder.
        is_chosen = self._given("data", DATA_VARIABLE) or os.environ.get("XDG_DATA_HOME")
        flags = {
            "--data": str(self._config.data) if is_chosen else None,
            "--config": self._given("config", CONFIG_VARIABLE),
            "--services": self._services(),
        }
        return [*program(), "--shared", *(w for flag, v in flags.items() if v for w in (flag, v))]

    def _confirm(self) -> bool:
        """Show the changes, ask, and write them. Return whether the files are now as they are to be."""
        for change in self._changes:
            if change.is_change:
                _show(change)
            else:
                say(f"{change.client.title}: nothing to change in {change.path}")
        changes = [each for each in self._changes if each.is_change]
        moving = sorted({name for each in changes for name in each.moved})
        if moving:
            say(f"\nThese servers go behind Statehold: {', '.join(moving)} ({self._moved.path})")
        if self._arguments.dry_run or not changes:
            return not self._arguments.dry_run
        count = plural(len(changes), "file")
        if self._may_ask and not confirm(f"Change {count}?"):
            say("nothing is changed")
            return False
        if not (self._may_ask or self._arguments.yes):
            self._complain(f"nothing is changed: here you cannot be asked; --yes changes {count}")
            return False
        folder = SharedFolder(self._config.data)
        try:
            folder.create()
        except OSError as error:
            raise Unwritable(f"{error.filename}: {error.strerror}; choose another --data") from None
        with folder.lock(LOCK, within=LOCK_SECONDS) as is_held:
            if not is_held:
                raise Unwritable("another `statehold setup` runs; wait for its end")
            self._write(changes)
        kinds = {each.get("kind") for each in read_processes(self._config.data)}
        if self._moved.is_changed and "background" in kinds and kinds <= {"background", None}:
            self._arguments.all = False
            stop(self._arguments)  # it has the services of before
        return True

    def _write(self, changes: list[FileChange]) -> None:
        # The servers are in our file before they leave those of clients, and leave it when they are back.
        if self._moved.is_changed and not self._arguments.remove:
            self._moved.write()
        for change in changes:
            work = partial(write, change.path, change.before, change.after, change.copy)
            if self._attempt(change.client, change.path, work):
                say(f"{colour('wrote', 'green')} {change.path}")
        if self._moved.is_changed and self._arguments.remove and not self.problems:
            self._moved.write()

    def _try_out(self) -> None:
        """Install the browser, start the server, and make an exchange with each command in the files."""
        if services := self._services():
            self._arguments.services = services
        config = load_for(self._arguments)
        if config.browsers():
            install_missing(config, consent=self._arguments.yes)
        try:
            # From here, so that it has the PATH of a shell, not the short one of a desktop.
            start_and_send(config.data, self._arguments, VERB, {}).connection.close()
        except (RuntimeError, Refused) as error:
            return self._complain(f"the server does not start: {error}")
        titles: list[str] = []
        for change in self._changes:
            result = self._attempt(change.client, change.path, partial(self._exchange, change))
            if result:
                say(f"{colour('ok', 'green')} {change.client.title}: its command {result}")
                titles.append(change.client.title)
        if titles:
            start = f"Start {' or '.join(titles)} again, and say:"
            say(f"\n{start}\n\n    {colour(SENTENCE, 'cyan')}\n")
            console, undo = as_typed("statehold console"), as_typed("statehold setup --remove")
            say(f"`{console}` shows the page; `{undo}` undoes all this.")
        return None

    def _exchange(self, change: FileChange) -> str:
        """Make an exchange with the command as the file of a client has it now, once for each command."""
        file = EditableFile(change.client, change.path)
        settings = change.client.settings(file.now.table[file.own or ""])
        key = repr([settings.get(name) for name in ("command", "args", "env")])
        if key not in self._results:
            began_at = time.monotonic()
            tools = plural(exchange(settings), "tool")
            self._results[key] = f"answers with {tools} ({time.monotonic() - began_at:.1f} s)"
        return self._results[key]


def _settings_of_moved(file: EditableFile) -> list[JSON]:
    """Return the servers that an earlier run took out of a file, with our settings."""
    servers, _ = movable(file)
    return [servers[name] for name in file.moved if name in servers]


def _show(change: FileChange) -> None:
    """Print the change of a file as a diff with keys and our entry: all other values may be secret."""
    say(f"\n{change.client.title}")
    contents = [change.before, change.after]
    texts = [ClientText(change.client, change.path, each) for each in contents]
    own = {line for text in texts for line in text.own_lines()}
    before, after = [(each or b"").decode("utf-8-sig").splitlines() for each in contents]
    name = str(change.path)
    for line in difflib.unified_diff(before, after, name, name, n=2, lineterm=""):
        kind, text = line[:1], line[1:]
        is_shown = text.strip() in own or line.startswith(("---", "+++", "@@"))
        say(colour(line if is_shown else kind + hide_values(text), _COLOURS.get(kind, "")))


def hide_values(line: str) -> str:
    """Return a line of a client's file without its values: the keys and the brackets stay."""
    parts: list[str] = []
    for match in _PART.finditer(line):
        if match[1] is not None or parts[-1:] != [_HIDDEN]:
            parts.append(_HIDDEN if match[1] is None else match[1])
    return _HIDDEN_RUN.sub(_HIDDEN, "".join(parts))
