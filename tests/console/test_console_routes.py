"""The routes of the API: each needs a login, and is in the OpenAPI document."""

from __future__ import annotations

import json
import re

from starlette.routing import Mount, Route
from support.console_client import ConsoleClient, console_client
from support.gateway_process import Running

from statehold.console.app import ROUTES, Console
from statehold.console.page import PAGE, SecurityHeaders
from statehold.console.routes import PREFIX
from statehold.server.gateway.gateway import Gateway


def served_routes(gateway: Gateway) -> set[tuple[str, str]]:
    """Return the method and the path of each route that the application serves, but for the files of the page."""
    found: set[tuple[str, str]] = set()
    for mount in Console(gateway).routes():
        if isinstance(mount, Mount) and mount.path != PAGE:
            assert isinstance(mount.app, SecurityHeaders)
            for route in mount.app.routes:
                assert isinstance(route, Route)
                assert route.methods is not None
                found |= {(method, f"{mount.path}{route.path}") for method in route.methods}
    return found


async def test_the_application_its_table_and_its_document_have_the_same_routes(
    gateway: Gateway, root: ConsoleClient
) -> None:
    served = served_routes(gateway)
    assert len(served) > 25
    assert served == {(route.method, route.full_path) for route in ROUTES}
    document = await root.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    documented = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    assert documented == served
    ids = [operation["operationId"] for p in document["paths"].values() for operation in p.values()]
    assert len(ids) == len(set(ids))


async def test_no_route_answers_without_a_login(server: Running, gateway: Gateway) -> None:
    async with console_client(server.url) as client:
        for method, path in sorted(served_routes(gateway)):
            if (method, path) == ("GET", f"{PREFIX}/login"):
                continue
            filled = re.sub(r"\{\w+\}", "1", path).removeprefix(PREFIX)
            refused = await client.refused(method, filled, None if method == "GET" else {})
            is_login = path == f"{PREFIX}/login"
            assert refused["status"] == (400 if is_login else 401), (method, path)


async def test_every_parameter_of_a_path_is_documented(root: ConsoleClient) -> None:
    document = await root.get("/openapi.json")
    for path, item in document["paths"].items():
        for operation in item.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


async def test_unknown_paths_and_methods_have_the_headers_of_the_console(
    root: ConsoleClient,
) -> None:
    unknown = await root.send("GET", "/sessions/1/nothing")
    wrong = await root.send("PUT", "/me")
    assert (unknown.status_code, wrong.status_code) == (404, 405)
    for response in (unknown, wrong):
        assert response.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in response.headers["content-security-policy"]


async def test_every_reference_of_the_document_leads_to_something(root: ConsoleClient) -> None:
    document = await root.get("/openapi.json")
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)))
    assert "components/responses/Error" in references
    for reference in references:
        found = document
        for key in reference.split("/"):
            found = found[key]
