"""The scripted agent: how it looks for something on a page, and what it does when it does not see it.

It knows nothing but what it read: results, and the snapshot files they link. It forgets a page when the address changes.
What it does not find there it looks for in this order, like a model, until it sees it:

1. It reads the snapshot file that the last result links, if the route says so; else it searches the page with
   `browser_find`. It does neither when it has just seen the whole page.
2. It waits for the text with `browser_wait_for`, where it expects a text.
3. It takes a `browser_snapshot`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from .servers import Result, Server

_ADDRESS: Final = re.compile(r"^- Page URL: ([^#\s]+)", re.MULTILINE)
_SNAPSHOT: Final = re.compile(r"^### Snapshot\n```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ADDED: Final = re.compile(r"^(\+ *- |\(nothing changed\))", re.MULTILINE)
_REMOVED: Final = re.compile(r"^- *- ", re.MULTILINE)
"""A snapshot with such lines is the difference to the last one."""
_INCOMPLETE: Final = re.compile(r"left out|browser_find")
"""A result with a part of the page says so, and how to get more."""

T = TypeVar("T")


class NotSeen(Exception):
    """Raised when the agent does not find something by any means it has."""


class Agent:
    """The work on one task. `notes` names what failed on the way."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.notes: list[str] = []
        self._address = ""
        self._known: list[str] = []
        """Texts about this page, the newest first."""
        self._fresh: list[str] = []
        """Those since the last action."""
        self._file: Path | None = None
        self._sees_all = False
        """Whether it has read all of the page as it is now."""
        self._knew_all = False
        """Whether it had when a result last showed a snapshot, to which the next one may be the difference."""
        self._has_read = False
        """Whether it read a snapshot file of this page."""

    async def open(self, url: str) -> Result:
        """Go to an address; try again, twice at most, when another navigation interrupted it."""
        result = await self._act("browser_navigate", {"url": url})
        for _ in range(2):
            if result.is_error and "interrupted" in result.text:
                self.notes.append("opened again")
                result = await self._act("browser_navigate", {"url": url})
        return result

    async def click(self, role: str, name: str) -> None:
        await self._on("browser_click", role, name, {})

    async def type(self, role: str, name: str, text: str) -> None:
        await self._on("browser_type", role, name, {"text": text})

    async def select(self, name: str, value: str) -> None:
        await self._on("browser_select_option", "combobox", name, {"values": [value]})

    async def fill(self, *fields: tuple[str, str, str]) -> None:
        """Fill in fields of a form, given by role, name and value, in one call."""
        kinds = {"spinbutton": "textbox"}
        filled = [
            {
                "name": name,
                "type": kinds.get(role, role),
                "target": await self._ref(role, name),
                "value": value,
            }
            for role, name, value in fields
        ]
        await self._act("browser_fill_form", {"fields": filled})

    async def press(self, key: str) -> None:
        await self._act("browser_press_key", {"key": key})

    async def upload(self, file: Path) -> None:
        await self._act("browser_file_upload", {"paths": [str(file)]})

    async def see(self, words: str) -> None:
        """Wait until the result of the last action, or what is looked up after it, shows a text."""
        await self._look(lambda text: words in text or None, words, fresh=True)

    async def sees(self, words: str) -> bool:
        """Return whether the page shows a text now, without waiting for it."""
        try:
            await self._look(lambda text: words in text or None, words, fresh=True, wait=False)
        except NotSeen:
            return False
        return True

    async def read(self, pattern: str, words: str, *, fresh: bool = False) -> str:
        """Return the group of a pattern in a text about the page; `words` is what the agent searches for."""
        sought = re.compile(pattern, re.DOTALL)
        match = await self._look(sought.search, words, fresh=fresh)
        return match[1]

    async def _on(self, tool: str, role: str, name: str, more: dict[str, Any]) -> None:
        target = await self._ref(role, name)
        result = await self._act(tool, {"element": name, "target": target, **more})
        if result.is_error:
            # The page may have changed since the ref was read.
            self._known.clear()
            self._fresh.clear()
            target = await self._ref(role, name)
            result = await self._act(tool, {"element": name, "target": target, **more})
        if result.is_error:
            self.notes.append(f"{tool} on {name} failed: {' '.join(result.text.split())[:200]}")

    async def _ref(self, role: str, name: str) -> str:
        pattern = re.compile(rf'{role} "{re.escape(name)}"(?: \[[^\]]*\])*? \[ref=(\w+)\]')
        match = await self._look(pattern.search, name)
        return match[1]

    async def _act(self, tool: str, arguments: dict[str, Any]) -> Result:
        result = await self.server.call(tool, arguments)
        self._fresh.clear()
        self._remember(result)
        return result

    def _remember(self, result: Result) -> None:
        address = _ADDRESS.search(result.text)
        if address is not None and address[1] != self._address:
            self._address = address[1]
            self._known.clear()
            self._has_read = False
        self._keep(result.text)
        self._file = self.server.linked_file(result.text)
        self._sees_all = False
        if snapshot := _SNAPSHOT.search(result.text):
            complete = not _INCOMPLETE.search(result.text)
            is_difference = _ADDED.search(snapshot[1]) or _REMOVED.search(snapshot[1])
            self._knew_all = complete and (self._knew_all or not is_difference)
            self._sees_all = self._knew_all

    async def _look(
        self,
        sought: Callable[[str], T | None],
        words: str,
        *,
        fresh: bool = False,
        wait: bool = True,
    ) -> T:
        """Return what is sought in the first text that has it, of those the agent read or then looks up."""
        for text in self._fresh if fresh else self._known:
            if found := sought(text):
                return found
        async for text in self._lookups(words, wait=wait):
            if found := sought(text):
                return found
        raise NotSeen(f"{words!r} is not on the page {self._address}")

    async def _lookups(self, words: str, *, wait: bool) -> AsyncGenerator[str]:
        async for text in self._parts(words):
            yield text
        if not wait:
            return
        yield await self._called("browser_wait_for", {"text": words})
        async for text in self._parts(words):
            yield text
        if not self._sees_all:
            yield await self._called("browser_snapshot", {})

    async def _parts(self, words: str) -> AsyncGenerator[str]:
        """Look at what the page has now beyond the last result."""
        if self._sees_all:
            return
        reads = self.server.route.reads
        if self._file is None or reads == "never" or (reads == "once" and self._has_read):
            yield await self._called("browser_find", {"text": words})
            return
        text = self.server.read(self._file)
        self._file, self._sees_all, self._has_read = None, True, True
        yield self._keep(text)

    async def _called(self, tool: str, arguments: dict[str, Any]) -> str:
        result = await self.server.call(tool, arguments)
        if tool != "browser_find":
            self._remember(result)
            return self._fresh[0]
        return self._keep(result.text)

    def _keep(self, text: str) -> str:
        """Return and remember the lines that are of the page; others repeat what was asked for."""
        lines = (line for line in text.splitlines() if not _REMOVED.match(line))
        shown = "\n".join(line for line in lines if line.lstrip().startswith(("-", "+")))
        self._known.insert(0, shown)
        self._fresh.insert(0, shown)
        return shown
