"""The elements that the arguments of a call name: they are looked up, and described for code and for the journal."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from . import errors
from .answers.naming import NAME_REF, RoleAndName, code_of, find_by_role
from .answers.step_facts import StepTarget, role_target, target_of
from .errors import BrowserToolFailed, describe_error
from .session.locator import is_locator, parse_locator, parse_target

if TYPE_CHECKING:
    from playwright.async_api import Locator

    from .session.session import BrowserSession
    from .session.tab import Tab

VARIANT_SECONDS: Final = 1.0
"""Seconds in which a page has to tell how many elements an exact text matches."""
_REF: Final = re.compile(r"(?:g(\d+))?(?:t(\d+))?((?:f\d+)?e\d+)")


class ElementNotFound(BrowserToolFailed):
    """Raised when a target stands for no element, or for several: a snapshot helps to choose another."""


@dataclass(slots=True)
class Element:
    """An element of the page."""

    locator: Locator
    code: str
    """Playwright's Python for it."""
    ref: str | None = None
    """Its ref, if it was located by one."""


class Targets:
    """Looks up the elements of one call. It lives as long as the call."""

    def __init__(self, session: BrowserSession, *, wants_facts: bool) -> None:
        self._session = session
        self._config = session.config
        self._wants_facts = wants_facts
        self.steps: list[StepTarget] = []
        """The elements as locators that find them later, in the order in which they were looked up."""
        self._exact: dict[int, StepTarget] = {}
        """Variants with an exact text, by the positions of the elements that they may describe."""

    async def find(self, tab: Tab, target: str, name: str) -> Element:
        """Return the one element that a ref, a selector or a locator stands for. `name` is added to messages.

        Raises:
            BrowserToolFailed: No element matches, or more than one does. A ref that is no longer valid is refused at once.
        """
        match = _REF.fullmatch(target)
        if match is None:
            return await self._find_by_selector(tab, target, name)
        if int(match[1] or 1) != self._session.generation:
            raise ElementNotFound(
                f"Ref {target} is of no snapshot since the page was restored; {self._new_refs}."
            )
        if self._session.refs_are_void:
            raise ElementNotFound(
                f"Ref {target} is of a snapshot from before a person had control; {self._new_refs}."
            )
        if (number := int(match[2] or 1)) != tab.number:
            is_there = any(other.number == number for other in self._session.tabs)
            closed = "" if is_there else ", which is closed"
            select = ", or select that tab first" if is_there else ""
            raise ElementNotFound(
                f"Ref {target}{name} is of another tab{closed}; {self._new_refs}{select}."
            )
        named = None
        if match[3].startswith(NAME_REF):
            named = find_by_role(tab.last_snapshot or "", target)
        locator = tab.page.get_by_ref(match[3]) if named is None else named.locator(tab.page)
        return await self._find_by_ref(tab, locator, target, name)

    async def _find_by_ref(self, tab: Tab, locator: Locator, ref: str, name: str) -> Element:
        try:
            # Check first: a click on a missing ref would wait for its whole timeout.
            with limit_answer(tab, self._config.action_seconds):
                is_there = await locator.count() == 1
                code = await self._code_of(tab, locator, ref) if is_there else ""
        except errors.Error:
            is_there, code = False, ""
        if not is_there:
            raise ElementNotFound(f"Ref {ref}{name} is not on the page any more; {self._new_refs}.")
        return Element(locator, f"page.{code}", ref)

    async def _code_of(self, tab: Tab, locator: Locator, ref: str) -> str:
        """Return Playwright's Python for the element of a ref: by its test id, or its role and name in the snapshot."""
        snapshot = tab.last_snapshot or ""
        if self._wants_facts:
            return await self._record_element(tab, locator, snapshot, ref)
        code = None if await self._has_test_id(locator) else code_of(snapshot, ref)
        return str(await locator.normalize()) if code is None else code

    async def _record_element(self, tab: Tab, locator: Locator, snapshot: str, ref: str) -> str:
        """Return the code for an element as _code_of() does, and note the locator for its facts.

        One query tells that the element has no test id and is the only one of its role and name.
        """
        code: str | None = None
        named = find_by_role(snapshot, ref)
        if named is not None and await self._is_only(tab, named, locator):
            code = code_of(snapshot, ref)
        else:
            named = None
        if code is None:
            # It prefers the test id.
            code = str(await locator.normalize())
        self._record_step(code, None if "get_by_test_id" in code else named)
        return code

    async def _is_only(self, tab: Tab, named: RoleAndName, locator: Locator) -> bool:
        """Return whether one element has this role and name, and the element of `locator` has no test id.

        In a frame, nothing is known of the test id.
        """
        only = named.locator(tab.page)
        if not named.frame:
            # The elements around one with a test id are counted too.
            with_id = locator.and_(tab.page.locator(f"[{self._config.test_id_attribute}]"))
            only = only.or_(with_id.locator("xpath=ancestor::*"))
        return await _is_single(only)

    async def _has_test_id(self, locator: Locator) -> bool:
        attribute = self._config.test_id_attribute
        milliseconds = self._config.action_seconds * 1000
        return bool(await locator.get_attribute(attribute, timeout=milliseconds))

    def _record_step(self, code: str, named: RoleAndName | None = None) -> None:
        """Record the locator of an element for its facts; `named` is another one, known to match this element only."""
        with suppress(ValueError):
            step, exact = target_of(code)
            if named is not None:
                scopes = [step.scope] if named.frame else []
                scopes += [named.scope.code] if named.scope is not None else []
                step, exact = role_target(named.code, ".".join(scopes)), None
            if exact is not None:
                self._exact[len(self.steps)] = exact
            self.steps.append(step)

    @property
    def has_variants(self) -> bool:
        """Whether there is something for try_exact() to do."""
        return bool(self._exact)

    async def try_exact(self, tab: Tab) -> None:
        """Use the variants with an exact text that match one element. To be called before the action changes the page."""
        variants, self._exact = self._exact, {}
        if tab.modal.is_set():
            return
        with anyio.move_on_after(VARIANT_SECONDS), suppress(BrowserToolFailed):
            for position, step in variants.items():
                locator, _ = parse_locator(tab.page, step.code)
                if await _is_single(locator):
                    self.steps[position] = step

    async def _find_by_selector(self, tab: Tab, selector: str, name: str) -> Element:
        if not selector.strip():
            raise BrowserToolFailed("The target is empty; give a ref, a selector or a locator.")
        locator, code, first_hint = parse_target(tab.page, selector)
        step_code = code
        try:
            with limit_answer(tab, self._config.action_seconds):
                count = await locator.count()
                if count == 1 and "get_by_test_id" not in code:
                    if self._wants_facts and not is_locator(selector):
                        # Instead of the query for the test id, which it prefers.
                        step_code = str(await locator.normalize())
                        has_test_id = "get_by_test_id" in step_code
                    elif has_test_id := await self._has_test_id(locator):
                        step_code = str(await locator.normalize())
                    code = f"page.{step_code}" if has_test_id else code
        except errors.Error as error:
            raise BrowserToolFailed(
                f"{selector!r} is no selector and no ref: {describe_error(error)}"
            ) from None
        if count != 1:
            matches = "no element" if count == 0 else f"{count} elements"
            hint = "" if count == 0 else f" Use a ref, or add {first_hint} for the first."
            raise ElementNotFound(
                f"{selector!r} matches {matches}{name}; it has to match one.{hint}"
            )
        if self._wants_facts:
            self._record_step(step_code)
        return Element(locator, code)

    @property
    def _new_refs(self) -> str:
        """A hint about where to find refs that are valid."""
        if self._config.snapshot == "none":
            return "browser_snapshot gives new refs"
        return "use a ref of the snapshot below"


@contextmanager
def limit_answer(tab: Tab, seconds: float, *, late: float = 0.0) -> Generator[None]:
    """Cancel the block when the page of a tab has not answered `seconds` and `late` seconds after its begin.

    Raises:
        BrowserToolFailed: it was cancelled so.
    """
    with anyio.move_on_after(seconds + late) as scope:
        yield
    if scope.cancelled_caught:
        raise BrowserToolFailed(
            f"The page did not answer within {seconds:g} seconds{tab.navigation_hint}."
        )


async def _is_single(locator: Locator) -> bool:
    """Return whether a locator matches exactly one element; False if the page does not tell."""
    try:
        return await locator.count() == 1
    except errors.Error:
        return False
