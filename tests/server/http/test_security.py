"""Access over HTTP: the origin of requests, the caller's identity, and the data that stays hidden from callers."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil
import pytest
from mcp import Client, MCPError
from mcp_types import TextResourceContents
from support.gateway_process import (
    ASKS_SERVICE,
    ASKS_SESSION,
    JSON,
    Era,
    Running,
    Way,
    code_of,
    count,
    meta_of,
    modern_call,
    opened_session,
    service,
    serving,
    structured,
    text_of,
)
from support.session_requests import TOOLS
from support.token_file import write_tokens

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
BEN_AGAIN = "ben-phone-0123456789abc"
ENV_SECRET, ARG_SECRET = "env-secret-4711", "arg-secret-4712"
UNKNOWN = "sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    write_tokens(
        path,
        f"{ALICE} alice\n{BEN} ben client_id=laptop issuer=home\n"
        f"{BEN_AGAIN} ben client_id=phone issuer=home\n",
    )
    return path


@pytest.fixture(scope="module")
def settings(tokens: Path) -> JSON:
    secret = {"env": {"API_KEY": ENV_SECRET}}
    return {
        "server": {"tokens": str(tokens)},
        "log": {"level": "debug"},
        "toolsets": ["core", "lifecycle", "state", "history", "branch", "admin", "view", "calls"],
        "services": {
            "asking": service("asking", "--era", "legacy", "--api-key", ARG_SECRET, **secret),
            "broken": service("bad", "exit-at-start", prefix="broken_", **secret),
        },
    }


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
async def alice(http: Way) -> AsyncGenerator[Client]:
    async with http.connect(headers=bearer(ALICE), **ANSWERS) as client:
        yield client


@pytest.fixture(scope="module")
async def ben(http: Way) -> AsyncGenerator[Client]:
    async with http.connect(headers=bearer(BEN), **ANSWERS) as client:
        yield client


async def answer(context: object, params: object) -> Any:
    from mcp_types import ElicitResult

    return ElicitResult(action="accept", content={"answer": "42"})


ANSWERS: JSON = {"elicitation_callback": answer}


@pytest.fixture
async def raw(server: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, headers=bearer(ALICE), timeout=60) as client:
        yield client


# Where requests may come from.

ROUTES = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("POST", "/s/desk/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages/"),
    ("GET", "/health"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_foreign_host_or_origin_is_refused_on_every_route(
    raw: httpx2.AsyncClient, method: str, path: str
) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
        answer = await raw.request(method, path, headers={"host": host})
        assert answer.status_code == 421
    for origin in (
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "file://localhost",
        "http://",
        "http://[",
    ):
        answer = await raw.request(method, path, headers={"origin": origin})
        assert answer.status_code == 403, origin


async def test_pages_of_this_machine_and_its_names_are_welcome(raw: httpx2.AsyncClient) -> None:
    port = raw.base_url.port
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]", "LOCALHOST:1"):
        assert (await raw.get("/health", headers={"host": host})).status_code == 200, host
    for origin in ("http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443"):
        assert (await raw.get("/health", headers={"origin": origin})).status_code == 200, origin


async def test_health_contains_no_names(server: Running) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as raw:
        answer = await raw.get("/health")
        assert answer.json() == {"status": "ok", "services": {"ok": 1, "unavailable": 1}}


# The caller's identity.


async def test_without_a_good_token_no_route_answers(server: Running) -> None:
    """The requests run at once: the server answers each wrong token later than the one before."""
    credentials = (
        None,
        "Bearer",
        "Bearer wrong-token-0123456789",
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE}x",
        f"Basic {ALICE}",
        ALICE,
    )
    async with (
        httpx2.AsyncClient(base_url=server.url, timeout=60) as raw,
        anyio.create_task_group() as tasks,
    ):

        async def refused(method: str, path: str, authorization: str | None) -> None:
            headers = {} if authorization is None else {"authorization": authorization}
            answer = await raw.request(method, path, headers=headers)
            is_malformed = authorization == "Bearer" or "access_token" in path
            assert answer.status_code == (400 if is_malformed else 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert ALICE not in answer.text

        for method, path in ROUTES[:6]:
            for authorization in credentials:
                tasks.start_soon(refused, method, path, authorization)
            in_the_url = f"{path}?access_token={ALICE}&token={ALICE}"
            tasks.start_soon(refused, method, in_the_url, None)


async def test_a_foreign_session_is_the_same_as_an_unknown_one(alice: Client, ben: Client) -> None:
    name = f"alice's {alice.protocol_version}"
    live = await opened_session(alice, name=name)
    assert await count(alice, live) == 1
    idle = await opened_session(alice)
    paused = await opened_session(alice)
    await count(alice, paused)
    await alice.call_tool("session_pause", {"session_id": paused})
    closed = await opened_session(alice)
    await alice.call_tool("session_close", {"session_id": closed})
    for tool, more in TOOLS:
        unknown = await ben.call_tool(tool, {"session_id": UNKNOWN, **more})
        assert code_of(unknown) == "session_not_found"
        for foreign in (live, idle, paused, closed, name):
            result = await ben.call_tool(tool, {"session_id": foreign, **more})
            assert result.model_dump() == unknown.model_dump(), (tool, foreign)
    listed = structured(await ben.call_tool("session_list", {}))["sessions"]
    assert {live, idle, paused, closed}.isdisjoint(s["session_id"] for s in listed)
    assert await count(alice, live) == 2
    info = structured(await alice.call_tool("session_info", {"session_id": paused}))
    assert info["status"] == "paused"


async def test_the_sessions_of_a_user_are_there_for_each_of_its_clients(
    http: Way, ben: Client
) -> None:
    name = f"ben's {ben.protocol_version}"
    session = await opened_session(ben, name=name)
    assert await count(ben, session) == 1
    async with http.connect(headers=bearer(BEN_AGAIN), **ANSWERS) as phone:
        assert await count(phone, name) == 2
        listed = structured(await phone.call_tool("session_list", {}))["sessions"]
        assert session in {s["session_id"] for s in listed}


async def test_every_tool_that_takes_a_session_is_tried_on_a_foreign_one(ben: Client) -> None:
    own = {
        tool.name
        for tool in (await ben.list_tools(meta=ASKS_SERVICE)).tools
        if "session_id" in tool.input_schema["properties"]
        and "statehold/service" not in (tool.meta or {})
    }
    assert own <= {tool for tool, _ in TOOLS}


async def test_an_import_of_a_foreign_session_is_ones_own_and_leaves_that_one_as_it_is(
    alice: Client, ben: Client
) -> None:
    """The recipient of the document gets a copy, and no access to the original session."""
    name = f"given {alice.protocol_version}"
    theirs = await opened_session(alice, name=name, state={"n": 1})
    exported = structured(await alice.call_tool("session_export", {"session_id": theirs}))
    imported = structured(await ben.call_tool("session_import", {"document": exported["document"]}))
    mine = imported["session_id"]
    assert mine != theirs
    await ben.call_tool("state_update", {"session_id": name, "values": {"n": 2}})
    for client, session, n in ((ben, mine, 2), (alice, theirs, 1)):
        content = structured(await client.call_tool("state_get", {"session_id": name}))
        assert content["value"] == {"n": n}
        info = structured(await client.call_tool("session_info", {"session_id": name}))
        assert info["session_id"] == session
    for client, foreign in ((ben, theirs), (alice, mine)):
        refused = await client.call_tool("session_info", {"session_id": foreign})
        assert code_of(refused) == "session_not_found"
    await ben.call_tool("session_delete", {"session_id": mine, "force": True})
    again = structured(await alice.call_tool("session_export", {"session_id": theirs}))
    assert again["document"]["state"] == exported["document"]["state"]


async def test_a_foreign_state_is_the_same_resource_as_an_unknown_one(
    alice: Client, ben: Client
) -> None:
    name = f"hers {alice.protocol_version}"
    session = await opened_session(alice, name=name, state={"n": 1})
    errors: list[JSON] = []
    for ref in (UNKNOWN, session, name.replace(" ", "%20")):
        with pytest.raises(MCPError) as error_info:
            await ben.read_resource(f"session://{ref}/state")
        errors.append(error_info.value.error.model_dump())
    assert errors[1:] == errors[:1] * 2
    assert "session_not_found" in errors[0]["message"]
    (part,) = (await alice.read_resource(f"session://{session}/state")).contents
    assert isinstance(part, TextResourceContents)
    assert json.loads(part.text) == {"n": 1}


async def test_foreign_resources_and_prompts_are_unknown_too(alice: Client, ben: Client) -> None:
    session = await opened_session(alice)
    errors: list[JSON] = []
    for ref in (session, UNKNOWN):
        with pytest.raises(MCPError) as error_info:
            await ben.read_resource(f"session://{ref}/asking/quick%3A%2F%2Fvalue")
        errors.append(error_info.value.error.model_dump())
        with pytest.raises(MCPError) as error_info:
            await ben.get_prompt("report", {"session_id": ref})
        errors.append(error_info.value.error.model_dump())
    assert errors[:2] == errors[2:]
    assert "session_not_found" in errors[0]["message"]


async def test_a_name_belongs_to_its_owner(http: Way) -> None:
    ids: set[str] = set()
    for token in (ALICE, BEN, ALICE):
        async with http.connect(f"/s/desk {http.era}/mcp", headers=bearer(token)) as client:
            result = await client.call_tool("inc", {}, meta=ASKS_SESSION)
            ids.add(meta_of(result)["statehold/session"]["id"])
    assert len(ids) == 2
    async with http.connect(f"/s/{ids.pop()}/mcp", headers=bearer(ALICE)) as client:
        first = await client.call_tool("session_info", {})
    async with http.connect(f"/s/{ids.pop()}/mcp", headers=bearer(ALICE)) as client:
        second = await client.call_tool("session_info", {})
    assert sorted([first.is_error or False, second.is_error or False]) == [False, True]


async def test_another_caller_cannot_continue_a_parked_call(
    http: Way, alice: Client, ben: Client
) -> None:
    if http.era == "legacy":
        pytest.skip("a legacy client is asked while its call runs")
    session = await opened_session(alice)

    async def ask(client: Client, **more: Any) -> Any:
        return await client.session.call_tool(
            "ask", {"session_id": session}, allow_input_required=True, **more
        )

    from mcp_types import ElicitResult

    parked = await ask(alice)
    accepted = ElicitResult(action="accept", content={"answer": "mine"})
    answers: Any = dict.fromkeys(parked.input_requests, accepted)
    with pytest.raises(MCPError, match="has ended"):
        await ask(ben, input_responses=answers, request_state=parked.request_state)
    result = await ask(alice, input_responses=answers, request_state=parked.request_state)
    assert "mine" in text_of(result)


async def test_a_transport_session_belongs_to_whom_it_was_opened_for(
    raw: httpx2.AsyncClient,
) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = {"accept": "application/json, text/event-stream"}
    opened = await raw.post("/mcp", json=hello, headers=accept)
    mine = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await raw.post("/mcp", json=ping, headers=mine)).status_code == 200
    theirs = {**mine, **bearer(BEN)}
    foreign = await raw.post("/mcp", json=ping, headers=theirs)
    unknown = await raw.post("/mcp", json=ping, headers={**theirs, "mcp-session-id": "0" * 32})
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text
    assert (await raw.delete("/mcp", headers=theirs)).status_code == 404
    assert (await raw.post("/mcp", json=ping, headers=mine)).status_code == 200


# Data that stays hidden from callers.


async def test_no_error_shows_a_path_or_a_traceback(
    alice: Client, raw: httpx2.AsyncClient, server: Running
) -> None:
    session = await opened_session(alice)
    calls: list[tuple[str, JSON]] = [
        ("crash", {"session_id": session}),
        ("inc", {"session_id": UNKNOWN}),
        ("session_restart", {"session_id": session, "services": ["broken"]}),
        ("session_create", {"services": ["/etc/passwd"]}),
        ("session_create", {"name": "../../etc"}),
        ("session_info", {"session_id": session}),
    ]
    results = [await alice.call_tool(tool, arguments) for tool, arguments in calls]
    texts = [result.model_dump_json() for result in results]
    for tool, given in (("inc", {"session_id": 5}), ("nothing", {}), ("inc", None)):
        body, headers = modern_call(tool, given or {})
        texts.append((await raw.post("/mcp", json=body, headers=headers)).text)
    _, headers = modern_call("inc", {})
    for content in (b"{", b"[]", b'{"jsonrpc": "2.0", "id": 1, "method": 5}', b"\xff"):
        answer = await raw.post("/mcp", content=content, headers=headers)
        texts.append(answer.text)
    text = "\n".join(texts)
    for secret in ("Traceback", 'File "', "site-packages", str(Path(__file__).parents[3])):
        assert secret not in text
    for secret in (ALICE, BEN, ENV_SECRET, ARG_SECRET):
        assert secret not in text


async def check_log(server: Running, alice: Client) -> None:
    """Cause messages about tokens and services, and check that none has a secret."""
    session = await opened_session(alice)
    await alice.call_tool("crash", {"session_id": session})
    assert await count(alice, session) == 1
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as raw:
        await raw.post("/mcp", headers=bearer("a-wrong-token-0123456789"), json={})
    for secret in (ALICE, BEN, ENV_SECRET, ARG_SECRET, "a-wrong-token"):
        assert secret not in server.log


async def test_secrets_are_not_logged(server: Running, alice: Client) -> None:
    await check_log(server, alice)


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_secrets_are_neither_logged_nor_on_a_command_line_of_ours(
    config_file: Path, tmp_path: Path, era: Era
) -> None:
    with serving(config_file, tmp_path / "data", as_installed=True) as running:
        way = Way("http", era, config_file, tmp_path, url=running.url)
        async with way.connect(headers=bearer(ALICE)) as alice:
            await check_log(running, alice)
            check_command_lines(running)


def check_command_lines(server: Running) -> None:
    process = psutil.Process(server.process.pid)
    lines = " ".join(process.cmdline())
    for child in process.children(recursive=True):
        line = " ".join(child.cmdline())
        # An argument that the user wrote into the configuration is the child's own.
        lines += line.replace(ARG_SECRET, "") if "asking.py" in line else line
    for secret in (ALICE, BEN, ENV_SECRET, ARG_SECRET):
        assert secret not in lines


async def test_nothing_readable_by_others_is_left_in_the_data_folder(
    server: Running, alice: Client
) -> None:
    data = server.data
    await count(alice, await opened_session(alice))
    paths = [data, *sorted(data.rglob("*"))]
    assert len(paths) > 1
    for path in paths:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path} {mode:o}"
    assert data.stat().st_uid == os.getuid()
