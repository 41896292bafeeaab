"""A login at the console with an account of an issuer that answers what a test sets."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from anyio import to_thread
from support.console_client import API, COOKIE
from support.gateway_process import JSON, Running, service
from support.hostile_issuer import AUDIENCE, HostileIssuer, hostile_issuer
from support.selection import matrix
from support.waiting import until

from statehold.access.login_cookies import MAX_ATTEMPTS
from statehold.server.exit_codes import OK
from statehold.shell.main import main

PUBLIC_URL = "https://mcp.example.org"
ATTEMPT = "__Host-statehold-attempt-"
ADDRESSES = itertools.count(2)
CLIENT, SECRET = "console:1", "secret+with/odd=signs"


@pytest.fixture(scope="module")
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def settings(issuer: HostileIssuer) -> JSON:
    return {
        "server": {"public_url": PUBLIC_URL},
        "auth": {
            "issuers": [{"issuer": issuer.url}],
            "audience": [AUDIENCE],
            "roles": {"staff": "operator"},
            "console": {"client_id": CLIENT, "client_secret": SECRET, "name": "Example"},
        },
        "policies": [{"match": {"group": "staff"}, "sessions": 7}],
        "services": {"quick": service("asking")},
    }


class Person:
    """A browser, as far as its requests go."""

    def __init__(self, http: httpx2.AsyncClient, issuer: HostileIssuer) -> None:
        self._http = http
        self.issuer = issuer
        self.cookies: dict[str, str] = {}
        self.sent: dict[str, str] = {}
        """The parameters that the last login took to the issuer."""

    async def begin(self) -> None:
        """Begin a login, up to the page of the issuer."""
        answer = await self._get("/console/login")
        assert answer.status_code == 303
        url = answer.headers["location"]
        assert url.startswith(f"{self.issuer.url}/authorize?")
        self.sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}

    def sign(self, **changes: Any) -> None:
        """Have the issuer answer the next code with an ID token; `changes` are of its claims or of its head."""
        claims = {"aud": CLIENT, "nonce": self.sent["nonce"], "scope": None, "client_id": None}
        arguments: dict[str, Any] = {**claims, "header": {"typ": "JWT"}, **changes}
        self.answer({"id_token": self.issuer.token(**arguments)})

    def answer(self, document: JSON, status: int = 200) -> None:
        """Have the issuer answer the next code with a document."""
        self.issuer.answers["/token"] = (status, {}, json.dumps(document).encode())

    async def finish(self, **changes: str | None) -> str:
        """Come back from the issuer. Return the address to which the server leads."""
        given = {"code": "1", "state": self.sent["state"], "iss": self.issuer.url} | changes
        query = {name: value for name, value in given.items() if value is not None}
        return await self.come_back(str(httpx2.QueryParams(query)))

    async def come_back(self, query: str) -> str:
        answer = await self._get(f"/console/callback?{query}")
        assert answer.status_code == 303
        return answer.headers["location"]

    async def me(self) -> JSON | None:
        """Return the login of this browser, None without one."""
        answer = await self._get(f"{API}/me")
        return answer.json() if answer.status_code == 200 else None

    async def limits(self) -> JSON:
        """Return the limits of the person."""
        return (await self._get(f"{API}/usage")).json()["limits"]

    async def _get(self, path: str) -> httpx2.Response:
        pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self._http.get(path, headers={"cookie": pairs} if pairs else {})
        for header in answer.headers.get_list("set-cookie"):
            assert "HttpOnly" in header
            assert "Secure" in header
            assert "Path=/" in header
            name, value = header.partition(";")[0].split("=", 1)
            # In place of an older one it is the newest.
            self.cookies.pop(name, None)
            if "Max-Age=0" not in header:
                self.cookies[name] = value
        return answer


@pytest.fixture
async def http(server: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    # Failed logins of one address wait longer each time.
    transport = httpx2.AsyncHTTPTransport(local_address=f"127.0.0.{next(ADDRESSES)}")
    async with httpx2.AsyncClient(base_url=server.url, timeout=60, transport=transport) as client:
        yield client


@pytest.fixture
def person(http: httpx2.AsyncClient, issuer: HostileIssuer) -> Person:
    issuer.answers.clear()
    issuer.forms.clear()
    return Person(http, issuer)


async def test_a_person_logs_in_with_an_account(person: Person, issuer: HostileIssuer) -> None:
    await person.begin()
    assert person.sent["client_id"] == CLIENT
    assert person.sent["redirect_uri"] == f"{PUBLIC_URL}/console/callback"
    assert person.sent["scope"] == "openid"
    assert person.sent["code_challenge_method"] == "S256"
    person.sign(groups=["staff"])
    assert await person.finish() == "./"
    me = await person.me()
    assert me is not None
    assert (me["principal"], me["rights"], me["role"]) == ("alice", "control", "operator")
    assert not me["is_machine_user"]
    assert (await person.limits())["sessions"] == {"limit": 7, "source": "group staff"}
    form = issuer.forms[0]
    assert form["redirect_uri"] == [f"{PUBLIC_URL}/console/callback"]
    digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert challenge == person.sent["code_challenge"]
    sent = next(each for each in issuer.callers if each.startswith("Basic "))
    # RFC 6749, 2.3.1: both parts are encoded as in a form.
    credentials = base64.b64decode(sent.removeprefix("Basic ")).decode()
    assert credentials == "console%3A1:secret%2Bwith%2Fodd%3Dsigns"


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CLIENTS = ("*/*", "application/json, text/event-stream", "text/event-stream")


async def test_the_address_of_the_server_leads_browsers_to_the_console_and_refuses_clients(
    http: httpx2.AsyncClient,
) -> None:
    page = await http.get("/", headers={"accept": BROWSER}, follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/console/")
    assert page.history[0].headers["cache-control"] == "no-store"
    refused = [(await http.get("/", headers={"accept": accept})) for accept in CLIENTS]
    refused += [await http.post("/", headers={"accept": BROWSER}, json={})]
    refused += [await http.get(path, headers={"accept": BROWSER}) for path in ("/mcp", "/other")]
    assert {each.status_code for each in refused} == {401}
    assert all("www-authenticate" in each.headers for each in refused)


async def test_the_login_page_is_told_the_name_of_the_issuer(http: httpx2.AsyncClient) -> None:
    ways = (await http.get(f"{API}/login")).json()
    assert ways == {
        "account": {"name": "Example", "url": f"{PUBLIC_URL}/console/login"},
        "token": True,
    }


ANSWERS: dict[str, Callable[[Person], Any]] = {
    "another state": lambda person: person.finish(state="x" * 43),
    "no state": lambda person: person.finish(state=None),
    "another issuer": lambda person: person.finish(iss="https://other.example.org"),
    "no issuer": lambda person: person.finish(iss=None),
    "no code": lambda person: person.finish(code=None),
    "an error": lambda person: person.finish(error="access_denied"),
    "two codes": lambda person: person.come_back(
        f"code=1&code=2&state={person.sent['state']}&iss={person.issuer.url}"
    ),
}


@pytest.mark.parametrize("answer", matrix(*ANSWERS))
async def test_a_forged_answer_of_the_issuer_logs_nobody_in(
    person: Person, issuer: HostileIssuer, answer: str
) -> None:
    await person.begin()
    person.sign()
    assert await ANSWERS[answer](person) == "./#failed=login_failed"
    assert await person.me() is None
    assert issuer.forms == []


TOKENS: dict[str, JSON] = {
    "a wrong nonce": {"nonce": "x" * 43},
    "no nonce": {"nonce": None},
    "another client": {"aud": "other"},
    "several audiences without azp": {"aud": [CLIENT, "other"]},
    "another azp": {"aud": [CLIENT, "other"], "azp": "other"},
    "another issuer": {"iss": "https://other.example.org"},
    "expired": {"exp": 1_000_000_000},
    "no exp": {"exp": None},
    "no sub": {"sub": None},
    "iat in the future": {"iat": 9_000_000_000},
    "an access token": {"header": {"typ": "at+jwt"}},
    "no signature": {"algorithm": "none"},
    "another key": {"key_id": "rsa", "header": {"typ": "JWT", "kid": "other"}},
    "a key of its own": {"header": {"typ": "JWT", "jwk": {}}},
}


@pytest.mark.parametrize("claims", matrix(*TOKENS))
async def test_a_forged_id_token_logs_nobody_in(person: Person, claims: str) -> None:
    await person.begin()
    person.sign(**TOKENS[claims])
    assert await person.finish() == "./#failed=login_failed"
    assert await person.me() is None


async def test_several_audiences_with_the_right_azp_are_accepted(person: Person) -> None:
    await person.begin()
    person.sign(aud=[CLIENT, "other"], azp=CLIENT)
    assert await person.finish() == "./"


async def test_an_answer_works_once_and_in_the_browser_that_began_the_login(
    person: Person, http: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    await person.begin()
    person.sign()
    stranger = Person(http, issuer)
    stranger.sent = person.sent
    assert await stranger.finish() == "./#failed=login_failed"
    await stranger.begin()
    own, stranger.sent = stranger.sent, person.sent
    assert await stranger.finish() == "./#failed=login_failed"
    stranger.sent = own
    assert issuer.forms == []
    before = dict(person.cookies)
    assert await person.finish() == "./"
    assert [name for name in person.cookies if name.startswith(ATTEMPT)] == []
    person.cookies = before
    assert await person.finish() == "./#failed=login_failed"
    assert await person.me() is None


async def test_a_browser_may_begin_several_logins_at_once(person: Person) -> None:
    begun: list[dict[str, str]] = []
    for _ in range(MAX_ATTEMPTS + 2):
        await person.begin()
        begun.append(person.sent)
    assert len([name for name in person.cookies if name.startswith(ATTEMPT)]) == MAX_ATTEMPTS
    for sent, address in (
        (begun[2], "./"),
        (begun[-1], "./"),
        (begun[1], "./#failed=login_failed"),
    ):
        person.sent = sent
        person.sign()
        assert await person.finish() == address


async def test_an_issuer_that_refuses_or_does_not_answer_logs_nobody_in(person: Person) -> None:
    await person.begin()
    person.answer({"error": "invalid_grant"}, 400)
    assert await person.finish() == "./#failed=login_failed"
    await person.begin()
    person.answer({}, 500)
    assert await person.finish() == "./#failed=service_unavailable"
    await person.begin()
    person.answer({"access_token": "no id token"})
    assert await person.finish() == "./#failed=login_failed"
    assert await person.me() is None
    assert COOKIE not in person.cookies


async def test_a_logout_everywhere_ends_the_logins_of_the_account_alone(
    person: Person, http: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    others = [Person(http, issuer), Person(http, issuer)]
    for each, subject in ((person, "carol"), (others[0], "carol"), (others[1], "dan")):
        await each.begin()
        each.sign(sub=subject)
        assert await each.finish() == "./"
    me = await person.me()
    assert me is not None
    answer = await http.post(
        f"{API}/logout",
        json={"everywhere": True},
        headers={
            "cookie": f"{COOKIE}={person.cookies[COOKIE]}",
            "x-csrf-token": me["csrf"],
        },
    )
    assert answer.status_code == 200
    assert await person.me() is None
    assert await others[0].me() is None
    assert await others[1].me() is not None


async def test_a_revoked_person_cannot_log_in(
    person: Person, server: Running, config_file: Path, issuer: HostileIssuer
) -> None:
    await person.begin()
    person.sign(sub="eve")
    assert await person.finish() == "./"
    flags = ["--config", str(config_file), "--data", str(server.data)]
    words = ["principals", "revoke", "eve", "--issuer", issuer.url]
    assert await to_thread.run_sync(main, [*words, *flags]) == OK

    async def has_ended() -> bool:
        return await person.me() is None

    async def is_refused() -> bool:
        await person.begin()
        person.sign(sub="eve")
        return await person.finish() == "./#failed=revoked"

    await until(has_ended)
    # The login ends in the store at once; the server reads it a moment later.
    await until(is_refused)
    assert await person.me() is None
