"""Saving the browser of one session, without what it may not keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ....sessions.errors import ServiceUnavailable
from ....sessions.services import Snapshot
from ....sessions.store.sealing.encryption import Encryption
from .capture import capture

if TYPE_CHECKING:
    from ..logins.sites import LoginSites
    from ..process.browser_process import BrowserProcess
    from ..session.session import BrowserSession

SAVE_SECONDS: Final = 15.0
CHECKPOINT_SECONDS: Final = 4.0


@dataclass(slots=True)
class CookieGuard:
    """Guards against saving a snapshot without cookies after the browser has lost them. Lives as long as the connection.

    `had_cookies` tells whether the last snapshot held cookies.
    """

    process: BrowserProcess
    had_cookies: bool

    def accept(self, cookies: Sequence[object]) -> None:
        """Check the cookies of a new snapshot.

        Raises:
            ServiceUnavailable: It holds none, the last one did, and it is not known whether the browser lost them.
        """
        if self.had_cookies and not cookies and not self.process.known_whole:
            raise ServiceUnavailable(
                "The browser has no cookies any more, and does not say whether it lost them."
            )
        self.had_cookies = bool(cookies)


async def save_session(
    encryption: Encryption | None,
    cookie_guard: CookieGuard,
    sites: LoginSites,
    session: BrowserSession,
    light: bool,
) -> Snapshot:
    """Return the snapshot of a session, without the `sites` of logins: it has those only while they are lent to it.

    Raises as capture() and CookieGuard.accept() do.
    """
    saved = await capture(
        session.context,
        session.tabs.pages,
        session.tabs.current_index,
        light=light,
        seconds=CHECKPOINT_SECONDS if light else SAVE_SECONDS,
        origins=session.origins,
    )
    saved, named = sites.leave_out(saved), session.secrets.named
    # Pages put tokens into addresses and fields.
    saved = replace(saved, tabs=[tab.masked(named.mask_lent) for tab in saved.tabs])
    cookie_guard.accept(saved.cookies)
    tabs = saved.tabs if named or named.typed else ()
    return replace(
        saved,
        pages=[{"title": named.mask(tab.title), "url": named.mask(tab.url)} for tab in tabs],
        typed=named.typed.to_json(),
        activities=session.activities(),
    ).to_snapshot(encryption)
