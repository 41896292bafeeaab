"""Client metadata documents are fetched from public addresses only, and are about their own client_id."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator

import anyio
import pytest
from mcp.shared.auth import InvalidRedirectUriError, InvalidScopeError
from pydantic import AnyUrl
from support.document_server import REDIRECTS, DocumentServer, document_server
from support.selection import matrix
from support.waiting import until

from statehold.access.facade.clients import (
    CACHE_SECONDS,
    DOCUMENT_BYTES,
    MAX_CACHED_DOCUMENTS,
    STALE_SECONDS,
    ClientDocuments,
    DocumentInvalid,
    FacadeClient,
)
from statehold.sessions.clock import SystemClock
from statehold.sessions.live.session import client_address
from statehold.tools.browser.egress.resolver import Resolver


@pytest.fixture
def documents() -> Generator[DocumentServer]:
    with document_server() as running:
        yield running


async def refusal(client_id: str, *, allow_loopback: bool = True) -> str:
    with pytest.raises(DocumentInvalid) as caught:
        await ClientDocuments(allow_loopback=allow_loopback).client(client_id)
    return str(caught.value)


async def test_a_document_is_kept_for_a_bounded_time(documents: DocumentServer) -> None:
    now = 0.0
    known = ClientDocuments(allow_loopback=True, clock=lambda: now)
    client = await known.client(documents.url)
    assert client.client_id == documents.url
    assert client.token_endpoint_auth_method == "none"
    assert await known.client(documents.url) == client
    assert documents.requests == 1
    now = CACHE_SECONDS
    documents.serve(client_id="https://evil.example.org/client.json")
    with pytest.raises(DocumentInvalid):
        await known.client(documents.url)
    assert documents.requests == 2


async def test_the_last_document_is_used_while_its_server_is_gone() -> None:
    now = 0.0
    known = ClientDocuments(allow_loopback=True, clock=lambda: now)
    with document_server() as documents:
        client = await known.client(documents.url)
    now = CACHE_SECONDS + STALE_SECONDS - 1.0
    assert await known.client(documents.url) == client
    now += 1.0
    with pytest.raises(DocumentInvalid):
        await known.client(documents.url)


@pytest.mark.parametrize("status", [429, 503])
async def test_the_last_document_is_used_while_its_server_is_busy(
    documents: DocumentServer, status: int
) -> None:
    now = 0.0
    known = ClientDocuments(allow_loopback=True, clock=lambda: now)
    client = await known.client(documents.url)
    now, documents.status = CACHE_SECONDS, status
    assert await known.client(documents.url) == client
    assert documents.requests == 2


@pytest.mark.parametrize("names", matrix(24, 100))
@pytest.mark.parametrize("strangers", matrix(1, 3))
async def test_names_of_strangers_without_an_answer_hold_up_no_client_elsewhere(
    documents: DocumentServer, names: int, strangers: int
) -> None:
    """Lookups that do not end take a share of the threads, and a name without an address is not asked for at once again."""
    may_answer, asked = threading.Event(), Counter[str]()

    def look_up(name: str) -> list[str]:
        asked[name] += 1
        if name.endswith(".attacker.example"):
            may_answer.wait(20)
            return []
        return ["127.0.0.1"]

    resolver = Resolver(SystemClock(), lookup=look_up, absent_seconds=30.0)
    known = ClientDocuments(allow_loopback=True, resolver=resolver)

    async def ask(number: int) -> None:
        client_address.set(f"192.0.2.{number % strangers}")
        with pytest.raises(DocumentInvalid):
            await known.client(f"https://s{number}.attacker.example/client.json")

    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(names):
                    tasks.start_soon(ask, number)
                await until(lambda: len(asked) >= min(names, 16))
                for number in range(8):
                    client_address.set(f"198.51.100.{number}")
                    client_id = documents.url.replace("127.0.0.1", f"client{number}.example")
                    documents.serve(client_id=client_id)
                    assert (await known.client(client_id)).client_id == client_id
                may_answer.set()
        again = asked.copy()
        name = next(name for name in asked if name.endswith(".attacker.example"))
        with pytest.raises(DocumentInvalid):
            await known.client(f"https://{name}/other.json")
        assert asked == again
    finally:
        may_answer.set()


@pytest.mark.thorough
async def test_the_documents_of_one_domain_displace_only_one_another(
    documents: DocumentServer,
) -> None:
    resolver = Resolver(SystemClock(), lookup=lambda name: ["127.0.0.1"])
    known = ClientDocuments(allow_loopback=True, resolver=resolver)
    ours = documents.url.replace("127.0.0.1", "ours.example")
    documents.serve(client_id=ours)
    await known.client(ours)
    for number in range(MAX_CACHED_DOCUMENTS + 5):
        theirs = documents.url.replace("127.0.0.1", f"s{number}.attacker.example")
        documents.serve(client_id=theirs)
        await known.client(theirs)
    requests = documents.requests
    await known.client(ours)
    assert documents.requests == requests


def test_a_redirect_uri_without_a_path_is_one_with_a_slash() -> None:
    client = FacadeClient.model_validate(
        {"client_id": "x", "redirect_uris": ["http://127.0.0.1", "https://app.example.org"]}
    )
    for uri in ("http://127.0.0.1:4321", "https://app.example.org/"):
        client.validate_redirect_uri(AnyUrl(uri))
    with pytest.raises(InvalidRedirectUriError):
        client.validate_redirect_uri(AnyUrl("https://app.example.org/other"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"client_id": "https://other.example.org/client.json"}, "another client_id"),
        ({"redirect_uris": []}, "no redirect_uris"),
        ({"client_secret": "secret"}, "has a secret"),
        ({"token_endpoint_auth_method": "client_secret_post"}, "is not none"),
        ({"redirect_uris": "x"}, "no client metadata"),
        ({"redirect_uris": ["cursor://x", "", 7]}, "cursor://x: should be https"),
        ({"client_name": "x" * DOCUMENT_BYTES}, "too large"),
    ],
)
async def test_a_wrong_document_is_refused(
    documents: DocumentServer, changes: dict[str, object], reason: str
) -> None:
    documents.serve(**changes)
    assert reason in await refusal(documents.url)


async def test_a_redirect_uri_of_a_document_spoils_none_of_the_others(
    documents: DocumentServer,
) -> None:
    documents.serve(redirect_uris=["", "cursor://x", *REDIRECTS])
    client = await ClientDocuments(allow_loopback=True).client(documents.url)
    assert [str(uri) for uri in client.redirect_uris or ()] == REDIRECTS


def redirect(server: DocumentServer) -> None:
    server.status, server.headers = 302, {"location": server.url}


def no_json(server: DocumentServer) -> None:
    server.body = b"<html>"


def no_object(server: DocumentServer) -> None:
    server.body = b"[]"


@pytest.mark.parametrize(
    ("change", "reason"),
    [(redirect, "answers 302"), (no_json, "no JSON"), (no_object, "no JSON object")],
)
async def test_a_wrong_answer_is_refused(
    documents: DocumentServer, change: Callable[[DocumentServer], None], reason: str
) -> None:
    change(documents)
    assert reason in await refusal(documents.url)
    assert documents.requests == 1


async def test_loopback_is_refused_unless_it_is_allowed(documents: DocumentServer) -> None:
    tls = documents.url.replace("http:", "https:")
    assert "no https URL" in await refusal(documents.url, allow_loopback=False)
    assert "not public" in await refusal(tls, allow_loopback=False)
    assert documents.requests == 0


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "[fd00::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[::a00:1]",
        "[::]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "168.63.129.16",
        "192.0.0.8",
        "192.88.99.1",
        "[3fff::1]",
        "[2001::1]",
        "[fd00:ec2::254]",
        "[::ffff:168.63.129.16]",
    ],
)
async def test_a_private_address_is_refused(host: str) -> None:
    assert await refusal(f"https://{host}/client.json") == "its address is not public"


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/client.json",
        "ftp://127.0.0.1/client.json",
        "https://127.0.0.1",
        "https://127.0.0.1/",
        "https://user@127.0.0.1/client.json",
        "https://127.0.0.1/a/../client.json",
        "https://127.0.0.1/client.json?a",
        "https://127.0.0.1/client.json#a",
        "https://127.0.0.1:x/client.json",
        "https://[::1/client.json",
        "https://127.0.0.1/" + "a" * 2048,
    ],
)
async def test_a_wrong_url_is_refused(url: str) -> None:
    assert await refusal(url)


def client_of(*uris: str) -> FacadeClient:
    return FacadeClient(client_id="a", redirect_uris=[AnyUrl(uri) for uri in uris])


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1/callback", "http://127.0.0.1:4711/callback", REDIRECTS[1]]
)
def test_a_registered_redirect_uri_is_accepted_with_any_loopback_port(uri: str) -> None:
    assert str(client_of(*REDIRECTS).validate_redirect_uri(AnyUrl(uri))) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1/callback/",
        "http://127.0.0.1/callback?a=b",
        "http://localhost/callback",
        "http://127.0.0.1.evil.example.org/callback",
        "http://127.0.0.1@evil.example.org/callback",
        "https://app.example.org/back2",
        "https://app.example.org:8443/back",
        "https://app.example.org/back#a",
        "http://app.example.org/back",
    ],
)
def test_another_redirect_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRedirectUriError):
        client_of(*REDIRECTS).validate_redirect_uri(AnyUrl(uri))


@pytest.mark.parametrize("uri", ["javascript:alert(1)", "http://example.org/back", "app:/back"])
def test_a_registered_redirect_uri_has_to_be_protected(uri: str) -> None:
    with pytest.raises(InvalidRedirectUriError):
        client_of(uri).validate_redirect_uri(AnyUrl(uri))


def test_scopes_are_those_of_this_server() -> None:
    client = client_of(*REDIRECTS)
    assert client.validate_scope("offline_access statehold:use") == ["statehold:use"]
    assert client.validate_scope(None) is None
    with pytest.raises(InvalidScopeError):
        client.validate_scope("offline_access")
