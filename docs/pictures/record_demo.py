"""Record a run of `statehold demo` as an animated SVG: `uv run python docs/pictures/record_demo.py [FILE]`.

The program runs in a terminal of its own. Each line appears at the time at which it came, but no pause is longer than
LONGEST_PAUSE. CSS alone animates the picture: without animations it shows the first lines.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMAND = [sys.executable, "-m", "statehold", "demo"]
PICTURE = Path(__file__).with_name("demo.svg")
COLUMNS, ROWS = 100, 26
LONGEST_PAUSE = 2.0
LAST_PAUSE = 5.0
PROMPT = b"Enter or Ctrl-C ends the demo."
FONT_SIZE, LINE_HEIGHT, CHARACTER_WIDTH, MARGIN = 13, 18, 7.85, 14
STYLE = (
    f"text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "white-space:pre;fill:#d8dee9}.b{font-weight:bold;fill:#fff}.n{fill:#7fd6e0}"
)
CLASSES = {"1": "b", "36": "n"}
"""The class of a text by its style in the demo: bold titles, and notes of Statehold."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output, with its styles as escape sequences, and the second at which it came."""

    at: float
    text: str


def record(command: list[str]) -> list[Line]:
    """Run a command in a terminal and return its output.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    started_at = time.monotonic()
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, env=environment) as process:
        os.close(terminal)
        lines = list(_read_lines(controller, started_at))
    os.close(controller)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return lines


def _read_lines(controller: int, started_at: float) -> Iterator[Line]:
    rest = b""
    while chunk := _read(controller):
        if PROMPT in rest + chunk:
            os.write(controller, b"\n")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield Line(time.monotonic() - started_at, line.decode().rstrip())


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65536)
    except OSError:  # Linux reports the end of the other side so
        return b""


def shorten_pauses(lines: list[Line]) -> list[Line]:
    """Return the lines with no pause longer than LONGEST_PAUSE."""
    shortened: list[Line] = []
    at = before = 0.0
    for line in lines:
        at += min(line.at - before, LONGEST_PAUSE)
        before = line.at
        shortened.append(Line(at, line.text))
    return shortened


def draw(lines: list[Line]) -> str:
    """Return the animated picture of a terminal with these lines."""
    inner_width, inner_height = round(COLUMNS * CHARACTER_WIDTH), ROWS * LINE_HEIGHT
    width, height = inner_width + 2 * MARGIN, inner_height + 2 * MARGIN
    texts = [
        f'<text id="l{number}" class="l" y="{(number + 1) * LINE_HEIGHT - 5}">{_spans(line.text)}</text>'
        for number, line in enumerate(lines)
        if line.text
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>A run of statehold demo</title>",
        f"<style>{STYLE}",
        "@media (prefers-reduced-motion:no-preference){",
        *_animations(lines),
        "}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b2029"/>',
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{inner_width}" height="{inner_height}"><g id="s">',
        *texts,
        "</g></svg>",
        "</svg>\n",
    ]
    return "\n".join(parts)


def _animations(lines: list[Line]) -> Iterator[str]:
    """Yield the rules by which each line appears, and by which the whole scrolls when the terminal is full."""
    seconds = lines[-1].at + LAST_PAUSE
    yield f".l,#s{{animation:s {seconds:.2f}s step-end infinite}}"
    scroll = "0%{transform:none}"
    for number, line in enumerate(lines):
        share = f"{100 * line.at / seconds:.2f}%"
        if line.text:
            yield f"#l{number}{{animation-name:l{number}}}"
            yield f"@keyframes l{number}{{0%{{opacity:0}}{share}{{opacity:1}}}}"
        if number >= ROWS:
            scroll += f"{share}{{transform:translateY(-{(number - ROWS + 1) * LINE_HEIGHT}px)}}"
    yield f"@keyframes s{{{scroll}}}"


def _spans(text: str) -> str:
    parts = re.split(r"\x1b\[([0-9]+)m", text)
    styles = [None, *parts[1::2]]
    drawn = ""
    for style, part in zip(styles, parts[::2], strict=True):
        if part:
            name = CLASSES.get(style or "")
            words = html.escape(part, quote=False)
            drawn += f'<tspan class="{name}">{words}</tspan>' if name else words
    return drawn


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else PICTURE
    path.write_text(draw(shorten_pauses(record(COMMAND))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
