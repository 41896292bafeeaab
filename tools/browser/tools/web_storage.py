"""Local storage and session storage of the current page's site."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field

from ...definition import NoArguments
from .. import errors
from ..call import BrowserCall
from ..devtools.world import origin_of
from ..errors import BrowserToolFailed, describe_error
from ..tool import BrowserArguments, BrowserTool, tool

if TYPE_CHECKING:
    from ..devtools.sdk import WebStorage

Run: TypeAlias = Callable[[BrowserCall, Any], Awaitable[None]]

_SET_ITEM: Final = "(area, [key, value]) => area.setItem(key, value)"


class Key(BrowserArguments):
    key: str


class Item(BrowserArguments):
    key: str
    value: Annotated[str, Field(description="Always a text; JSON where the site keeps JSON")]


@dataclass(frozen=True, slots=True)
class Area:
    """One of the two storages, and its five tools."""

    name: str
    """The name of the JavaScript object."""
    attribute: str
    """The name of the property in Playwright's Python."""
    lasts: str

    @asynccontextmanager
    async def of(self, call: BrowserCall, code: str) -> AsyncGenerator[WebStorage]:
        """Yield the storage of the current page.

        Raises:
            BrowserToolFailed: The page belongs to no site, or its storage refuses access.
        """
        page = (await call.ready_tab()).page
        # A page without an address of its own may have the origin of another one.
        sites, is_blank = call.login_sites, origin_of(page.url) is None
        if sites.has_address(page.url) or (sites and is_blank):
            raise BrowserToolFailed(f"The {self.name} of {page.url[:200]} belongs to a login.")
        try:
            yield page.local_storage if self.attribute == "local_storage" else page.session_storage
        except errors.Error as error:
            reason = describe_error(error).splitlines()[0]
            if "SecurityError" in reason:
                raise BrowserToolFailed(
                    f"The page {page.url[:200]} has no {self.name}; open a page of a site first."
                ) from None
            raise BrowserToolFailed(f"{self.name} failed: {reason}") from None
        call.answer.code(f"await page.{self.attribute}.{code}")

    async def list_items(self, call: BrowserCall, arguments: NoArguments) -> None:
        async with self.of(call, "items()") as storage:
            lines = [f"{item['name']}={item['value']}" for item in await storage.items()]
            call.answer.result("\n".join(lines) or f"No {self.name} items found")

    async def get_item(self, call: BrowserCall, arguments: Key) -> None:
        async with self.of(call, f"get_item({arguments.key!r})") as storage:
            value = await storage.get_item(arguments.key)
        item = f"{arguments.key}={value}"
        call.answer.result(
            f"{self.name} key '{arguments.key}' not found" if value is None else item
        )

    async def set_item(self, call: BrowserCall, arguments: Item) -> None:
        async with self.of(call, f"set_item({arguments.key!r}, {arguments.value!r})") as storage:
            named = call.session.secrets.named
            if not named.may_be_in(arguments.value):
                await storage.set_item(arguments.key, arguments.value)
                return
            page = (await call.tab()).page
            # It belongs to one document: a page that navigates meanwhile gets nothing.
            area = await page.evaluate_handle(self.name)
            value = named.insert(arguments.value, page.url)
            await area.evaluate(_SET_ITEM, [arguments.key, value])

    async def delete_item(self, call: BrowserCall, arguments: Key) -> None:
        async with self.of(call, f"remove_item({arguments.key!r})") as storage:
            if await storage.get_item(arguments.key) is None:
                call.answer.result(f"{self.name} key '{arguments.key}' not found")
            await storage.remove_item(arguments.key)

    async def clear_items(self, call: BrowserCall, arguments: NoArguments) -> None:
        async with self.of(call, "clear()") as storage:
            await storage.clear()

    def tools(self) -> list[BrowserTool]:
        name, site = self.name, "the current page's site"
        return [
            self._tool("list", self.list_items, f"Return the whole {name} of {site}."),
            self._tool("get", self.get_item, f"Return one {name} item of {site}."),
            self._tool("set", self.set_item, f"Set an item of {site}, {self.lasts}."),
            self._tool("delete", self.delete_item, f"Delete one {name} item of {site}."),
            self._tool("clear", self.clear_items, f"Delete the whole {name} of {site}."),
        ]

    def _tool(self, word: str, run: Run, description: str) -> BrowserTool:
        name = f"browser_{self.name.lower()}_{word}"
        title = f"{word.capitalize()} {self.name}{'' if word in ('list', 'clear') else ' item'}"
        return tool(
            name,
            title=title,
            cap="storage",
            read_only=word in ("list", "get"),
            description=description,
        )(run)


LOCAL = Area("localStorage", "local_storage", "in the storage that lasts")
SESSION = Area("sessionStorage", "session_storage", "in the storage of this tab alone")

TOOLS: list[BrowserTool] = [*LOCAL.tools(), *SESSION.tools()]
