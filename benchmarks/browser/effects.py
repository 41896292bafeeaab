"""Pages whose effects come some time after the action that causes them, and one whose button does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EFFECT = "The effect is here"
"""The text that the answer of an action holds when it shows the effect."""
ARRIVED = "/effects/arrived"

_GO = '<button id="go">Go</button>'
_SAID = '<div id="said" role="status"></div>'
_SCRIPT = (
    f'const show = () => say("{EFFECT}"); const go = document.getElementById("go");'
    "const load = path => fetch(path).then(response => response.text());"
)


@dataclass(frozen=True, slots=True)
class Effect:
    """One page: its script, which may add elements before the button, and the action that is taken on it."""

    name: str
    script: str
    """Runs when the page has loaded; `go` is the button and `show()` writes the effect into the page."""
    body: str = _GO + _SAID
    tool: str = "browser_click"
    arguments: Mapping[str, Any] = field(
        default_factory=lambda: {"target": "#go", "element": "the button"}
    )

    @property
    def path(self) -> str:
        return "/effects/" + "".join(c if c.isalnum() else "-" for c in self.name)

    def page(self) -> tuple[str, str]:
        return self.name.capitalize(), f"{self.body}<script>{_SCRIPT}{self.script}</script>"


def _click(name: str, work: str, before: str = "", more: str = "") -> Effect:
    """Return the page whose button does `work`; the script `before` runs when the page loads."""
    return Effect(name, f"{before} go.onclick = () => {{ {work} }};", more + _GO + _SAID)


NOTHING = _click("does nothing", "")

EFFECTS = (
    _click("timer of 50 ms", "setTimeout(show, 50)"),
    _click("timer of 150 ms", "setTimeout(show, 150)"),
    _click("timer of 400 ms", "setTimeout(show, 400)"),
    _click(
        "three timers of 100 ms in a chain",
        "setTimeout(() => setTimeout(() => setTimeout(show, 100), 100), 100)",
    ),
    _click("navigation after 100 ms", f"setTimeout(() => location.href = '{ARRIVED}', 100)"),
    _click("alert after 100 ms", f"setTimeout(() => alert('{EFFECT}'), 100)"),
    Effect(
        "search, debounced by 250 ms, with a fetch",
        """let timer; document.getElementById("words").oninput = () => {
        clearTimeout(timer); timer = setTimeout(() => load("/api/slow?ms=50").then(show), 250); };""",
        f'<label>Search <input id="words"></label>{_SAID}',
        "browser_type",
        # Without `slowly` a field is filled at once, and the answer has no snapshot.
        {"target": "#words", "element": "the search field", "text": "boat", "slowly": True},
    ),
    _click(
        "fetch of 100 ms whose body is not read",
        "fetch('/api/slow?ms=100').then(show)",
    ),
    _click("fetch, answered after 300 ms", "load('/api/slow?ms=300').then(show)"),
    _click(
        "CSS transition of 300 ms",
        "box.style.opacity = '0.2'",
        "const box = document.getElementById('box'); box.ontransitionend = show;",
        '<p id="box" style="opacity: 1; transition: opacity 300ms">A box</p>',
    ),
    _click(
        "animation frames for 300 ms",
        """let start; requestAnimationFrame(function step(now) { start ??= now;
        if (now - start < 300) requestAnimationFrame(step); else show(); })""",
    ),
    _click(
        "timer of 150 ms beside endless animation frames",
        "setTimeout(show, 150)",
        """const box = document.getElementById("box");
        requestAnimationFrame(function step(now) { box.style.left = now % 100 + "px"; requestAnimationFrame(step); });""",
        '<p id="box" style="position: relative">A box</p>',
    ),
    _click(
        "polling every 200 ms",
        "wanted = true",
        """let wanted = false;
        setInterval(async () => { await load("/api/slow?ms=20"); if (wanted) show(); }, 200);""",
    ),
    _click(
        "timer of 150 ms beside a clock",
        "setTimeout(show, 150)",
        "let ticks = 0; setInterval(() => document.getElementById('clock').textContent = ++ticks, 250);",
        '<p id="clock">0</p>',
    ),
    _click(
        "iframe that changes after 150 ms",
        f"""const inner = document.getElementById("inner").contentWindow;
        inner.setTimeout(() => inner.document.getElementById("word").textContent = "{EFFECT}", 150)""",
        more='<iframe id="inner" title="inner" srcdoc="<p id=word>Waiting</p>"></iframe>',
    ),
    _click(
        "list fed by a websocket after 150 ms",
        f"socket.send('{EFFECT}')",
        """const socket = new WebSocket(`ws://${location.host}/ws?ms=150`); socket.onmessage = ({data}) => {
        const item = document.createElement("li"); item.textContent = data;
        document.getElementById("list").append(item); };""",
        '<ul id="list"><li>First</li></ul>',
    ),
    _click(
        "lazy picture of 200 ms",
        """const picture = new Image(); picture.loading = "lazy"; picture.onload = show;
        picture.src = "/api/picture?ms=200"; document.getElementById("said").before(picture)""",
    ),
    _click(
        "toast that goes after 500 ms",
        "show(); setTimeout(() => say(''), 500)",
    ),
    _click(
        "worker that answers after 200 ms",
        "worker.postMessage(1)",
        """const worker = new Worker(URL.createObjectURL(new Blob([
        "onmessage = () => setTimeout(() => postMessage(1), 200)"]))); worker.onmessage = show;""",
    ),
    _click(
        "route by pushState, with a fetch of 150 ms",
        "history.pushState({}, '', '/effects/route'); load('/api/slow?ms=150').then(show)",
    ),
    Effect(
        "form with a redirect",
        "",
        f'<form action="/redirect"><input type="hidden" name="to" value="{ARRIVED}">{_GO}</form>',
    ),
)


def pages() -> dict[str, tuple[str, str]]:
    """Return the title and the body of each page by its path."""
    found = {effect.path: effect.page() for effect in (NOTHING, *EFFECTS)}
    return {**found, ARRIVED: ("Arrived", f"<p>{EFFECT}</p>")}
