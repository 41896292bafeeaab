"""A restore that its caller cancels leaves nothing in the process that drives the browser."""

from __future__ import annotations

import anyio
import psutil
import pytest
from playwright.async_api import BrowserContext, async_playwright
from support.node_memory import CONTEXT_CLASS, INSPECTABLE, count_objects
from support.saved_contexts import FLAGS

from statehold.tools.browser.snapshot.model import ContextSnapshot
from statehold.tools.browser.snapshot.restore import restore_context
from statehold.tools.browser.snapshot.saved_storage import OriginStorage

RESTORES = 20
COOKIES = [
    {"name": f"name{number}", "value": "value", "url": "http://site.invalid"}
    for number in range(20)
]


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["opening", "cookies"])
async def test_a_cancelled_restore_leaves_no_context_in_memory(
    moment: str, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in INSPECTABLE.items():
        monkeypatch.setenv(name, value)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shell, args=FLAGS)
        node = next(one for one in psutil.Process().children() if "cli.js" in str(one.cmdline()))

        async def cancel_restore() -> None:
            with anyio.CancelScope() as scope:
                # The first step of Playwright that waits is cancelled after its request was sent.
                async def cancel_soon(_: BrowserContext, __: OriginStorage) -> None:
                    tasks.start_soon(cancel, scope)

                async with anyio.create_task_group() as tasks:
                    if moment == "opening":
                        tasks.start_soon(cancel, scope)
                    await restore_context(
                        browser,
                        ContextSnapshot(cookies=COOKIES),
                        context_options={},
                        prepare=cancel_soon,
                    )

        for _ in range(RESTORES):
            await cancel_restore()
        with anyio.fail_after(10):
            while browser.contexts:
                await browser.contexts[0].wait_for_event("close")
        assert await count_objects(node, CONTEXT_CLASS) == 0
        await browser.close()


async def cancel(scope: anyio.CancelScope) -> None:
    scope.cancel()
