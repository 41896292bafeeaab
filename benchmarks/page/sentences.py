"""One sentence for each part: the figure that people come for, from its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..report import Cell, format_cell
from .runs import Run


def _hop(run: Run) -> str:
    def times(route: str, over: str) -> str:
        rows = run.rows_with(route=route, over=over)
        return f"{span(row['x p10'] for row in rows)} times"

    return (
        f"Over stdio a call takes {times('statehold', 'stdio')} as long as a direct one (p10), through the FastMCP "
        f"proxy {times('fastmcp', 'stdio')}; over HTTP {times('statehold', 'http')} and {times('fastmcp', 'http')}."
    )


def _forward(run: Run) -> str:
    rows = [row for row in run.rows_with(result="small") if row["x p50"] != 1]
    return (
        f"Through another process a small call takes {span(row['x p50'] for row in rows)} times as long as at the one "
        "that owns the session (p50)."
    )


def _workers(run: Run) -> str:
    two, one = (run.number("calls/s", route=f"{workers}") for workers in ("2 workers", "1 worker"))
    return f"Two workers answer {format_cell(two)} calls per second, one {format_cell(one)}, on two cores."


def _open(run: Run) -> str:
    cells: dict[str, Cell] = {"server": "plain Python server"}
    alone = run.number("p50", way="alone, with the SDK client", **cells)
    ours = run.number("p50", way="session_create + call, Statehold running", **cells)
    return (
        f"A new session has the answer of its first call after {format_cell(ours)} ms; the server alone takes "
        f"{format_cell(alone)} ms."
    )


def _density(run: Run) -> str:
    live, paused = (
        format_cell(run.number("USS per session", state=state))
        for state in ("live", "paused, never opened")
    )
    return f"A live session takes {live} KiB of the process, a paused one {paused} KiB."


def _restart(run: Run) -> str:
    again = run.number("one session", stored=10_000, left_by="kill -9")
    return (
        f"A server with 10,000 stored sessions answers {format_cell(again)} seconds after kill -9."
    )


def _store(run: Run) -> str:
    sqlite, postgresql = (
        format_cell(run.number("per second", database=name, what="fenced write", writers=100))
        for name in ("sqlite", "postgresql")
    )
    return (
        f"SQLite takes {sqlite} durable writes per second, PostgreSQL {postgresql} (100 writers)."
    )


def _journal(run: Run) -> str:
    rows = span(row["x gateway CPU"] for row in run.rows)
    return f"With the journal the gateway takes {rows} times the CPU of a call without it."


def _state(run: Run) -> str:
    updates, reads = (
        format_cell(run.number(column, state="10 KB")) for column in ("updates", "reads")
    )
    return f"One caller updates a state of 10 KB durably {updates} times per second, and reads it {reads} times."


def _browser(run: Run) -> str:
    ours, peer = (
        run.number("p50", what="click", route=f"{who} stdio") for who in ("statehold", "peer")
    )
    return f"A click is {peer / ours:.1f} times as fast as with `@playwright/mcp` at its defaults."


def _crowd(run: Run) -> str:
    return (
        f"One more idle session with a browser takes {run.measured('one more idle session'):g} MiB."
    )


def _keep(run: Run) -> str:
    resumed = format_cell(run.number("p50", what="resume", tabs=5))
    killed = format_cell(run.number("p50", what="browser killed", tabs=1))
    return (
        f"A paused browser with 5 tabs answers after {resumed} ms, one that was killed after {killed} ms, "
        "with its pages and logins."
    )


def _storage(run: Run) -> str:
    def both(way: str) -> str:
        cells: dict[str, Cell] = {"way": way, "stored_origins_with_a_tab": 3}
        return " and ".join(
            format_cell(run.number("p50", what=what, **cells)) for what in ("pause", "resume")
        )

    return (
        f"Pausing and resuming 3 tabs and 5 stored origins takes {both('statehold')} ms, with `storage_state` of "
        f"Playwright {both('storage_state')} ms."
    )


def _logins(run: Run) -> str:
    [row] = run.rows_with(what="hand-over")
    return (
        f"A login goes to another node in {format_cell(row['p50'])} ms; {format_cell(row['401'])} of "
        f"{format_cell(row['times'])} times its site refused it."
    )


def _settle(run: Run) -> str:
    ours, peer = (
        format_cell(run.number("seen %", route=route))
        for route in ("statehold stdio balanced", "peer stdio")
    )
    return f"A snapshot has {ours} % of the late effects of its action, with `@playwright/mcp` {peer} %."


def _tokens(run: Run) -> str:
    [row] = run.rows_with(what="navigate to a page of 200,000 tokens")
    peer = number(row["peer"]) + number(row["peer, files"])
    return (
        f"A page of 200,000 tokens is answered with {format_cell(row['ours'])} tokens; the answer of "
        f"`@playwright/mcp` and the file it names have {peer:,.0f}."
    )


def _start(run: Run) -> str:
    own, shared, peer = (
        f"{run.number('p50', route=route) / 1000:.2f}"
        for route in ("statehold", "statehold --shared", "peer")
    )
    return (
        f"A client has its tools {own} seconds after its start, beside a running server after {shared} seconds, "
        f"with `@playwright/mcp` after {peer} seconds."
    )


def _large(run: Run) -> str:
    ours, peer = (
        format_cell(run.number("p50", what="click", route=f"{who} stdio") / 1000)
        for who in ("statehold", "peer")
    )
    return f"A click on a page of 20,000 elements takes {ours} seconds, with `@playwright/mcp` {peer} seconds."


def _agent(run: Run) -> str:
    def tasks(who: str) -> str:
        cells = (
            format_cell(run.number(f"{who}{column}", task="all"))
            for column in ("tokens", "calls", "seconds")
        )
        return "{} tokens, {} calls and {} seconds".format(*cells)

    return f"Ten tasks in a browser take {tasks('')}; with `@playwright/mcp` {tasks('peer ')}."


def _call(run: Run) -> str:
    more = run.measured("call: wall time more than an empty Python")
    return (
        f"`statehold call` takes {more:g} ms more than a Python that does nothing, with the call."
    )


def _client(run: Run) -> str:
    rows = [row for row in run.rows_with(client="statehold") if row["over"] != "embedded"]
    return f"A call of the Python client takes {span(row['x p10'] for row in rows)} times as long as one of the SDK's."


def _writers(run: Run) -> str:
    bounded, free = (
        format_cell(run.number("writes/s", client=name)) for name in ("64 connections", "no bound")
    )
    return f"1,000 tasks of one client write {bounded} times per second over 64 connections, {free} without a bound."


def _layer(run: Run) -> str:
    return f"The session layer itself takes {format_cell(run.number('p50', journal='on'))} ms of a call (p50)."


def _failover(run: Run) -> str:
    def gap(what: str) -> str:
        return format_cell(run.number("longest gap, s", what=f"kill -9, taken over on {what}"))

    return (
        f"A session answers {gap('the same machine')} seconds after its node was killed, and "
        f"{gap('another machine, lease of 10 s')} seconds on another machine with a lease of 10 s."
    )


def _keeper(run: Run) -> str:
    lost = sum(
        number(row[column])
        for row in run.rows
        for column in ("counters reset", "answers lost", "double runs")
    )
    title = run.title.partition(": ")[2].capitalize()
    return f"{title}: {lost:g} counters reset, answers lost or calls run twice."


def _soak(run: Run) -> str:
    return f"{_minutes(run)} of soak on one machine: {_found(run)} faults found."


def _chaos(run: Run) -> str:
    return f"{_minutes(run)} of chaos in a cluster of three nodes: {_found(run)} faults found."


def _minutes(run: Run) -> str:
    return run.title.partition(": ")[2].partition(",")[0].capitalize()


def _found(run: Run) -> str:
    return f"{sum(number(row['found']) for row in run.rows):g}"


def _console(run: Run) -> str:
    page = run.measured("console: 10,000 sessions, the slowest page, p95")
    picture = run.measured("console: paint to paint, page of 10 paints/s, p50")
    return (
        f"A page of a list of 10,000 sessions takes {page:g} ms at most (p95), and a picture is there {picture:g} ms "
        "after its paint."
    )


def _console_soak(run: Run) -> str:
    growth = run.measured("console-soak: server, RSS, MiB")
    minutes = run.title.partition(": ")[2].partition(" of")[0]
    return f"In the last quarter of {minutes} with open pages the server has {growth:g} times the memory of the first."


def _access(run: Run) -> str:
    lookup = max(
        run.number("us", what=f"verifying a cached token ({kind})")
        for kind in ("JWT", "opaque", "static")
    )
    check = run.measured("audit verify of 100,000 entries, with the start")
    required = run.number("more than off, ms", what="a call with audit required, 1 at once")
    return (
        f"A token that was verified before takes {lookup:.1f} us of a call. A required audit log adds {required:.2f} ms to "
        f"it, and `audit verify` reads 100,000 entries in {check:.2f} seconds."
    )


def _timing(run: Run) -> str:
    areas = sorted(number(row["AUC"]) for row in run.rows)
    return (
        f"A session of another principal is answered as one that does not exist, also in time: an AUC of {areas[0]:.2f} "
        f"to {areas[-1]:.2f} in {len(areas)} kinds of requests, 2,000 answers about each."
    )


SENTENCES: Final[dict[str, Callable[[Run], str]]] = {
    "hop": _hop,
    "forward": _forward,
    "workers": _workers,
    "open": _open,
    "density": _density,
    "restart": _restart,
    "store": _store,
    "journal": _journal,
    "state": _state,
    "browser": _browser,
    "crowd": _crowd,
    "keep": _keep,
    "storage": _storage,
    "logins": _logins,
    "settle": _settle,
    "tokens": _tokens,
    "start": _start,
    "large": _large,
    "agent": _agent,
    "call": _call,
    "client": _client,
    "writers": _writers,
    "layer": _layer,
    "failover": _failover,
    "keeper": _keeper,
    "soak": _soak,
    "chaos": _chaos,
    "console": _console,
    "console-soak": _console_soak,
    "access": _access,
    "timing": _timing,
}


def sentence(run: Run) -> str:
    """Return the sentence of a run. Raises LookupError: the run has not measured all of it."""
    return SENTENCES[run.part](run)


def span(cells: Iterable[Cell]) -> str:
    """Return the smallest and the largest of some numbers."""
    numbers = sorted(number(cell) for cell in cells)
    return f"{numbers[0]:.2f} to {numbers[-1]:.2f}"


def number(cell: Cell) -> float:
    assert isinstance(cell, float | int)
    return cell


__all__ = ["SENTENCES", "number", "sentence", "span"]
