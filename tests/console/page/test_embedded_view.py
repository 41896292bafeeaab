"""A page of another origin shows a session in a frame: its picture and its pages, and nothing that acts."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lab import Lab
from playwright.async_api import Browser, Page
from pydantic import ValidationError
from support.agent import Agent
from support.console_client import API, ConsoleClient, console_client
from support.console_page import page_of
from support.gateway_process import JSON
from support.selection import matrix
from support.waiting import until

from statehold.console.app import ROUTES, Console
from statehold.server.config.model import Config
from statehold.server.gateway.gateway import Gateway


@pytest.fixture(scope="module")
def allowed(site: Lab) -> str:
    """The origin of the dashboard. That of the same site by its address is another one."""
    return f"http://localhost:{site.port}"


@pytest.fixture(scope="module")
def settings(headless_shell: str, allowed: str) -> JSON:
    browser = {"executable": headless_shell, "private": True}
    return {"services": {"browser": browser}, "server": {"embed_origins": [allowed]}}


@pytest.fixture
async def root(url: str, console: Console) -> AsyncGenerator[ConsoleClient]:
    async with console_client(url) as client:
        await client.log_in(code=await console.logins.mint_code())
        yield client


@asynccontextmanager
async def dashboard(browser: Browser, origin: str, address: str) -> AsyncGenerator[Page]:
    """A page of an origin with a frame."""
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(15_000)
    await page.goto(origin)
    await page.evaluate(
        """address => {
            document.body.innerHTML = "<iframe width=800 height=520></iframe>";
            document.querySelector("iframe").src = address;
        }""",
        address,
    )
    yield page
    await context.close()


@pytest.mark.thorough
async def test_a_dashboard_shows_the_picture_of_a_session_until_its_link_is_revoked(
    browser: Browser, url: str, root: ConsoleClient, ada: Agent, gateway: Gateway, allowed: str
) -> None:
    await page_of(gateway, ada.session).set_content("<title>Cart</title><body bgcolor=red>")
    link = await root.post(f"/sessions/{ada.session}/shares", link=True, rights="embed")
    async with dashboard(browser, allowed, url + link["path"]) as page:
        frame = page.frame_locator("iframe")
        await frame.get_by_role("listitem").get_by_text("Cart").wait_for()
        canvas = frame.locator("canvas")

        async def is_red() -> bool:
            pixel: list[int] = await canvas.evaluate(
                "canvas => [...canvas.getContext('2d').getImageData(9, 9, 1, 1).data]"
            )
            return pixel[0] > 200 > 60 > pixel[1]

        await until(is_red)
        assert await frame.locator("a, button, input, [tabindex]").count() == 0
        assert await page.context.cookies(url) == []
        await root.send("DELETE", f"/sessions/{ada.session}/shares/{link['id']}")
        await frame.get_by_text("This view has ended.").wait_for()
        assert await canvas.count() == 0


@pytest.mark.parametrize(
    ("is_allowed", "path"), matrix((False, "embed.html"), (True, ""), (True, "index.html"))
)
async def test_no_page_of_another_origin_shows_the_view_and_no_page_shows_the_console(
    browser: Browser, url: str, allowed: str, site: Lab, is_allowed: bool, path: str
) -> None:
    origin = allowed if is_allowed else site.url
    async with dashboard(browser, origin, f"{url}/console/{path}") as page:
        await until(lambda: page.frames[-1].url.startswith("chrome-error:"))


@pytest.mark.parametrize("carrier", matrix("header", "cookie"))
async def test_the_login_of_a_frame_opens_the_picture_and_no_other_route(
    url: str, root: ConsoleClient, ada: Agent, carrier: str
) -> None:
    path = f"/sessions/{ada.session}"
    link = await root.post(f"{path}/shares", link=True, rights="embed")
    async with console_client(url) as guest:
        response = await guest.send("POST", "/login", {"code": link["code"]})
        assert "set-cookie" not in response.headers
        secret, csrf = response.json()["secret"], response.json()["csrf"]
        headers: dict[str, str] = {"x_csrf_token": csrf}
        if carrier == "header":
            headers["authorization"] = f"Bearer {secret}"
        else:
            guest.guest_cookie = secret
        for route in ROUTES:
            if route.name == "frames" or route.audience == "anyone":
                continue
            asked = route.full_path.replace("{session_id}", ada.session).removeprefix(API)
            body: JSON | None = None if route.method == "GET" else {}
            refused = await guest.refused(
                route.method, re.sub(r"\{\w+\}", "1", asked), body, **headers
            )
            assert refused["code"] in ("not_allowed", "csrf"), route
        foreign = await guest.refused("GET", "/sessions/s_1/frames", **headers)
        assert foreign["status"] == 404
    async with console_client(url) as stranger:
        # A login with more rights is no login of a frame.
        bearer = f"Bearer {root.cookie}"
        refused = await stranger.refused("GET", f"{path}/frames", authorization=bearer)
        assert refused["status"] == 401


@pytest.mark.parametrize(
    "origin",
    matrix(
        "*",
        "https://a.example/x",
        "https://*.example",
        "https://a.example; script-src *",
        "http://a.example",
        "null",
    ),
)
def test_an_origin_in_the_settings_names_one_site(origin: str) -> None:
    settings: Any = {"embed_origins": [origin]}
    with pytest.raises(ValidationError):
        Config.model_validate({"server": settings, "services": {}})
