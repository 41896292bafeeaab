"""Sessions in the API: lists, journals, states, files; and sessions of others, which do not exist."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client
from support.console_client import ConsoleClient
from support.gateway_process import Running, opened_session

UNKNOWN = "sh_aaaaaaaaaaaaaaaaaaaaaaaaaa"
READS = ("", "/timeline", "/timeline/1", "/state", "/stderr", "/files", "/files/x", "/shares")
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


async def test_sessions_whose_agents_ask_for_a_person_are_found(
    agent: Client, alice: ConsoleClient, session: str
) -> None:
    request = {"session_id": session, "reason": "a captcha", "wait_seconds": 0}
    await agent.call_tool("session_request_human", request)
    found = (await alice.get("/sessions?driver=requested"))["sessions"]
    assert [each["session_id"] for each in found] == [session]
    assert (await alice.get("/sessions?driver=human"))["sessions"] == []


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
    assert usage["limits"]["sessions"] == {"limit": 10_000, "source": "default"}
    assert usage["limits"]["calls_in_flight"]["limit"] == usage["calls_in_flight"] == 0
    assert "here" not in usage
    assert (await root.get("/usage"))["here"]["owned"] >= 1
    [node] = (await root.get("/nodes"))["nodes"]
    assert node["state"] == "up"
    assert (await alice.refused("GET", "/nodes"))["code"] == "not_allowed"


async def change_state(agent: Client, session: str, **arguments: Any) -> None:
    given = {"session_id": session, **arguments}
    result = await agent.call_tool("state_update", given, meta={"statehold/run_id": "r1"})
    assert not result.is_error, result


async def test_earlier_versions_of_a_state_are_derived_from_the_journal(
    agent: Client, alice: ConsoleClient
) -> None:
    session = await opened_session(agent, state={"cart": {"items": ["tea"]}, "user": "ada"})
    path = f"/sessions/{session}/state"
    await change_state(agent, session, values={"cart": {"total": 3}, "note": "new"})
    await change_state(agent, session, values="milk", path="/cart/items/-")
    await change_state(agent, session, values={"cart": {"total": 5}, "user": None})
    versions = await alice.get(f"{path}/versions")
    assert (versions["version"], versions["earliest"]) == (3, 0)
    assert [change["version"] for change in versions["changes"]] == [3, 2, 1]
    assert {change["run_id"] for change in versions["changes"]} == {"r1"}
    second = await alice.get(f"{path}?version=2")
    assert second["value"] == {"cart": {"items": ["tea", "milk"], "total": 3}, "note": "new"}
    # The journal does not have the state of the creation.
    assert second["unknown"] == ["/user"]
    first = await alice.get(f"{path}?version=1")
    assert first["value"]["cart"] == {"items": ["tea"], "total": 3}
    oldest = await alice.get(f"{path}?version=0")
    assert oldest["value"] == {"cart": {"items": ["tea"]}}
    assert sorted(oldest["unknown"]) == ["/cart/total", "/note", "/user"]
    refused = await alice.refused("GET", f"{path}?version=4")
    assert (refused["status"], refused["code"]) == (404, "not_found")

    # A change outside of a run is in no journal: the chain ends there.
    await agent.call_tool("state_update", {"session_id": session, "values": {"n": 1}})
    versions = await alice.get(f"{path}/versions")
    assert (versions["version"], versions["earliest"], versions["changes"]) == (4, 4, [])
    refused = await alice.refused("GET", f"{path}?version=3")
    assert "not known" in refused["message"]


async def test_a_fork_knows_its_first_state_and_its_parent_and_siblings(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient
) -> None:
    parent = await opened_session(agent, name="family", state={"n": 1, "user": "ada"})
    forked = await alice.act(parent, "fork", count=2, names=["left", "right"])
    left, right = (child["session_id"] for child in forked["children"])
    await change_state(agent, left, values={"n": 2, "user": None})
    assert (await alice.get(f"/sessions/{left}/state?version=0"))["value"]["user"] == "ada"
    family = await alice.get(f"/sessions/{left}/forks")
    assert (family["parent"]["name"], family["parent"]["status"]) == ("family", "idle")
    assert [each["name"] for each in family["siblings"]] == ["right"]
    assert family["children"] == []
    family = await alice.get(f"/sessions/{parent}/forks")
    assert {each["session_id"] for each in family["children"]} == {left, right}
    assert (family["parent_id"], family["siblings"], family["more"]) == (None, [], False)


async def test_failures_of_a_timeline_are_found_among_many_entries(
    agent: Client, alice: ConsoleClient, session: str
) -> None:
    await agent.call_tool("fail", {"session_id": session})
    for _ in range(12):
        await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    page = await alice.get(f"/sessions/{session}/timeline?failed=true&limit=5")
    assert [entry["tool"] for entry in page["entries"]] == ["fail"]
    assert page["next_before"] is None
