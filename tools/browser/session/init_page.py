"""The `init_page` files of the configuration: Python code that prepares the first page of a browser context."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ..devtools.sdk import LISTENER_REPORT
from ..errors import InvalidSetting, describe_exception
from ..secrets.spellings import mask_logins
from .tab_list import Tabs

if TYPE_CHECKING:
    from playwright.async_api import Page

logger = logging.getLogger("statehold.browser")

INIT_SECONDS: Final = 20.0
MAX_ERRORS: Final = 5
"""The most errors of listeners that are kept until the next call."""
LONGEST_ERROR: Final = 2000


class ListenerErrors:
    """The errors of event listeners of init pages since the last call: MAX_ERRORS as texts, the others counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._others = 0

    def __len__(self) -> int:
        return len(self._texts) + self._others

    def add(self, error: BaseException) -> None:
        if len(self._texts) < MAX_ERRORS:
            self._texts.append(
                f"A listener of `init_page` failed: {describe_exception(error)[:LONGEST_ERROR]}."
            )
        else:
            self._others += 1

    def take(self) -> list[str]:
        """Return a line for each error, and one for the others."""
        lines, self._texts = self._texts, []
        if self._others:
            lines.append(f"{self._others} more errors of listeners of `init_page`.")
            self._others = 0
        return lines


async def run_init_pages(
    files: Sequence[str],
    tabs: Tabs,
    report: Callable[[BaseException], None],
    mask: Callable[[str], str],
) -> None:
    """Run `default(page)` of each file with the current page, in order. Without files, no page is opened.

    `report` gets the errors of event listeners of the files, for as long as the page lives. `mask` removes secrets from a
    text.

    Raises:
        InvalidSetting: A file cannot be loaded, or its function failed or took longer than INIT_SECONDS.
    """
    for number, file in enumerate(files):
        page = (await tabs.ensure()).page
        try:
            prepare = await anyio.to_thread.run_sync(_load, file, number, report)
            with anyio.fail_after(INIT_SECONDS):
                await prepare(page)
        except (Exception, SystemExit) as error:
            logger.exception("`init_page` failed: %s", file)
            text = mask_logins(mask(describe_exception(error)))
            raise InvalidSetting(f"`init_page` failed: {text}.") from error


def _load(
    path: str, number: int, report: Callable[[BaseException], None]
) -> Callable[[Page], Awaitable[object]]:
    spec = importlib.util.spec_from_file_location(f"statehold_init_page_{number}", path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__[LISTENER_REPORT] = report
    spec.loader.exec_module(module)
    return module.default
