"""HTTP responses that repeat no secret of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable

import httpx2

from .masks import MASKS, Masks


def masked(response: httpx2.Response) -> httpx2.Response:
    """Return a response whose body, which is not read yet, repeats no secret of its request."""
    masks: tuple[Masks, ...] = response.request.extensions.get(MASKS, ())
    if not masks:
        return response
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if "content-encoding" not in response.headers:
        response.stream = _MaskedBody(stream, masks, stream.aclose)
        return response
    headers = {k: v for k, v in response.headers.items() if k != "content-encoding"}
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_MaskedBody(_decode(response), masks, response.aclose),
        request=response.request,
        extensions=response.extensions,
    )


async def _decode(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for part in response.aiter_bytes():
            yield part
    except httpx2.DecodingError as error:
        raise httpx2.ReadError(str(error), request=response.request) from error


class _MaskedBody(httpx2.AsyncByteStream):
    """A response body without the secrets, in one piece or in many."""

    def __init__(
        self,
        parts: AsyncIterable[bytes],
        masks: Iterable[Masks],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._close = close
        for each in masks:
            parts = _hide_in(parts, each)
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._parts)

    async def aclose(self) -> None:
        await self._close()


async def _hide_in(parts: AsyncIterable[bytes], masks: Masks) -> AsyncIterator[bytes]:
    held = b""
    async for part in parts:
        data = masks.hide(held + part)
        end = masks.complete(data)
        held = data[end:]
        if end:
            yield data[:end]
    if held:
        yield held
