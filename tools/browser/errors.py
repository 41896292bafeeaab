"""The errors of tools, in words for the model that called them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...sessions.errors import ServiceUnavailable
from ...sessions.one_line import without_folders

if TYPE_CHECKING:
    from playwright.async_api import Error as Error
    from playwright.async_api import TimeoutError as TimeoutError
else:

    def __getattr__(name: str) -> type[Exception]:
        """Return an error class of Playwright, which is imported then: that takes longer than the start of a server."""
        if name not in ("Error", "TimeoutError"):
            raise AttributeError(name)
        from playwright import async_api

        return getattr(async_api, name)


_WAIT_REASON: Final = re.compile(
    r"element is (?:not|outside)|intercepts pointer|did not find|navigation to finish|waiting for fonts"
)
"""Matches lines of Playwright's log that tell why it waited."""

_LAST_STEP: Final = re.compile(r"performing (?:click|dblclick|tap) action|elementHandle\.press\(.*")
"""Matches the line of Playwright's log about the step of an action that a page notices."""
_INPUTS: Final = ("Keyboard.press:", "Mouse.click:", "Touchscreen.tap:")
"""The beginnings of errors of actions that have this step only."""

_CAUSES: Final = (
    (
        re.compile(r"sandboxing failed|No usable sandbox"),
        "its sandbox does not work here; `statehold doctor` says what to change",
    ),
    (
        re.compile(r"Missing X server|without having a XServer"),
        "there is no display for its window",
    ),
    (
        re.compile(r"error while loading shared libraries: (?P<what>[\w.+-]+)"),
        "{what} is missing on this machine; `playwright install-deps chromium` installs what it needs",
    ),
    (
        re.compile(r"Host system is missing dependencies"),
        "libraries are missing on this machine; `playwright install-deps chromium` installs them",
    ),
    (
        re.compile(r"Timeout (?P<what>\d+)\d{3}ms exceeded"),
        "it did not answer within {what} seconds",
    ),
    (re.compile(r"\bspawn .*\b(?P<what>E[A-Z]+)"), "it cannot be run ({what})"),
    (re.compile(r"did exit: exitCode=(?P<what>\d+)"), "it ended at once, with exit code {what}"),
    (re.compile(r"did exit: exitCode=null, signal=(?P<what>\w+)"), "it ended at once, by {what}"),
)
"""The causes of a failed start, by patterns in the output of Playwright and the browser, the likeliest cause first."""
_OUTPUT: Final = re.compile(r"\[pid=\d+\]\[(?:err|out)\] (.*)")
OUTPUT_LINES: Final = 10
"""The number of lines of a browser's output that go into the log."""


class BrowserToolFailed(Exception):
    """Raised by a tool that could not do its work; its text is for the model that called it."""


class InvalidSetting(ServiceUnavailable):
    """Raised when a setting, or the file that it names, is wrong. A retry does not help."""

    retryable = False
    recovery = "Ask the operator of the server to correct it."


def describe_error(error: BaseException) -> str:
    """Return the message of an error, without Playwright's logs; for a timeout, with the last cause of waiting from them."""
    text, *log = re.split(r"\n(?:Call log|Browser logs):", str(error), maxsplit=1)
    text = re.sub(r"\n\s+at [^\n]*<anonymous>[^\n]*", "", text.strip())
    text = re.sub(r"^(?:\w+\.\w+: )?(?:Error: )?", "", text)[:2000] or type(error).__name__
    reasons = [line.strip("- ") for line in "".join(log).splitlines() if _WAIT_REASON.search(line)]
    return f"{text} ({reasons[-1]})" if reasons and "Timeout" in text else text


def describe_exception(error: BaseException) -> str:
    """Return the type and the message of an error of any kind, without the paths of this machine."""
    # The message of an OSError has a path.
    message = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, TimeoutError) and not str(error):
        message = "it took too long"
    message = without_folders(message or describe_error(error))
    return f"{type(error).__name__}: {message.rstrip('.')}"


def explain_failed_start(error: BaseException) -> str:
    """Return why a browser did not start, in words for the caller."""
    text = str(error)
    for pattern, words in _CAUSES:
        if match := pattern.search(text):
            return words.format(**match.groupdict())
    return re.sub(r", \w+ '.*", "", describe_error(error).partition("\n")[0])


def output_lines(error: BaseException) -> list[str]:
    """Return the last lines of output of a browser that did not start, for the log of the server."""
    lines = dict.fromkeys(line[:500] for line in _OUTPUT.findall(str(error)))
    return list(lines)[-OUTPUT_LINES:]


def was_action_done(error: BaseException) -> bool:
    """Return whether a failed action itself was done: the navigation that it caused is late, or its page has closed.

    False for a mouse press, which is only half of a drag.
    """
    steps = [line.strip("- ") for line in str(error).strip().splitlines()]
    if steps and steps[0].endswith("has been closed"):
        return steps[0].startswith(_INPUTS) or _LAST_STEP.fullmatch(steps[-1]) is not None
    if len(steps) < 2 or not steps[-1].startswith("waiting for scheduled navigations"):
        return False
    return steps[-2].endswith("action done") and not steps[-2].startswith("move and down")
