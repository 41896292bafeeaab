"""What goes wrong in a tool, in words for the model that called it."""

from __future__ import annotations

import re
from typing import Final

_HELD: Final = re.compile(
    r"element is (?:not|outside)|intercepts pointer|did not find|navigation to finish"
)
"""Lines of Playwright's log that say why it waited."""


class ToolFailed(Exception):
    """Raised by a tool that could not do its work; its text is for the model that called it."""


def in_words(error: BaseException) -> str:
    """Return what an error says, without Playwright's log of its steps and of the browser, but with what held it up."""
    text, *log = re.split(r"\n(?:Call log|Browser logs):", str(error), maxsplit=1)
    text = re.sub(r"\n\s+at [^\n]*<anonymous>[^\n]*", "", text.strip())
    text = re.sub(r"^(?:\w+\.\w+: )?(?:Error: )?", "", text)[:2000] or type(error).__name__
    held = [line.strip("- ") for line in "".join(log).splitlines() if _HELD.search(line)]
    return f"{text} ({held[-1]})" if held and "Timeout" in text else text


def was_done(error: BaseException) -> bool:
    """Whether only the navigation that an action led to did not come about in time.

    Pressing the mouse is half of dragging.
    """
    steps = [line.strip("- ") for line in str(error).strip().splitlines()]
    if len(steps) < 2 or not steps[-1].startswith("waiting for scheduled navigations"):
        return False
    return steps[-2].endswith("action done") and not steps[-2].startswith("move and down")


__all__ = ["ToolFailed", "in_words", "was_done"]
