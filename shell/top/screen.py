"""The screen of `statehold top`, drawn with rich: totals, the sessions, the selected one with its services, and the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..output import plain, span, split_owner, until
from ..sessions.listing import STATUS_COLOURS
from .sample import CallRow, ServiceRow, SessionRow
from .view import View

NARROW: Final = 64
"""Columns below which there are no numbers."""
WIDE: Final = 110
"""Columns from which calls that run and the last call have columns of their own."""
WIDEST: Final = 150
"""Columns from which ids are shown."""
_MEGABYTE: Final = 2**20
_FIXED_LINES: Final = 6
"""Lines besides the sessions and the details: two totals, the head of the table, a rule, the message and the keys."""
_LEAST_ROWS: Final = 4
_KEYS: Final = (
    ("p", "pause"),
    ("r", "resume"),
    ("c", "close"),
    ("o", "open"),
    ("/", "filter"),
    ("\u2191\u2193", "select"),
    ("q", "quit"),
)
_CALL_COLOURS: Final = {"runs": "green", "asks": "bold yellow", "waits": "yellow", "ok": "dim"}


def draw(
    view: View, *, title: str, note: str, size: tuple[int, int], now: float, at: float
) -> Group:
    """Return the whole screen. `now` is in seconds since 1970, `at` a monotonic time."""
    width, height = size
    services = max((len(row.services) for row in view.sample.rows), default=0)
    details = 2 + min(max(services, 1), height // 4)
    room = height - _FIXED_LINES - details
    if room < _LEAST_ROWS:
        details, room = 0, max(1, height - _FIXED_LINES + 1)
    rows = view.window(room)
    selected = view.row
    lines: list[RenderableType] = [_head(view, title, note, width), _totals(view)]
    lines.append(_sessions(view, rows, width, now))
    # One line below the head of the table says that there is none.
    lines += [Text()] * (room - max(len(rows), 1))
    if details:
        lines += _details(selected, details, width, now)
    lines += [_message(view, at), _keys()]
    return Group(*lines)


def _head(view: View, title: str, note: str, width: int) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    left = Text.assemble(("statehold top", "bold"), "  ", (plain(title), "dim"))
    rows = view.rows
    count = f"{len(rows)} of {len(view.sample.rows)}" if view.pattern else f"{len(rows)}"
    right = Text(f"{count} session{'s' if count != '1' else ''}")
    if note and left.cell_len + len(note) + right.cell_len + 4 <= width:
        right = Text.assemble((note, "yellow"), "  ", right)
    grid.add_row(left, right)
    return grid


def _totals(view: View) -> RenderableType:
    sample = view.sample
    if sample.problem:
        return _line(Text(plain(sample.problem), "bold red"))
    counts = Counter(row.status for row in sample.rows)
    parts = [
        Text.assemble((f"{count} {status}", STATUS_COLOURS.get(status, "")))
        for status, count in sorted(counts.items())
    ]
    if any(row.calls is not None for row in sample.rows):
        parts.append(Text(f"{sum(view.rates.values()):.1f} calls/s"))
    if sample.memory is not None:
        processes = f" with {sample.processes} servers" if sample.processes > 1 else ""
        parts.append(Text(f"{_bytes(sample.memory)} of memory{processes}"))
    if sample.waiting:
        parts.append(Text(f"{sample.waiting} wait for a connection", "bold yellow"))
    return _line(Text("   ").join(parts))


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _sessions(view: View, rows: Iterable[SessionRow], width: int, now: float) -> Table:
    is_wide = width >= WIDE
    all_rows = view.sample.rows
    has_owners = is_wide and len({row.owner for row in all_rows}) > 1
    has_ends = any(row.ends_at for row in all_rows)
    has_rates = any(row.calls is not None for row in all_rows)
    is_narrow = width < NARROW
    table = _table()
    _add_column(table, "  SESSION", ratio=3, least=10)
    if width >= WIDEST:
        _add_column(table, "ID", least=29)
    _add_column(table, "STATUS", least=6 if is_narrow else 14)
    if has_rates and not is_narrow:
        _add_column(table, "CALLS/S", is_number=True)
        _add_column(table, "MEMORY", least=8, is_number=True)
    if is_wide:
        _add_column(table, "NOW", ratio=3)
        _add_column(table, "LAST CALL", ratio=3)
        if has_ends:
            _add_column(table, "ENDS", least=9)
    else:
        _add_column(table, "CALL", ratio=4)
    if has_owners:
        _add_column(table, "OWNER", ratio=1, least=8)
    selected = view.row
    is_empty = True
    for row in rows:
        is_empty = False
        is_selected = selected is not None and row.id == selected.id
        cells: list[Text] = [Text(f"{'> ' if is_selected else '  '}{plain(row.title)}")]
        if width >= WIDEST:
            cells.append(Text(row.id, "dim"))
        cells.append(_status(row, now))
        if has_rates and not is_narrow:
            rate = view.rates.get(row.id)
            cells += [Text(f"{rate:.1f}" if rate else ""), _memory(row.memory, row.shares_memory)]
        if is_wide:
            cells += [_running(row, now), _last(row, now)]
            if has_ends:
                cells.append(Text(until(row.ends_at, now), "dim"))
        else:
            cells.append(_running(row, now) or _last(row, now))
        if has_owners:
            cells.append(Text(plain(split_owner(row.owner)[0])))
        if is_selected:
            # The colours of the terminal may have little contrast when they are reversed.
            cells = [Text(cell.plain) for cell in cells]
        table.add_row(*cells, style="reverse" if is_selected else "")
    if is_empty:
        text = "no session fits the filter" if view.pattern else "no session is open"
        table.add_row(Text(f"  {text}" if not view.sample.problem else "", "dim"))
    return table


def _table() -> Table:
    return Table(
        box=None,
        expand=True,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        collapse_padding=True,
    )


def _add_column(
    table: Table, head: str, *, ratio: int | None = None, least: int = 0, is_number: bool = False
) -> None:
    """Add a column whose cells are cut to one line. `ratio`: its share of the free width; `least`: its least width."""
    table.add_column(
        head,
        ratio=ratio,
        min_width=least or None,
        justify="right" if is_number else "left",
        no_wrap=True,
        overflow="ellipsis",
    )


def _status(row: SessionRow, now: float) -> Text:
    since = "" if row.since is None else f" {span(now - row.since)}"
    return Text(f"{row.status}{since}", STATUS_COLOURS.get(row.status, ""))


def _memory(size: int | None, is_shared: bool) -> Text:
    return Text("" if size is None else f"{'~' if is_shared else ''}{_bytes(size)}")


def _bytes(size: int) -> str:
    megabytes = size / _MEGABYTE
    return f"{megabytes / 1024:.1f} GB" if megabytes >= 10_000 else f"{megabytes:.0f} MB"


def _running(row: SessionRow, now: float) -> Text:
    """Return the call that runs, or the one that asks; an empty text for none."""
    if not row.running:
        return Text(f"busy: {plain(row.busy)}" if row.busy else "", "yellow")
    call = row.running[0]
    others = f" +{len(row.running) - 1}" if len(row.running) > 1 else ""
    text = f"{call.state} {span(now - call.at)}: {plain(call.tool)}{others}"
    return Text(text, _CALL_COLOURS[call.state])


def _last(row: SessionRow, now: float) -> Text:
    call = row.last
    if call is None:
        return Text("" if row.used_at is None else f"used {span(now - row.used_at)} ago", "dim")
    return Text(_ended(call, now), _CALL_COLOURS.get(call.state, "red"))


def _ended(call: CallRow, now: float) -> str:
    return f"{call.state} {span(now - call.at)} ago: {plain(call.tool)}"


def _details(row: SessionRow | None, lines: int, width: int, now: float) -> list[RenderableType]:
    """Return a rule and `lines` lines about a session."""
    if row is None:
        return [Rule(style="dim"), *[Text()] * lines]
    facts = [
        "" if row.title == row.id else row.id,
        f"owner {split_owner(row.owner)[0]}" if row.owner else "",
        f"open in {row.place}" if row.place else "open in no server",
        f"ends {until(row.ends_at, now)}" if row.ends_at else "",
        row.reason,
    ]
    if row.principal == "":
        # Over MCP nothing is known of the server's processes.
        facts[2] = ""
    rule = Rule(Text(plain(row.title), "bold"), align="left", style="dim")
    drawn: list[RenderableType] = [
        rule,
        _line(Text(plain("   ".join(fact for fact in facts if fact)), "dim")),
    ]
    drawn.append(_services(row.services[: lines - 2], has_processes=row.calls is not None))
    drawn += [Text()] * (lines - 2 - min(len(row.services), lines - 2))
    return drawn


def _services(services: Iterable[ServiceRow], *, has_processes: bool) -> Table:
    table = _table()
    _add_column(table, "SERVICE", ratio=2, least=10)
    _add_column(table, "STATE", least=8)
    _add_column(table, "GENERATION", is_number=True)
    if has_processes:
        _add_column(table, "PID", least=7, is_number=True)
        _add_column(table, "MEMORY", least=8, is_number=True)
    _add_column(table, "", ratio=4)
    for service in services:
        note = service.error or ("other sessions use it too" if service.is_shared else "")
        cells = [
            Text(plain(service.name)),
            Text(service.status, "red" if service.status == "error" else ""),
            Text(str(service.generation or "")),
        ]
        if has_processes:
            cells.append(Text(", ".join(map(str, service.pids))))
            cells.append(_memory(service.memory, service.is_shared))
        table.add_row(*cells, Text(plain(note), "red" if service.error else "dim"))
    return table


def _message(view: View, at: float) -> Text:
    if view.asked is not None:
        text = f"close {plain(view.asked.title)} for good, with all that it keeps? y/n"
        return _line(Text(text, "bold yellow"))
    if view.is_typing:
        return _line(Text(f"filter: {plain(view.pattern)}_", "bold"))
    if message := view.current_message(at):
        return _line(Text(plain(message), "bold"))
    if view.pattern:
        return _line(Text(f"filter: {plain(view.pattern)} (escape shows all)", "dim"))
    return Text()


def _keys() -> Text:
    text = Text()
    for key, meaning in _KEYS:
        text.append(key, "bold cyan")
        text.append(f" {meaning}  ")
    return _line(text)
