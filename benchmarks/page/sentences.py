"""One sentence for each part: the figure that people come for, from its run."""

from __future__ import annotations

import re
from typing import Final

from ..report import Cell, format_cell
from .runs import Run

SENTENCES: Final = {
    "hop": "Over stdio a call takes {x p10*route=statehold, over=stdio} times as long as a direct one (p10), through the "
    "FastMCP proxy {x p10*route=fastmcp, over=stdio} times; over HTTP {x p10*route=statehold, over=http} times and "
    "{x p10*route=fastmcp, over=http} times.",
    "peers": "A small call over HTTP takes {x p10|gateway=statehold, over=http, era=legacy} times as long as a direct one "
    "(p10), through mcp-proxy {x p10|gateway=mcp-proxy, over=http, era=legacy} times, through supergateway "
    "{x p10|gateway=supergateway, over=http, era=legacy} times.",
    "forward": "Through another process a small call takes {x p50*result=small, route=forwarded} times as long as at the "
    "one that owns the session (p50).",
    "workers": "Two workers answer {calls/s|route=2 workers} calls per second, one {calls/s|route=1 worker}, on two cores.",
    "open": "A new session has the answer of its first call after {p50|server=plain Python server, way=session_create + "
    "call; Statehold running} ms; the server alone takes {p50|server=plain Python server, way=alone; with the SDK "
    "client} ms.",
    "density": "A live session takes {USS per session|state=live} KiB of the process, a paused one "
    "{USS per session|state=paused; never opened} KiB.",
    "restart": "A server with 10,000 stored sessions answers {one session|stored=10000, left by=kill -9} seconds after "
    "kill -9.",
    "store": "SQLite takes {per second|database=sqlite, what=fenced write, writers=100} durable writes per second, "
    "PostgreSQL {per second|database=postgresql, what=fenced write, writers=100} (100 writers).",
    "scale": "Requests of a store with many sessions take {x*} times as long as with 1,000.",
    "nodes": "50 nodes send {statements/s|nodes=50, what=simulated; at rest} statements per second at rest.",
    "journal": "With the journal the gateway takes {x gateway CPU*} times the CPU of a call without it.",
    "state": "One caller updates a state of 10 KB durably {updates|state=10 KB} times per second, and reads it "
    "{reads|state=10 KB} times.",
    "browser": "A click is {=click: times as fast as the peer} times as fast as with `@playwright/mcp` at its defaults.",
    "crowd": "One more idle session with a browser takes {=one more idle session} MiB.",
    "keep": "A paused browser with 5 tabs answers after {p50|what=resume, tabs=5} ms, one that was killed after "
    "{p50|what=browser killed, tabs=1} ms, with its pages and logins.",
    "storage": "Pausing and resuming 3 tabs and 5 stored origins takes "
    "{p50|way=statehold, stored origins with a tab=3, what=pause} and "
    "{p50|way=statehold, stored origins with a tab=3, what=resume} ms, with `storage_state` of Playwright "
    "{p50|way=storage_state, stored origins with a tab=3, what=pause} and "
    "{p50|way=storage_state, stored origins with a tab=3, what=resume} ms.",
    "logins": "A login goes to another node in {p50|what=hand-over} ms; {401|what=hand-over} of {times|what=hand-over} "
    "times its site refused it.",
    "settle": "A snapshot has {seen %|route=statehold stdio balanced} % of the late effects of its action, with "
    "`@playwright/mcp` {seen %|route=peer stdio} %.",
    "tokens": "A page of 200,000 tokens is answered with {ours|what=navigate to a page of 200;000 tokens} tokens; the file "
    "that the answer of `@playwright/mcp` names has {peer, files|what=navigate to a page of 200;000 tokens}.",
    "start": "A client has its tools {p50|route=statehold} ms after its start, beside a running server after "
    "{p50|route=statehold --shared} ms, with `@playwright/mcp` after {p50|route=peer} ms.",
    "large": "A click on a page of 20,000 elements takes {p50|what=click, route=statehold stdio} ms, with `@playwright/mcp` "
    "{p50|what=click, route=peer stdio} ms.",
    "agent": "Ten tasks in a browser take {tokens|task=all} tokens, {calls|task=all} calls and {seconds|task=all} seconds; "
    "with `@playwright/mcp` {peer tokens|task=all} tokens, {peer calls|task=all} calls and {peer seconds|task=all} seconds.",
    "call": "`statehold call` takes {=call: wall time more than an empty Python} ms more than a Python that does nothing.",
    "client": "A call of the Python client takes {x p10*client=statehold} times as long as one of the SDK's.",
    "writers": "1,000 tasks of one client write {writes/s|client=64 connections} times per second over 64 connections, "
    "{writes/s|client=no bound} times without a bound.",
    "layer": "The session layer itself takes {p50|journal=on} ms of a call (p50).",
    "failover": "A session answers {longest gap, s|what=kill -9; taken over on the same machine} seconds after its node was "
    "killed, and {longest gap, s|what=kill -9; taken over on another machine; lease of 10 s} seconds on another machine "
    "with a lease of 10 s.",
    "keeper": "{title}: {counters reset+} counters reset, {answers lost+} answers lost, {double runs+} calls run twice.",
    "soak": "Soak on one machine, {title}: {found+} faults found.",
    "chaos": "Chaos in a cluster of three nodes, {title}: {found+} faults found.",
    "console": "A page of a list of 10,000 sessions takes {=console: 10,000 sessions, the slowest page, p95} ms at most "
    "(p95), and a picture is there {=console: paint to paint, page of 10 paints/s, p50} ms after its paint.",
    "console-soak": "After {title} the server has {=console-soak: server, RSS, MiB} times the memory of the first quarter.",
    "access": "A JWT that was verified before takes {us|what=verifying a cached token (JWT)} us of a call. A required audit "
    "log adds {more than off, ms|what=a call with audit required; 1 at once} ms to it, and `audit verify` reads 100,000 "
    "entries in {=audit verify of 100,000 entries, with the start} seconds.",
    "timing": "A session of another principal is answered as one that does not exist, also in time: an AUC of {AUC*} in all "
    "kinds of requests, 2,000 answers about each.",
}
"""`{column|cells}` is a cell of the only row with some cells, `*` the range of several, `+` their sum, `=` a target.

A semicolon in a cell stands for a comma.
"""
_FIELD: Final = re.compile(r"\{(=)?([^{}|*+]+)(?:([|*+])([^{}]*))?\}")


