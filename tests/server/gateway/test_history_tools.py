"""The toolset `history`, as a client sees it: in both protocol eras."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import (
    IN_PROCESS,
    JSON,
    UPSTREAMS,
    code_of,
    opened_session,
    service,
    structured,
)
from support.own_results import check_own_result
from support.selection import matrix_of

TOKEN = "ghp_abcdefghijklmnopqrstuv"

WAYS = matrix_of(IN_PROCESS)


@pytest.fixture(scope="module")
def settings(fork_server: ForkServer) -> JSON:
    return {
        "redact_patterns": ["TOP-\\d+"],
        "services": {
            "quick": service("asking"),
            "counter": fork_server.service(UPSTREAMS / "counter.py", prefix="c_"),
        },
    }


async def history(client: Client, session: str, **wanted: Any) -> list[JSON]:
    content = structured(
        await client.call_tool("session_history", {"session_id": session, **wanted})
    )
    return content["entries"]


async def note(
    client: Client, session: str, role: str, content: str, run: str | None = None
) -> JSON:
    arguments = {"session_id": session, "role": role, "content": content}
    return structured(
        await client.call_tool(
            "session_note", arguments if run is None else {**arguments, "run_id": run}
        )
    )


async def run_of(client: Client, session: str, run: str) -> None:
    """A question, two calls, an answer."""
    await note(client, session, "user", f"question of {run}", run)
    meta: Any = {"statehold/run_id": run}
    await client.call_tool("inc", {"session_id": session}, meta=meta)
    await client.call_tool("echo", {"session_id": session, "text": "hi"}, meta=meta)
    await note(client, session, "assistant", f"answer of {run}", run)


async def test_a_conversation_is_read_as_the_field_reads_it(client: Client) -> None:
    """Read runs, tool calls, chat history and pairs."""
    session = await opened_session(client)
    await note(client, session, "system", "be kind")
    for run in ("one", "two", "three"):
        await run_of(client, session, run)
    messages = [(e["role"], e["content"]) for e in await history(client, session, kind="message")]
    assert messages[:3] == [
        ("system", "be kind"),
        ("user", "question of one"),
        ("assistant", "answer of one"),
    ]
    pairs = await history(client, session, kind=["message"], skip_roles=["system"])
    assert [entry["role"] for entry in pairs] == ["user", "assistant"] * 3
    last = await history(client, session, last_runs=2)
    assert [entry["run_id"] for entry in last] == ["two"] * 4 + ["three"] * 4
    assert [entry["kind"] for entry in last[:4]] == ["message", "call", "call", "message"]
    calls = await history(client, session, kind="call", last=2)
    assert [entry["tool"] for entry in calls] == ["inc", "echo"]
    assert calls[1]["arguments"] == {"text": "hi"}
    assert calls[0]["result"]["content"] == ["3"]
    assert calls[0]["duration_ms"] >= 0
    assert await history(client, session, last=0) == []
    assert await history(client, session, last_runs=0) == []
    skipped = await history(client, session, kind="call", skip_tools="echo", run="one")
    assert [entry["tool"] for entry in skipped] == ["inc"]
    assert [entry["seq"] for entry in await history(client, session)] == list(range(1, 15))


async def test_pages_go_back_and_have_everything_once(client: Client) -> None:
    session = await opened_session(client)
    for number in range(23):
        await note(client, session, "user", str(number))
    contents: list[str] = []
    arguments: JSON = {"session_id": session, "kind": "message", "last": 5}
    while True:
        page = structured(await client.call_tool("session_history", arguments))
        contents = [entry["content"] for entry in page["entries"]] + contents
        if page["next_cursor"] is None:
            break
        arguments["cursor"] = page["next_cursor"]
    assert contents == [str(number) for number in range(23)]


async def test_failed_calls_are_shown_with_their_messages(client: Client) -> None:
    """Failed calls are included by default too."""
    session = await opened_session(client)
    await client.call_tool("c_fail", {"session_id": session, "message": "no luck"})
    await client.call_tool("inc", {"session_id": session})
    [failed] = await history(client, session, status="error")
    assert (failed["tool"], failed["result"]["content"]) == ("fail", ["no luck"])
    assert len(await history(client, session, kind="call")) == 2


async def test_one_entry_is_found_by_its_number(client: Client) -> None:
    session = await opened_session(client)
    seq = (await note(client, session, "user", "this one"))["entry"]["seq"]
    [entry] = await history(client, session, seq=seq)
    assert entry["content"] == "this one"
    arguments = {"session_id": session, "seq": 999}
    assert code_of(await client.call_tool("session_history", arguments)) == "invalid_argument"


async def test_no_secret_is_in_a_history(client: Client) -> None:
    """Secrets in arguments, results, errors and messages are found by name, by form and by configuration."""
    session = await opened_session(client)
    await client.call_tool("echo", {"session_id": session, "password": "hunter2", "x": TOKEN})
    await client.call_tool("c_fail", {"session_id": session, "message": f"TOP-1234 {TOKEN}"})
    await note(client, session, "user", f"my key is {TOKEN}, TOP-1234")
    summed = await client.call_tool(
        "session_summary",
        {"session_id": session, "text": f"used {TOKEN}", "topics": ["TOP-1234"]},
    )
    shown = f"{await history(client, session)} {structured(summed)}"
    for secret in ("hunter2", TOKEN, "TOP-1234"):
        assert secret not in shown
    assert shown.count("[redacted]") >= 6


async def test_what_a_person_writes_is_kept_as_written(client: Client) -> None:
    session = await opened_session(client)
    written = (
        'token: abc, pass: next, `curl -u ada:x --token y`, {"password": "z"}. Cookie: of oats'
    )
    await note(client, session, "user", written)
    text = {"session_id": session, "text": f"They said {written}", "topics": ["token: abc"]}
    summed = structured(await client.call_tool("session_summary", text))["summary"]
    await client.call_tool("echo", {"session_id": session, "text": "token: abc"})
    [said, called] = await history(client, session, kind=["message", "call"])
    assert said["content"] == written
    assert (summed["text"], summed["topics"]) == (f"They said {written}", ["token: abc"])
    assert called["arguments"]["text"] == "token: [redacted]"


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("session_history", {"cursor": "x"}),
        ("session_history", {"cursor": "YmVmb3JlIHg"}),
        ("session_history", {"last": 1001}),
        ("session_history", {"last": -1}),
        ("session_history", {"kind": "notes"}),
        ("session_history", {"since": "yesterday"}),
        ("session_history", {"nothing": 1}),
        ("session_history", {"last": True}),
        ("session_history", {"last_runs": True}),
        ("session_note", {"role": "user"}),
        ("session_note", {"role": "", "content": "x"}),
        ("session_note", {"role": "r" * 65, "content": "x"}),
        ("session_note", {"role": "user", "content": "ä" * 40_000}),
        ("session_note", {"role": "user", "content": "x", "run_id": "r" * 129}),
        ("session_summary", {"topics": ["alone"]}),
        ("session_summary", {"text": "x" * 20_001}),
    ],
)
async def test_an_invalid_request_is_refused_and_changes_nothing(
    client: Client, tool: str, more: JSON
) -> None:
    session = await opened_session(client)
    refused = await client.call_tool(tool, {"session_id": session, **more})
    assert code_of(refused) == "invalid_argument"
    assert await history(client, session, kind="message") == []


async def test_a_paused_session_stays_paused(client: Client) -> None:
    session = await opened_session(client)
    await client.call_tool("inc", {"session_id": session})
    await client.call_tool("session_pause", {"session_id": session})
    await note(client, session, "user", "while it sleeps")
    arguments = {"session_id": session, "text": "it sleeps"}
    await client.call_tool("session_summary", arguments)
    last = (await history(client, session))[-2:]
    assert [entry["kind"] for entry in last] == ["transition", "message"]
    info = structured(await client.call_tool("session_info", {"session_id": session}))
    assert info["status"] == "paused"


async def test_a_closed_session_can_be_read_but_not_added_to(client: Client) -> None:
    session = await opened_session(client)
    await note(client, session, "user", "before")
    await client.call_tool("session_close", {"session_id": session})
    for tool, more in (
        ("session_note", {"role": "user", "content": "after"}),
        ("session_summary", {"text": "after"}),
    ):
        refused = await client.call_tool(tool, {"session_id": session, **more})
        assert code_of(refused) == "session_closed"
    messages = await history(client, session, kind="message")
    assert [entry["content"] for entry in messages] == ["before"]
    content = structured(await client.call_tool("session_summary", {"session_id": session}))
    assert content["summary"] is None
    assert content["digest"]["status"] == "closed"


async def test_a_summary_counts_and_quotes_and_is_stable(client: Client) -> None:
    """The digest is made from records alone, without a model."""
    session = await opened_session(client, state={"cart": [], "user": "ada"})
    await run_of(client, session, "one")
    await note(client, session, "user", "the invoice of March, that invoice")
    await client.call_tool("c_fail", {"session_id": session, "message": "no luck"})
    one = {"session_id": session}
    content = structured(await client.call_tool("session_summary", one))
    assert content["summary"] is None
    digest = content["digest"]
    assert digest["source"] == "digest"
    assert {call["tool"]: call["count"] for call in digest["calls"]} == {
        "inc": 1,
        "echo": 1,
        "fail": 1,
    }
    assert digest["messages"] == {"assistant": 1, "user": 2}
    assert digest["last_errors"][0]["result"] == "no luck"
    assert digest["state_keys"] == ["cart", "user"]
    assert digest["topics"][0] == "invoice"
    assert digest["runs"] == 1
    for words in ("no luck", "cart, user", "invoice", "3 calls", "2 user"):
        assert words in digest["text"]
    assert len(digest["text"]) <= 4000
    assert structured(await client.call_tool("session_summary", one)) == content


async def test_the_summary_of_a_host_comes_first(client: Client) -> None:
    """The summary is null at first, then has a text, topics, a time and a source."""
    session = await opened_session(client)
    await note(client, session, "user", "first")
    arguments = {"session_id": session, "text": "We met.", "topics": ["greeting", "greeting"]}
    content = structured(await client.call_tool("session_summary", arguments))
    assert list(content)[1] == "summary"
    assert content["summary"]["text"] == "We met."
    assert content["summary"]["topics"] == ["greeting"]
    assert content["summary"]["source"] == "host"
    assert content["summary"]["entries_since"] == 0
    await note(client, session, "user", "second")
    again = structured(await client.call_tool("session_summary", {"session_id": session}))
    assert again["summary"] == {**content["summary"], "entries_since": 1}


async def test_the_tools_are_described(client: Client) -> None:
    """The tools have hints, and their results the form of their models."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    hints = {
        name: tools[name].annotations
        for name in ("session_history", "session_note", "session_summary")
    }
    session = await opened_session(client)
    await run_of(client, session, "one")
    results = {
        "session_history": await client.call_tool("session_history", {"session_id": session}),
        "session_note": await client.call_tool(
            "session_note", {"session_id": session, "role": "user", "content": "x"}
        ),
        "session_summary": await client.call_tool(
            "session_summary", {"session_id": session, "text": "x"}
        ),
    }
    for name, hint in hints.items():
        assert hint is not None
        assert hint.read_only_hint is (name == "session_history")
        assert not hint.destructive_hint
        check_own_result(name, structured(results[name]))
