"""Sessions in the API: lists, journals, states, files; and sessions of others, which do not exist."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client
from support.console_client import ConsoleClient
from support.gateway_process import Running, opened_session

UNKNOWN = "sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"
READS = ("", "/timeline", "/timeline/1", "/state", "/stderr", "/files", "/files/x", "/links")
PAGE_BYTES = 50_000


@pytest.fixture
async def session(agent: Client) -> str:
    return await opened_session(agent, metadata={"purpose": "orders"}, state={"n": 1})


async def test_a_session_is_shown_as_by_the_command_line(
    agent: Client, alice: ConsoleClient, session: str
) -> None:
    await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    shown = await alice.get(f"/sessions/{session}")
    assert (shown["session_id"], shown["owner"], shown["status"]) == (session, "alice", "idle")
    assert shown["metadata"] == {"purpose": "orders"}
    assert [service["service"] for service in shown["services"]] == ["quick"]
    [process] = shown["processes"]
    assert process["service"] == "quick"
    assert process["pid"] > 1
    assert process["memory_bytes"] > 1_000_000
    assert process["cpu_seconds"] >= 0.0
    listed = (await alice.get("/sessions?limit=5"))["sessions"][0]
    assert listed.items() <= {**shown, "services": ["quick"]}.items()
    assert (await alice.get(f"/sessions/{session}/state"))["value"] == {"n": 1}
    assert (await alice.get(f"/sessions/{session}/stderr"))["stderr"].keys() <= {"quick"}


async def test_a_foreign_session_is_an_unknown_one(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient, root: ConsoleClient, session: str
) -> None:
    for path in READS:
        foreign = await ben.refused("GET", f"/sessions/{session}{path}")
        assert foreign == await ben.refused("GET", f"/sessions/{UNKNOWN}{path}")
        assert (foreign["status"], foreign["code"]) == (404, "session_not_found")
    for action in ("pause", "close", "take", "export"):
        foreign = await ben.refused("POST", f"/sessions/{session}/actions/{action}", {})
        assert foreign["status"] == 404
    assert (await ben.get("/sessions"))["sessions"] == []
    assert session in [each["session_id"] for each in (await root.get("/sessions"))["sessions"]]
    await alice.get(f"/sessions/{session}")


async def test_a_list_is_searched_filtered_sorted_and_paged(
    agent: Client, alice: ConsoleClient
) -> None:
    ids = [await opened_session(agent, name=f"paged {n}") for n in (3, 1, 2)]
    await alice.act(ids[0], "pause")
    by_name = await alice.get("/sessions?query=paged&sort=name")
    assert [each["name"] for each in by_name["sessions"]] == ["paged 1", "paged 2", "paged 3"]
    by_age = await alice.get("/sessions?query=paged&sort=created&limit=2")
    assert [each["session_id"] for each in by_age["sessions"]] == [ids[2], ids[1]]
    cursor = by_age["next_cursor"]
    rest = await alice.get(f"/sessions?query=paged&sort=created&limit=2&cursor={cursor}")
    assert [each["session_id"] for each in rest["sessions"]] == [ids[0]]
    paused = await alice.get("/sessions?query=paged&status=paused")
    assert [each["session_id"] for each in paused["sessions"]] == [ids[0]]
    for query in ("status=asleep", "sort=size", "limit=0", "cursor=x", "color=red"):
        refused = await alice.refused("GET", f"/sessions?{query}")
        assert (refused["status"], refused["code"]) == (400, "invalid_argument"), query


async def test_pages_have_a_bounded_size(agent: Client, alice: ConsoleClient) -> None:
    large = {"note": "x" * 1500}
    ids = [await opened_session(agent, name=f"bulk {n:02}", metadata=large) for n in range(40)]
    found: list[str] = []
    cursor = ""
    while True:
        page = await alice.get(f"/sessions?query=bulk&sort=name&limit=200{cursor}")
        assert len(json.dumps(page, separators=(",", ":"))) < PAGE_BYTES
        found += [each["session_id"] for each in page["sessions"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == ids


async def timeline(client: ConsoleClient, session: str, limit: int) -> list[Any]:
    """Return all entries, page by page."""
    entries: list[Any] = []
    before = ""
    while True:
        page = await client.get(f"/sessions/{session}/timeline?limit={limit}{before}")
        assert len(json.dumps(page, separators=(",", ":"), ensure_ascii=False)) < PAGE_BYTES
        entries = page["entries"] + entries
        if page["next_before"] is None:
            return entries
        before = f"&before={page['next_before']}"


async def test_a_timeline_is_read_in_pages_and_one_entry_in_full(
    agent: Client, alice: ConsoleClient, session: str
) -> None:
    for number in range(30):
        note = {"session_id": session, "role": "user", "content": f"{number} " + "y" * 9_000}
        await agent.call_tool("session_note", note)
    for limit in (7, 100):
        entries = await timeline(alice, session, limit)
        assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    last = entries[-1]
    assert last["cut"] == ["content"]
    whole = await alice.get(f"/sessions/{session}/timeline/{last['seq']}")
    assert whole["content"].startswith("29 y")
    assert len(whole["content"]) > 9_000
    for seq in ("0", "999", "x", "-1", "9" * 30):
        assert (await alice.refused("GET", f"/sessions/{session}/timeline/{seq}"))["status"] == 404


async def test_a_file_is_sent_as_a_download(
    server: Running, alice: ConsoleClient, session: str
) -> None:
    folder = server.data / "browser" / "files" / session
    folder.mkdir(parents=True)
    (folder / "page of <b>.html").write_text("<script>alert(1)</script>")
    [file] = (await alice.get(f"/sessions/{session}/files"))["files"]
    assert (file["name"], file["bytes"]) == ("page of <b>.html", 25)
    response = await alice.send("GET", f"/sessions/{session}/files/page%20of%20%3Cb%3E.html")
    assert response.text == "<script>alert(1)</script>"
    assert response.headers["content-disposition"].startswith("attachment;")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for name in ("none", "%2e%2e%2fstatehold.db", "%2Fetc%2Fpasswd"):
        refused = await alice.send("GET", f"/sessions/{session}/files/{name}")
        assert refused.status_code == 404, name


async def test_services_usage_and_nodes_are_shown(
    alice: ConsoleClient, root: ConsoleClient, session: str
) -> None:
    [service] = (await alice.get("/services"))["services"]
    assert (service["service"], service["status"]) == ("quick", "available")
    usage = await alice.get("/usage")
    assert usage["sessions"]["idle"] >= 1
    assert usage["sessions_limit"] == 10_000
    assert "here" not in usage
    assert (await root.get("/usage"))["here"]["owned"] >= 1
    [node] = (await root.get("/nodes"))["nodes"]
    assert node["state"] == "up"
    assert (await alice.refused("GET", "/nodes"))["code"] == "not_allowed"
