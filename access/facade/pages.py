"""The pages of a login: consent, the way on, and errors. They have no script and load nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, Response

from ...sessions.one_line import plain_name
from ..scopes import ADMIN, CONTROL, READ, USE
from .clients import PREFIX, FacadeClient, LoginRequest

SCOPE_TEXTS: Final = {
    READ: "See your sessions, their states and their histories",
    USE: "Create and change sessions, and use every tool in them",
    CONTROL: "Take over your sessions, and share them with other people",
    ADMIN: "Delete, export and import sessions, and see statistics of the server",
}
"""The scopes in words, each of which includes those before it."""

_STYLE: Final = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --line: #d8dce2; --text: #1b1f24; --quiet: #59636e;
  --accent: #0b5cd5; --on-accent: #fff; --warn: #8a5a00; --warn-bg: #fff4d9;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1216; --card: #171b21; --line: #303741; --text: #e6e9ee;
  --quiet: #9aa5b1; --accent: #6ea8fe; --on-accent: #0b1526; --warn: #e2b14a; --warn-bg: #33290f; } }
*, ::before, ::after { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 16px; background: var(--bg);
  color: var(--text); }
main { width: min(480px, 100%); background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 24px; overflow-wrap: anywhere; }
h1 { font-size: 20px; line-height: 1.3; margin: 0 0 16px; text-wrap: balance; }
h2 { font-size: 14px; margin: 16px 0 4px; color: var(--quiet); font-weight: 600; }
p { margin: 0 0 12px; } ul { margin: 0; padding-left: 20px; } li { margin: 2px 0; }
dl { margin: 16px 0; border-top: 1px solid var(--line); }
dl div { display: grid; grid-template-columns: 132px 1fr; gap: 12px; padding: 8px 0; border-bottom: 1px solid var(--line); }
dt { color: var(--quiet); } dd { margin: 0; }
.brand { color: var(--quiet); font-weight: 600; margin-bottom: 8px; }
.warn { color: var(--warn); background: var(--warn-bg); border-radius: 8px; padding: 8px 12px; }
.quiet { color: var(--quiet); font-size: 14px; }
.buttons { display: flex; gap: 12px; margin-top: 20px; }
button { flex: 1; min-height: 44px; font: inherit; font-weight: 600; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); color: var(--text); cursor: pointer; }
button.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button:hover { border-color: var(--text); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
a { color: var(--accent); }
@media (max-width: 420px) { main { padding: 20px 16px; } dl div { grid-template-columns: 1fr; gap: 0; } }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    # With no-referrer, browsers would send `Origin: null` with the form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def consent_page(
    client: FacadeClient, request: LoginRequest, issuer: str, sealed: str, csrf: str
) -> Response:
    """Ask a person whether a client may use Statehold."""
    is_registered = client.client_id.startswith(PREFIX)
    target = urlsplit(request.redirect_uri)
    facts = [("It returns to", target.netloc), ("You log in at", urlsplit(issuer).netloc)]
    if not is_registered:
        facts.insert(0, ("A program of", urlsplit(client.client_id).netloc))
    # A name is what the program says of itself, so that it stands in no sentence, and below the hosts.
    facts.append(("It calls itself", plain_name(client.client_name or "") or "no name"))
    warning = ""
    if target.scheme == "http":
        warning = "It returns to this computer, where every program can use this name."
    if is_registered:
        warning = "The name is not verified: every program can give itself this name."
    if warning:
        warning = f'<p class="warn">{warning} Go on only if you have just started it yourself.</p>'
    rows = "".join(
        f"<div><dt>{escape(term)}</dt><dd><bdi>{escape(text)}</bdi></dd></div>"
        for term, text in facts
    )
    body = f"""<h1>Allow this program to use Statehold as you?</h1>
<dl>{rows}</dl>
{warning}<h2>It will be able to</h2>
<ul>{_scope_items(request.scopes)}</ul>
<form method="post" action="consent">
<input type="hidden" name="request" value="{escape(sealed)}">
<input type="hidden" name="csrf" value="{escape(csrf)}">
<div class="buttons"><button name="decision" value="deny">Deny</button>
<button class="main" name="decision" value="allow">Allow</button></div>
</form>"""
    return _page("Allow access", body)


def way_page(url: str, text: str) -> Response:
    """Lead a browser on to a URL.

    The answer to a form may not redirect to another site: `form-action` holds for the redirects after it, too.
    """
    head = f'<meta http-equiv="refresh" content="0; url={escape(url)}">'
    body = f'<h1>{escape(text)}</h1><p><a href="{escape(url)}">Go on</a> if nothing happens.</p>'
    return _page(text, body, head=head)


def problem_page(title: str, text: str, status: int = 400) -> Response:
    """Tell a person why a login does not go on."""
    body = f'<h1>{escape(title)}</h1><p class="quiet">{escape(text)}</p>'
    return _page(title, body, status=status)


def _scope_items(scopes: Sequence[str]) -> str:
    highest = max((list(SCOPE_TEXTS).index(scope) for scope in scopes), default=0)
    return "".join(f"<li>{escape(text)}</li>" for text in list(SCOPE_TEXTS.values())[: highest + 1])


def _page(title: str, body: str, *, head: str = "", status: int = 200) -> Response:
    document = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · Statehold</title>{head}<style>{_STYLE}</style></head>
<body><main><p class="brand">Statehold</p>{body}</main></body></html>"""
    return HTMLResponse(document, status, HEADERS)
