"""A person at the authorization server, as far as the requests of their browser go."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx2

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
REFRESH = re.compile(r'<meta http-equiv="refresh" content="0; url=([^"]+)">')


class FacadeBrowser:
    """Follows redirects and pages, and agrees to everything. It keeps the cookies of each host and port."""

    def __init__(self, **cookies: str) -> None:
        self._http = httpx2.AsyncClient(timeout=60)
        self._everywhere = cookies
        self.cookies: dict[str, dict[str, str]] = {}
        self.pages: list[str] = []
        """The pages of consent."""

    async def aclose(self) -> None:
        await self._http.aclose()

    async def get(self, url: str) -> httpx2.Response:
        return self._keep(await self._http.get(url, headers=self._headers(url)))

    async def post(self, url: str, form: dict[str, str]) -> httpx2.Response:
        parts = urlsplit(url)
        headers = self._headers(url) | {"origin": f"{parts.scheme}://{parts.netloc}"}
        return self._keep(await self._http.post(url, data=form, headers=headers))

    async def consent(self, page: httpx2.Response, decision: str = "allow") -> httpx2.Response:
        """Decide on a page of consent."""
        assert page.status_code == 200, page.text
        self.pages.append(page.text)
        form = {name: unescape(value) for name, value in FIELD.findall(page.text)}
        url = str(page.url).partition("?")[0]
        return await self.post(url, {**form, "decision": decision})

    async def follow(self, url: str, end: str) -> str:
        """Go on from a URL until one begins with `end`, and return that one."""
        while not url.startswith(end):
            answer = await self.get(url)
            if answer.status_code == 200:
                answer = await self.consent(answer)
                url = next_url(answer)
            else:
                assert answer.status_code in (302, 303), answer.text
                url = str(httpx2.URL(url).join(answer.headers["location"]))
        return url

    def _headers(self, url: str) -> dict[str, str]:
        pairs = {**self._everywhere, **self.cookies.get(urlsplit(url).netloc, {})}
        return {"cookie": "; ".join(f"{name}={value}" for name, value in pairs.items())}

    def _keep(self, answer: httpx2.Response) -> httpx2.Response:
        kept = self.cookies.setdefault(answer.url.netloc.decode(), {})
        for header in answer.headers.get_list("set-cookie"):
            name, value = header.partition(";")[0].split("=", 1)
            if value.strip('"') and "max-age=0" not in header.lower():
                kept[name] = value
            else:
                kept.pop(name, None)
        return answer


def next_url(page: httpx2.Response) -> str:
    """Return the URL to which a page leads without a click."""
    found = REFRESH.search(page.text)
    assert found is not None, page.text
    return unescape(found[1])


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


__all__ = ["FacadeBrowser", "next_url", "query_of"]
