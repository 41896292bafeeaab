"""The private parts of the MCP SDK's client that Statehold uses; each test names the feature that breaks without its
part.
"""

from __future__ import annotations

import httpx2
import pytest

from statehold.tools.upstream.sdk import (
    ReadStream,
    WriteStream,
    redirect_location,
    request_within_origin,
    sse_within_origin,
)


@pytest.fixture
def hosts() -> list[str]:
    """The hosts that were asked."""
    return []


@pytest.fixture
def client(hosts: list[str]) -> httpx2.AsyncClient:
    """A client whose server redirects to another host."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        return httpx2.Response(307, headers={"location": "http://elsewhere.test/"})

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def test_a_message_goes_to_no_other_host(
    client: httpx2.AsyncClient, hosts: list[str]
) -> None:
    """Without it an HTTP+SSE server could have our headers sent to another host."""
    async with client:
        response = await request_within_origin(client, "POST", "http://here.test/", content=b"{}")
    assert response.status_code == 307
    assert hosts == ["here.test"]
    # Errors name the target of a redirect that is not followed.
    assert str(redirect_location(response)) == "http://elsewhere.test/"


async def test_a_stream_comes_from_no_other_host(
    client: httpx2.AsyncClient, hosts: list[str]
) -> None:
    async with client, sse_within_origin(client, "http://here.test/") as source:
        assert source.response.status_code == 307
    assert hosts == ["here.test"]


def test_streams_have_the_methods_of_our_transports() -> None:
    """The transports give these types to the SDK's client session."""
    assert {"receive", "aclose"} <= set(dir(ReadStream))
    assert {"send", "aclose"} <= set(dir(WriteStream))
