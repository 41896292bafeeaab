"""The `init_page` files of the configuration: Python code that prepares the first page of a browser context."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ..process.sdk import LISTENER_REPORT
from .failures import InvalidSetting, describe_exception
from .tabs import Tabs

if TYPE_CHECKING:
    from playwright.async_api import Page

logger = logging.getLogger("statehold.browser")

INIT_SECONDS: Final = 20.0


async def run_init_pages(
    files: Sequence[str], tabs: Tabs, report: Callable[[BaseException], None]
) -> None:
    """Run `default(page)` of each file with the current page, in order. Without files, no page is opened.

    `report` gets the errors of event listeners of the files, for as long as the page lives.

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
            raise InvalidSetting(f"`init_page` failed: {describe_exception(error)}.") from error


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


__all__ = ["run_init_pages"]