def sentence(run: Run) -> str:
    """Return the sentence of a run. Raises LookupError: the run has not measured all of it."""
    return fill(run, SENTENCES[run.part])


def fill(run: Run, text: str) -> str:
    """Put the figures of a run into a text with fields. Raises LookupError: it has not measured all of them."""
    return _FIELD.sub(lambda match: _value(run, *match.groups("")), text)


def _value(run: Run, is_target: str, name: str, kind: str, cells: str) -> str:
    if is_target:
        return f"{run.measured(name):g}"
    if name == "title":
        return run.title.partition(": ")[2].partition(";")[0] or run.title
    pairs = [cell.partition("=") for cell in cells.split(", ") if cell]
    wanted: dict[str, Cell] = {
        key: int(value) if value.isdecimal() else value.replace(";", ",") for key, _, value in pairs
    }
    if kind == "|":
        return format_cell(run.number(name, **wanted))
    numbers = sorted(number(row[name]) for row in run.rows_with(**wanted))
    if kind == "+":
        return f"{sum(numbers):g}"
    return f"{numbers[0]:.2f} to {numbers[-1]:.2f}"


def number(cell: Cell) -> float:
    assert isinstance(cell, float | int)
    return cell


__all__ = ["SENTENCES", "fill", "number", "sentence"]
