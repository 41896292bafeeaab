"""Tokens that their issuer is asked about: one request for many callers, and the end of a stream with its token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send
from support.hostile_issuer import AUDIENCE, INTROSPECTOR, HostileIssuer

from statehold.server.auth.errors import TokenInvalid, VerifierUnavailable
from statehold.server.auth.single_flight import SingleFlight
from statehold.server.auth.verifier import CACHE_SECONDS, Verifier
from statehold.server.config.access.auth import AuthSettings
from statehold.server.http.open_streams import OpenStreams

WAYS: list[tuple[str, str]] = []
CALLERS = 20


def verifier_for(issuer: HostileIssuer, now: Callable[[], float] = time.time) -> Verifier:
    client_id, client_secret = INTROSPECTOR
    asked = {
        "issuer": issuer.url,
        "introspection_endpoint": f"{issuer.url}/introspect",
        "client_id": client_id,
        "client_secret": client_secret,
    }
    settings = AuthSettings.model_validate({"issuers": [asked], "audience": [AUDIENCE]})
    return Verifier(None, settings, now=now)


async def verify_together(verifier: Verifier, token: str) -> list[object]:
    """Return the subjects or errors of many callers who come with one token at the same time."""
    outcomes: list[object] = []

    async def verify() -> None:
        try:
            outcomes.append((await verifier.verify(token)).access_token.subject)
        except (TokenInvalid, VerifierUnavailable) as error:
            outcomes.append(type(error))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(CALLERS):
                tasks.start_soon(verify)
    return outcomes


async def test_an_issuer_is_asked_once_about_a_token_of_many_requests(
    asked_issuer: HostileIssuer,
) -> None:
    asked_issuer.opaque["opaque-ada"] = {**asked_issuer.claims(sub="ada"), "active": True}
    for token, expected in (("opaque-ada", "ada"), ("opaque-wrong", TokenInvalid)):
        asked_issuer.requests.clear()
        verifier = verifier_for(asked_issuer)
        assert await verify_together(verifier, token) == [expected] * CALLERS
        assert asked_issuer.requests["/introspect"] == 1
    asked_issuer.answers["/introspect"] = 500, {}, b"{}"
    try:
        asked_issuer.requests.clear()
        outcomes = await verify_together(verifier_for(asked_issuer), "opaque-ada")
        assert outcomes == [VerifierUnavailable] * CALLERS
        assert asked_issuer.requests["/introspect"] == 1
    finally:
        del asked_issuer.answers["/introspect"]


async def test_a_caller_that_leaves_passes_its_work_to_the_next_one() -> None:
    flights = SingleFlight[str]()
    runs: list[anyio.Event] = []
    may_end = anyio.Event()

    async def work() -> str:
        runs.append(anyio.Event())
        await may_end.wait()
        return "done"

    results: list[str] = []

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            results.append(await flights.run("key", work))

    first, second = anyio.CancelScope(), anyio.CancelScope()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, first)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(ask, second)
            await anyio.wait_all_tasks_blocked()
            assert len(runs) == 1
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            assert len(runs) == 2
            may_end.set()
    assert results == ["done"]


@pytest.mark.parametrize(
    ("answer", "is_ended"),
    [({"active": False}, True), (None, False)],
    ids=["inactive", "issuer down"],
)
async def test_a_stream_ends_when_the_issuer_refuses_its_token(
    asked_issuer: HostileIssuer, answer: dict[str, object] | None, is_ended: bool
) -> None:
    token, moment = "opaque-of-a-stream", [time.time()]
    asked_issuer.opaque[token] = {**asked_issuer.claims(sub="ada"), "active": True}
    verifier = verifier_for(asked_issuer, lambda: moment[0])
    user = await verifier.verify(token)
    streams, opened, ended = OpenStreams(), anyio.Event(), anyio.Event()
    headers = [(b"authorization", f"Bearer {token}".encode())]
    scope: Scope = {"type": "http", "method": "GET", "headers": headers, "user": user}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        opened.set()
        await anyio.sleep_forever()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    async def run() -> None:
        await streams.run(app, scope, receive, send)
        ended.set()

    status, body = (503, b"") if answer is None else (200, json.dumps(answer).encode())
    asked_issuer.answers["/introspect"] = status, {}, body
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await opened.wait()
                await streams.end_refused(verifier)
                await anyio.wait_all_tasks_blocked()
                assert not ended.is_set()
                moment[0] += CACHE_SECONDS
                await streams.end_refused(verifier)
                await anyio.wait_all_tasks_blocked()
                assert ended.is_set() == is_ended
                tasks.cancel_scope.cancel()
    finally:
        del asked_issuer.answers["/introspect"]
