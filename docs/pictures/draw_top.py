"""Draw the table of `statehold top` as SVG: `uv run python docs/pictures/draw_top.py [FILE]`.

The script starts a server of its own with a browser and two more services, works in four of its sessions, runs the program
in a terminal, and ends everything.
"""

from __future__ import annotations

import fcntl
import http.server
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = Path(__file__).with_name("top.svg")
COLUMNS, ROWS = 112, 8
STATEHOLD = [sys.executable, "-m", "statehold"]
PAGE = "<title>Tea shop</title><h1>Tea</h1><button>Buy</button>"
ASKING = ROOT / "tests" / "upstreams" / "asking.py"
FOLDER = "~/.local/share/statehold"
"""The data folder of the picture, instead of a temporary one."""
SECONDS = 7.0
"""Seconds that the program is watched for."""
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS = {"brown": "yellow"}
"""The names of colours of the screen that rich calls otherwise."""
SETTINGS = f"""
[services.browser]

[services.notebook]
command = "{sys.executable}"
args = ["-m", "statehold.shell.demo.server"]

[services.deploy]
command = "{sys.executable}"
args = ["{ASKING}", "--era", "legacy"]
"""


def call(data: Path, *words: str) -> None:
    """Run `statehold call`."""
    command = [*STATEHOLD, f"--data={data}", f"--config={data.parent / 'statehold.toml'}", "call"]
    subprocess.run([*command, *words], check=False, stdout=subprocess.DEVNULL)


@contextmanager
def site(folder: Path) -> Generator[str]:
    """Serve one page on this machine, and yield its address."""
    (folder / "index.html").write_text(PAGE, encoding="utf-8")
    handler = partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def work(data: Path, url: str) -> Generator[None]:
    """Work in four sessions: calls one after the other, a long one, a question, and a pause."""
    for session in ("nightly-report", "research", "tea-shop"):
        call(data, session, "browser_navigate", f"url={url}", "--quiet")
    call(data, "nightly-report", "write_note", "text=done")
    subprocess.run(
        [*STATEHOLD, f"--data={data}", "sessions", "pause", "nightly-report"], check=True
    )
    call(data, "release", "inc")
    call(data, "release", "ask", "--no-input")
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            call(data, "tea-shop", "browser_snapshot", "--quiet")

    threads = [
        threading.Thread(target=repeat),
        threading.Thread(target=call, args=(data, "research", "browser_wait_for", "time=15")),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def read_screen(data: Path) -> pyte.Screen:
    """Return the screen of `statehold top` some seconds after its start."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environ["TERM"] = "xterm"
    command = [*STATEHOLD, f"--data={data}", "top"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, env=environ) as process:
        ends_at = time.monotonic() + SECONDS
        while time.monotonic() < ends_at:
            if select.select([controller], [], [], 0.2)[0]:
                stream.feed(os.read(controller, 1 << 16))
        process.terminate()
    os.close(controller)
    os.close(terminal)
    return screen


def put(screen: pyte.Screen, column: int, text: str) -> None:
    """Replace characters of the first line."""
    for number, char in enumerate(text, column):
        screen.buffer[0][number] = screen.buffer[0][number]._replace(data=char)


def draw(screen: pyte.Screen) -> str:
    """Return a screen as SVG without fonts from elsewhere."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    for number in range(ROWS):
        cells: list[Any] = [screen.buffer[number][column] for column in range(COLUMNS)]
        runs = groupby(cells, key=style_of)
        line = Text.assemble(*(("".join(char.data for char in run), style) for style, run in runs))
        console.print(line)
    template = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.S)
    template = re.sub(r" *<!--.*?-->\n", "", template)
    picture = console.export_svg(title="statehold top", code_format=template, unique_id="top")
    return picture.replace("Fira Code, monospace", FONTS)


def style_of(char: Any) -> Style:
    """Return the style of a character of the screen."""
    return Style(
        color=None if char.fg == "default" else COLOURS.get(char.fg, char.fg),
        bold=char.bold,
    )


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else PICTURE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        (folder / "site").mkdir()
        (folder / "statehold.toml").write_text(SETTINGS, encoding="utf-8")
        try:
            with site(folder / "site") as url, work(data, url):
                screen = read_screen(data)
        finally:
            subprocess.run([*STATEHOLD, f"--data={data}", "stop", "--all"], check=False)
    put(screen, 0, screen.display[0].replace(str(data), FOLDER).ljust(COLUMNS)[:COLUMNS])
    path.write_text(draw(screen), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
