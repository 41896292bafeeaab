"""JavaScript that runs in the node that comes with Playwright, in a process of its own that ends with the call.

It matches regular expressions from callers: they are JavaScript's, and one that never ends must not block other sessions. It
also runs code from callers where the configuration allows that.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio

from ..devtools.sdk import driver_command, guid_of
from ..errors import BrowserToolFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

MATCH_SECONDS: Final = 2.0
"""Seconds for which a regular expression may search."""
START_SECONDS: Final = 15.0
"""Seconds that Node may need besides to start, on a busy machine."""

_endpoints: WeakKeyDictionary[Browser, str] = WeakKeyDictionary()
"""The endpoints of browsers that are bound as long as they live."""
_binding_locks: WeakKeyDictionary[Browser, anyio.Lock] = WeakKeyDictionary()

_MATCH: Final = """
const [pattern, flags, lines, timeout] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const say = answer => console.log(JSON.stringify(answer));
let found;
try { found = new RegExp(pattern, flags.replace(/[gy]/g, "")); }
catch (error) { say({error: error.message}); process.exit(0); }
const search = "lines.flatMap((line, n) => found.test(line) ? [n] : [])";
try { say({found: require("vm").runInNewContext(search, {lines, found}, {timeout})}); }
catch { say(null); }
"""

_RUN: Final = """
const {package, endpoint, guid, code} = JSON.parse(require("fs").readFileSync(0, "utf8"));
const say = found => require("fs").writeSync(1, "\\n" + JSON.stringify(found) + "\\n");
try { new (require("vm").Script)("(" + code + ")"); }
catch (error) { say({error: error.message}); process.exit(0); }
(async () => {
  const browser = await require(package).chromium.connect(endpoint);
  try {
    const page = browser.contexts().flatMap(c => c.pages()).find(p => p._guid === guid);
    if (!page) throw new Error("the page is gone");
    const value = await (0, eval)("(" + code + ")")(page);
    say({value: value === undefined ? "" : JSON.stringify(value)});
  } catch (error) { say({error: String(error && error.message || error)}); }
  process.exit(0);
})();
"""


async def match_lines(pattern: str, flags: str, lines: list[str]) -> list[int]:
    """Return the indexes of the lines that a JavaScript regular expression matches.

    Raises:
        BrowserToolFailed: The pattern is invalid or takes too long.
    """
    request = [pattern, flags, lines, round(MATCH_SECONDS * 1000)]
    answer = await _node(_MATCH, request, MATCH_SECONDS + START_SECONDS)
    if answer is None:
        raise BrowserToolFailed(f"/{pattern}/ takes too long; write a simpler one.")
    if "error" in answer:
        raise BrowserToolFailed(f"/{pattern}/ is no regular expression: {answer['error']}")
    return answer["found"]


def register_endpoint(browser: Browser, endpoint: str) -> None:
    """Register the endpoint of a browser that is bound as long as it lives."""
    _endpoints[browser] = endpoint


async def run_code(page: Page, code: str, *, seconds: float) -> str:
    """Run a JavaScript function with Playwright's page object. Return its value as JSON, or "" if it has none.

    Raises:
        BrowserToolFailed: The function failed, or was killed because it did not end in time.
    """
    browser = page.context.browser
    if browser is None:
        raise BrowserToolFailed("Code cannot be run in a browser elsewhere.")
    if (endpoint := _endpoints.get(browser)) is not None:
        return await _run_code_at(endpoint, page, code, seconds)
    # A browser can be bound only once at a time, and sessions share browsers.
    async with _binding_locks.setdefault(browser, anyio.Lock()):
        # A TCP port with a secret in its address: the path of a socket would be too long in a deep data folder.
        name = f"statehold-{secrets.token_hex(4)}"
        binding: Any = await browser.bind(name, host="127.0.0.1", port=0)
        try:
            return await _run_code_at(binding["endpoint"], page, code, seconds)
        finally:
            with anyio.CancelScope(shield=True):
                await browser.unbind()


async def _run_code_at(endpoint: str, page: Page, code: str, seconds: float) -> str:
    request = {"endpoint": endpoint, "guid": guid_of(page), "code": code, "package": _package()}
    answer = await _node(_RUN, request, seconds)
    if answer is None:
        raise BrowserToolFailed(f"The code did not end within {seconds:g} seconds and was stopped.")
    if "error" in answer:
        raise BrowserToolFailed(str(answer["error"]))
    return answer["value"]


async def _node(script: str, payload: object, seconds: float) -> Any:
    """Run a script that reads JSON and prints a line of JSON. Return the decoded line, or None if it takes too long."""
    node, _ = driver_command()
    # Code from callers gets none of our environment but these variables.
    environment = {
        key: os.environ[key]
        for key in ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")
        if key in os.environ
    }
    with anyio.move_on_after(seconds):
        result = await anyio.run_process(
            [node, "-e", script], input=json.dumps(payload).encode(), env=environment, check=False
        )
        lines = [
            line for line in result.stdout.decode(errors="replace").splitlines() if line.strip()
        ]
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            errors = result.stderr.decode(errors="replace").strip()
            reason = next(
                (line for line in errors.splitlines() if re.search(r"Error", line)), errors
            )
            raise BrowserToolFailed(f"It could not be run: {reason[:500]}") from None
    return None


def _package() -> str:
    _, program = driver_command()
    return os.path.dirname(program)
