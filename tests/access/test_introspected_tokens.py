"""Tokens that their issuer is asked about: one request for many callers, and the end of a stream with its token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qs

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import Message, Receive, Scope, Send
from support.hostile_issuer import AUDIENCE, INTROSPECTOR, HostileIssuer
from support.selection import matrix
from support.waiting import until

from statehold.access.claims import VerifiedCaller
from statehold.access.config.auth import AuthSettings
from statehold.access.issuer_requests import MAX_FORMS
from statehold.access.refusals import Backoff, TokenInvalid, VerifierUnavailable
from statehold.access.scopes import USE
from statehold.access.verifier import CACHE_SECONDS, OwnTokens, SingleFlight, Verifier
from statehold.server.http.open_streams import OpenStreams
from statehold.sessions.records import Principal

WAYS: list[tuple[str, str]] = []
CALLERS = 20


def verifier_for(
    issuer: HostileIssuer,
    now: Callable[[], float] = time.time,
    own: OwnTokens | None = None,
) -> Verifier:
    client_id, client_secret = INTROSPECTOR
    asked = {
        "issuer": issuer.url,
        "introspection_endpoint": f"{issuer.url}/introspect",
        "client_id": client_id,
        "client_secret": client_secret,
    }
    settings = AuthSettings.model_validate({"issuers": [asked], "audience": [AUDIENCE]})
    return Verifier(None, settings, own, now=now)


async def verify_together(verifier: Verifier, token: str) -> list[object]:
    """Return the subjects or errors of many callers who come with one token at the same time."""
    outcomes: list[object] = []

    async def verify() -> None:
        try:
            outcomes.append((await verifier.verify(token)).principal.subject)
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


class SlowIssuer:
    """An issuer that answers when it may, and counts the questions that are open at once."""

    def __init__(self) -> None:
        self.open = self.highest = 0
        self.may_answer = anyio.Event()
        self.answers_first = set[str]()

    async def answer(self, stream: SocketStream) -> None:
        head = b""
        async with stream:
            while b"\r\n\r\n" not in head or b"token=" not in head:
                head += await stream.receive()
            self.open += 1
            self.highest = max(self.highest, self.open)
            token = parse_qs(head.rpartition(b"\r\n\r\n")[2].decode())["token"][0]
            if token not in self.answers_first:
                await self.may_answer.wait()
            document = self.document(token)
            self.open -= 1
            body = json.dumps(document).encode()
            start = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n"
            with suppress(anyio.BrokenResourceError):
                await stream.send(start.encode() + body)

    def document(self, token: str) -> dict[str, object]:
        if not token.startswith("right"):
            return {"active": False}
        claims = {"sub": token, "aud": AUDIENCE, "client_id": "c", "scope": "statehold:use"}
        return {**claims, "active": True, "exp": int(time.time()) + 300}


@pytest.mark.parametrize("addresses", matrix(1, 3, 20))
@pytest.mark.parametrize("victim", matrix("198.51.100.7", "2001:db8:7::7"))
async def test_guesses_of_strangers_leave_questions_for_others(addresses: int, victim: str) -> None:
    """An issuer gets a bounded number of questions at once, of which strangers elsewhere leave some."""
    issuer, guesses = SlowIssuer(), 600
    issuer.answers_first = {f"right-{number}" for number in range(6)}
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    asked = {
        "issuer": f"http://127.0.0.1:{port}",
        "introspection_endpoint": f"http://127.0.0.1:{port}/introspect",
        "client_id": "statehold",
        "client_secret": "introspection-secret-0123456789",
    }
    settings = AuthSettings.model_validate({"issuers": [asked], "audience": [AUDIENCE]})
    verifier, refused = Verifier(None, settings), 0

    async def guess(number: int) -> None:
        nonlocal refused
        with suppress(TokenInvalid, VerifierUnavailable):
            await verifier.verify(f"guess-{number}", f"192.0.2.{number % addresses}")
        refused += 1

    with anyio.fail_after(30):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, issuer.answer)
            for number in range(guesses):
                tasks.start_soon(guess, number)
            await until(lambda: issuer.open >= MAX_FORMS * 3 // 4)
            for number in range(6):
                user = await verifier.verify(f"right-{number}", victim)
                assert user.principal.subject == f"right-{number}"
            assert refused == 0
            assert issuer.highest <= MAX_FORMS
            tasks.cancel_scope.cancel()


async def test_a_wrong_token_delays_the_next_question_of_its_network_only(
    asked_issuer: HostileIssuer,
) -> None:
    asked_issuer.opaque["right"] = {**asked_issuer.claims(sub="ada"), "active": True}
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        asked_before.append(asked_issuer.requests["/introspect"])

    verifier, asked_before = verifier_for(asked_issuer), list[int]()
    verifier.backoff = Backoff(sleep=sleep)
    asked_issuer.requests.clear()
    for number in range(3):
        with pytest.raises(TokenInvalid):
            await verifier.verify(f"wrong-{number}", "192.0.2.1")
        verifier.backoff.fail("192.0.2.1")
    assert slept == [0.05, 0.1]
    # The issuer was not asked before the delay.
    assert asked_before == [1, 2]
    await verifier.verify("right", "192.0.2.2")
    await verifier.verify("right", "192.0.2.1")
    assert slept == [0.05, 0.1]


async def test_a_new_token_of_this_server_is_not_delayed_by_wrong_ones_of_its_network(
    asked_issuer: HostileIssuer,
) -> None:
    class Own:
        def accepts(self, token: str) -> bool:
            return token.startswith("own-")

        async def caller(self, token: str, now: float) -> VerifiedCaller:
            if token == "own-forged":
                raise TokenInvalid("it is no token of this server")
            ada = Principal(issuer=asked_issuer.url, subject="ada", client_id="c")
            return VerifiedCaller(ada, [USE], expires_at=2**40)

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    verifier = verifier_for(asked_issuer, own=Own())
    verifier.backoff = Backoff(sleep=sleep)
    for _ in range(5):
        verifier.backoff.fail("192.0.2.1")
    await verifier.verify("own-right", "192.0.2.1")
    with pytest.raises(TokenInvalid):
        await verifier.verify("own-forged", "192.0.2.1")
    assert slept == []
    with pytest.raises(TokenInvalid):
        await verifier.verify("guess", "192.0.2.1")
    assert len(slept) == 1


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
