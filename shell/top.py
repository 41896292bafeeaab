"""`statehold top`: the open sessions of a data folder or of a server elsewhere, live at a terminal, else as one table.

It changes nothing. One thread looks, draws, and waits for the next look.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from ..server.config.data_folder import find_data_folder
from ..server.exit_codes import FAILURE, OK, USAGE
from ..server.printing import complain, is_terminal
from ..server.sockets.processes import ask_each
from ..server.sockets.request import Refused, as_list, as_object
from ..sessions.lifecycle import OPEN, Status
from ..sessions.one_line import one_line
from ..sessions.times import seconds_of, span, until
from .call.connection import Failure, OutOfTime, RequestFailed, ServerLost
from .call.remote import RemoteConnection
from .call.words import Words, WrongUsage
from .output import Column, fitted_table, plain, say, split_owner
from .parser import CommandLine
from .sessions.listing import STATUS_COLOURS

ANSWER_SECONDS: Final = 10.0
LIMIT: Final = 200
"""Most sessions of a server elsewhere."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks."""
RATE_LOOKS: Final = 6
"""The looks over which the calls per second are counted."""
OTHER_LINES: Final = 4
"""Lines besides the sessions: the place, the totals, the head of the table, and how many sessions are left out."""
_CALL_COLOURS: Final = {"runs": "green", "asks": "yellow", "waits": "yellow", "ok": "dim"}
_COLUMNS: Final = (
    ("SESSION", 10, 10),
    ("STATUS", 9, 8),
    ("CALLS/S", 4, None),
    ("MEMORY", 3, None),
    ("NOW", 8, 16),
    ("LAST CALL", 7, 16),
    ("ENDS", 2, None),
    ("OWNER", 2, 8),
)
"""The heads, the ranks and the least widths; see Column."""


@dataclass(frozen=True, slots=True)
class Look:
    """The open sessions at one moment, as JSON documents."""

    sessions: Sequence[Mapping[str, Any]] = ()
    facts: Sequence[str] = ()
    """Totals, in words."""
    problem: str = ""
    """Why there is nothing to see."""
    at: float = field(default_factory=time.monotonic)


def run(arguments: CommandLine) -> int:
    """Run the command and return its exit code. At a terminal it runs until Ctrl-C, which raises KeyboardInterrupt."""
    try:
        title, look = _source(arguments)
    except (WrongUsage, ValueError) as error:
        return complain(str(error), USAGE)
    looks = deque([look()], RATE_LOOKS)
    if not looks[-1].problem:
        if is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb":
            return _run_live(title, look, looks)
        time.sleep(LOOK_SECONDS)
        looks.append(look())
    if looks[-1].problem:
        return complain(looks[-1].problem, FAILURE)
    sessions = _sorted(looks[-1].sessions)
    say(_table(sessions, _rates(looks)) if sessions else f"no session is open in {title}")
    return OK


def _source(arguments: CommandLine) -> tuple[str, Callable[[], Look]]:
    """Return the server that a command line names, and the function that looks at it: it blocks, and does not raise.

    Raises:
        WrongUsage: the address or the file of the token is wrong.
        ValueError: the file of --config cannot be read.
    """
    url: str | None = arguments.url
    if url is not None:
        token = [] if arguments.token_file is None else [f"--token-file={arguments.token_file}"]
        connection = RemoteConnection(Words("tools", [f"--url={url}", *token]), None, pinned=False)
        return urlsplit(url).netloc, lambda: _look_remotely(connection)
    flags = {name: getattr(arguments, name, None) for name in ("data", "config")}
    data = find_data_folder(**flags, environ=os.environ)
    return data, lambda: _look_locally(data)


def _look_locally(data: str) -> Look:
    """Ask all processes of a data folder. A session that a process holds is as that one says, others as the store says."""
    answers: list[Mapping[str, Any]] = []
    problem = f"no server runs for {data}; `statehold serve`, a client with --shared and the next `statehold call` start one"
    try:
        for exchange in ask_each(data, "activity", {}, seconds=ANSWER_SECONDS):
            exchange.connection.close()
            answers.append(exchange.content)
    except Refused as error:
        problem = error.message
    if not answers:
        return Look(problem=problem)
    sessions = {each["session_id"]: each for answer in answers for each in answer["stored"]}
    sessions |= {each["session_id"]: each for answer in answers for each in answer["sessions"]}
    memory, waiting = (sum(answer[name] for answer in answers) for name in ("memory", "waiting"))
    servers = f" with {len(answers)} servers" if len(answers) > 1 else ""
    facts = [f"{_megabytes(memory)} of memory{servers}"] if memory else []
    facts += [f"{waiting} wait for a connection"] if waiting else []
    return Look(list(sessions.values()), facts)


def _look_remotely(connection: RemoteConnection) -> Look:
    arguments = {"limit": LIMIT, "statuses": sorted(OPEN)}
    params: dict[str, Any] = {"name": "session_list", "arguments": arguments, "_meta": {}}
    try:
        result = connection.request("tools/call", params, seconds=ANSWER_SECONDS)
    except (Failure, OutOfTime, RequestFailed, ServerLost) as error:
        return Look(problem=str(error) or "the server does not answer")
    if result.get("isError") is True:
        texts = [str(as_object(each).get("text", "")) for each in as_list(result.get("content"))]
        return Look(problem=one_line(" ".join(texts)))
    sessions = as_list(as_object(result.get("structuredContent")).get("sessions"))
    return Look(list(map(as_object, sessions)), ["over MCP: no calls per second, no memory"])


