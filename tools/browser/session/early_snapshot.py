"""A snapshot taken while a page settles. If the page does not change meanwhile, no other snapshot is needed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....sessions.owned_map import BoundedMap
from .. import errors
from ..devtools.world import World, WorldError

if TYPE_CHECKING:
    from .tab import Tab

SMALL: Final = 500
"""The most elements of a page for an early snapshot: on a larger page a wasted one costs more than it saves."""
LARGE: Final = 3000
"""The most elements for an early snapshot of a page that is known to settle: a larger one takes longer than settling."""
MAX_ADDRESSES: Final = 200
"""The number of addresses kept in SettledAddresses."""

_COUNT_ELEMENTS: Final = f"""(function count(root, found) {{
  for (const element of root.querySelectorAll("*")) {{
    if (++found > {LARGE}) break;
    if (element.shadowRoot) found = count(element.shadowRoot, found);
  }}
  return found;
}})(document, 0)"""


class SettledAddresses:
    """The addresses of pages that did not change while they last settled. Lives as long as a session."""

    def __init__(self) -> None:
        self._urls = BoundedMap[str, None](MAX_ADDRESSES)

    def __contains__(self, url: str) -> bool:
        return url in self._urls

    def note(self, url: str, *, is_unchanged: bool) -> None:
        """Note whether the page at an address stayed the same this time. Only the latest addresses are kept."""
        if is_unchanged:
            self._urls[url] = None
        else:
            self._urls.pop(url, None)


@dataclass(slots=True)
class EarlySnapshot:
    """An early snapshot of a page. Valid only once it is known that the page did not change meanwhile."""

    tab: Tab
    settled_addresses: SettledAddresses
    boxes: bool = False
    """Whether the snapshot has the places of elements."""
    title: object = None
    """The title that the page reports; pages may report a value that is no string."""
    snapshot: str | None = None

    @property
    def is_whole(self) -> bool:
        return isinstance(self.title, str) and self.snapshot is not None

    async def take(self, world: World) -> None:
        """Take a snapshot if the page is small enough. Never raises; if the page does not answer, `snapshot` stays None."""
        # An earlier snapshot may show another page.
        self.snapshot = None
        with suppress(errors.Error, WorldError):
            if await world.evaluate(_COUNT_ELEMENTS) <= (
                LARGE if self.tab.page.url in self.settled_addresses else SMALL
            ):
                self.snapshot = await self.tab.page.aria_snapshot(
                    mode="ai", boxes=self.boxes or None
                )


async def prepare(tab: Tab) -> None:
    """Install the script that a snapshot needs in each document, which takes longer than a small snapshot itself."""
    with suppress(errors.Error):
        await tab.page.locator(":root").count()
