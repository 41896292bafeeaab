"""The streams that end with a static token, and those that do not."""

from __future__ import annotations

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from statehold.access.challenges import Challenges, PublicUrls
from statehold.access.claims import VerifiedCaller
from statehold.server.http.open_streams import OpenStreams
from statehold.sessions.records import Principal

WAYS: list[tuple[str, str]] = []


@pytest.mark.parametrize(
    ("expires_at", "token", "is_ended"),
    [
        (None, b"Bearer gone", True),
        (None, b"Bearer kept", False),
        (4102444800, b"Bearer gone", False),
    ],
    ids=["removed", "valid", "of an identity provider"],
)
async def test_a_stream_ends_with_its_static_token(
    expires_at: int | None, token: bytes, is_ended: bool
) -> None:
    streams, opened, ended = OpenStreams(), anyio.Event(), anyio.Event()
    headers = [(b"authorization", token)]
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "raw_path": b"/sse",
        "headers": headers,
        "user": VerifiedCaller(Principal(), [], expires_at=expires_at),
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        opened.set()
        await anyio.sleep_forever()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    async def run() -> None:
        await streams.run(app, scope, receive, send)
        ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await opened.wait()
            streams.end_without_token(lambda token: token == "kept")
            await anyio.wait_all_tasks_blocked()
            assert ended.is_set() == is_ended
            tasks.cancel_scope.cancel()


async def test_a_request_of_a_revoked_principal_gets_a_challenge_and_a_stream_its_end() -> None:
    streams, opened = OpenStreams(Challenges(PublicUrls("https://mcp.example.org"))), anyio.Event()
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/mcp",
        "headers": [],
        "user": VerifiedCaller(Principal(subject="ada"), []),
    }
    waiting: list[Message] = []
    streaming: list[Message] = []

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep_forever()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        opened.set()
        await anyio.sleep_forever()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def note_waiting(message: Message) -> None:
        waiting.append(message)

    async def note_streaming(message: Message) -> None:
        streaming.append(message)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streams.run, wait, scope, receive, note_waiting)
            tasks.start_soon(streams.run, stream, scope, receive, note_streaming)
            await opened.wait()
            streams.end_of({":ben"})
            await anyio.wait_all_tasks_blocked()
            assert (len(waiting), len(streaming)) == (0, 1)
            streams.end_of({":ada"})
    assert waiting[0]["status"] == 401
    challenge = dict(waiting[0]["headers"])[b"www-authenticate"].decode()
    assert 'error="invalid_token"' in challenge
    assert "https://mcp.example.org/.well-known/oauth-protected-resource/mcp" in challenge
    assert streaming[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