def _run_live(title: str, look: Callable[[], Look], looks: deque[Look]) -> int:
    # One look needs no library.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # A terminal that cannot show a character gets a question mark.
    stdout: Any = sys.stdout
    stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    size = console.size
    try:
        with Live(console=console, auto_refresh=False) as live:
            # A program that is killed could not show the cursor again.
            console.show_cursor(True)
            while True:
                if size != console.size:
                    # The terminal has wrapped the lines.
                    console.clear()
                    size = console.size
                lines = "\n".join(_lines(title, looks, size.height))
                text = Text.from_ansi(lines, no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)
                time.sleep(LOOK_SECONDS)
                looks.append(look())
    except OSError as error:
        return complain(f"the terminal is gone: {error.strerror}", FAILURE)


def _lines(title: str, looks: Sequence[Look], height: int) -> Iterator[str]:
    sessions, rates = _sorted(looks[-1].sessions), _rates(looks)
    counts = Counter(session["status"] for session in sessions)
    totals = [f"{count} {status}" for status, count in sorted(counts.items())]
    totals += [f"{sum(rates.values()):.1f} calls/s"] if rates else []
    yield f"statehold top  {plain(title)}  (Ctrl-C ends it)"
    yield plain(looks[-1].problem or "   ".join([*totals, *looks[-1].facts]))
    room = max(1, height - OTHER_LINES)
    if not looks[-1].problem:
        yield _table(sessions[:room], rates) if sessions else "no session is open"
    if len(sessions) > room:
        yield f"... and {len(sessions) - room} more"


def _table(sessions: Sequence[Mapping[str, Any]], rates: Mapping[str, float]) -> str:
    now = time.time()
    rows = [_row(session, rates.get(session["session_id"]), now) for session in sessions]
    if len({session.get("owner") for session in sessions}) == 1:
        rows = [row[:-1] for row in rows]
    columns: list[Column] = []
    for (head, rank, least), cells in zip(_COLUMNS, zip(*rows, strict=True), strict=False):
        texts, colours = zip(*cells, strict=True)
        columns.append(Column(head, texts, rank=rank, least=least, colours=colours))
    return fitted_table(columns)


def _row(
    session: Mapping[str, Any], rate: float | None, now: float
) -> Sequence[tuple[str | None, str]]:
    """Return the cells of a session with their colours, in the order of _COLUMNS."""
    status, used_at = session["status"], session["used_at"]
    since, ends_at = session.get("since"), session.get("ends_at") or session.get("expires_at")
    memory = session.get("memory")
    unknown = [{"state": "runs", "tool": "a call", "since": used_at}] * (status == Status.ACTIVE)
    running = session.get("running", unknown)
    calls = [f"{each['state']} {_age(each['since'], now)}: {each['tool']}" for each in running]
    state = running[0]["state"] if running else "waits"
    if (last := session.get("last_call")) is None:
        last_cell = (f"used {_age(used_at, now)} ago", "dim")
    else:
        text = f"{last['state']} {_age(last['since'], now)} ago: {last['tool']}"
        last_cell = (text, _CALL_COLOURS.get(last["state"], "red"))
    return [
        (session["name"] or session["session_id"], ""),
        (f"{status} for {_age(since, now)}" if since else status, STATUS_COLOURS.get(status, "")),
        (None if rate is None else f"{rate:.1f}", ""),
        (f"{'~' * session['shares_memory']}{_megabytes(memory)}" if memory else "", ""),
        (", ".join(calls) or session.get("busy"), _CALL_COLOURS[state]),
        last_cell,
        (until(seconds_of(ends_at), now), "dim"),
        (split_owner(session.get("owner") or "")[0], ""),
    ]


def _sorted(sessions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the sessions that ask first and the paused ones last, and among them the newest first."""

    def rank(session: Mapping[str, Any]) -> tuple[bool, bool]:
        states = [call["state"] for call in session.get("running", ())]
        return "asks" not in states, session["status"] == Status.PAUSED

    newest = sorted(sessions, key=lambda s: (s["created_at"], s["session_id"]), reverse=True)
    return sorted(newest, key=rank)


def _rates(looks: Sequence[Look]) -> dict[str, float]:
    """Return the calls per second of the sessions that were seen before, since the earliest of the looks."""
    counts = [{each["session_id"]: each.get("calls") for each in look.sessions} for look in looks]
    rates: dict[str, float] = {}
    for look, before in reversed(list(zip(looks, counts, strict=True))[:-1]):
        for session_id, count in counts[-1].items():
            known = before.get(session_id)
            # A session that was paused counts from 0 again.
            if count is not None and known is not None and known <= count:
                rates[session_id] = (count - known) / (looks[-1].at - look.at)
    return rates


def _age(time_text: str, now: float) -> str:
    return span(now - (seconds_of(time_text) or now))


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MB"
