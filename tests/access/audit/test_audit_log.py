"""The audit log of a running server: its entries, its exports, and the faults that a check of its chain finds."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from support.console_client import console_client, operator
from support.gateway_process import JSON, Running, Way, opened_session, service
from support.selection import matrix
from support.task_client import Gate, task_client
from support.token_file import write_tokens
from support.waiting import until

from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.shell.main import main

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> JSON:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    write_tokens(path, f"{ALICE} alice\n{BEN} ben issuer=home\n")
    return {
        "audit": "on",
        "server": {"tokens": str(path)},
        "services": {
            "quick": service("quick"),
            "slow": service(
                *("asking", "--era", "modern", "--long"), prefix="slow_", sandbox="off"
            ),
        },
    }


class Audit:
    """`statehold audit` on the data folder of a server."""

    def __init__(self, server: Running, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._flags = ["--config", str(config), "--data", str(server.data)]
        self._capsys = capsys

    async def run(self, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = await to_thread.run_sync(main, ["audit", *words, *self._flags])
        return code, self._capsys.readouterr().out

    async def entries(self, **members: object) -> list[JSON]:
        """Return the entries that have these members."""
        code, out = await self.run("export")
        assert code == OK
        entries = [json.loads(line) for line in out.splitlines()]
        return [entry for entry in entries if members.items() <= entry.items()]


@pytest.fixture
def audit(server: Running, config_file: Path, capsys: pytest.CaptureFixture[str]) -> Audit:
    return Audit(server, config_file, capsys)


@pytest.fixture
async def session(server: Running, config_file: Path) -> str:
    """A session in which alice called a tool twice."""
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as alice:
        session = await opened_session(alice)
        meta: Any = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await alice.call_tool("inc", {"session_id": session}, meta=meta)
        await alice.call_tool("inc", {"session_id": session, "by": "secret words"})
    return session


async def test_each_call_has_an_entry_before_and_after_it(
    server: Running, config_file: Path, audit: Audit, session: str
) -> None:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with way.connect(headers={"authorization": f"Bearer {BEN}"}) as ben:
        assert (await ben.call_tool("inc", {"session_id": session})).is_error

    async def is_written() -> bool:
        return len(await audit.entries(event="result", session_id=session)) == 3

    await until(is_written)
    request, _, foreign = await audit.entries(event="request", session_id=session)
    assert request["subject"] == "alice"
    assert request["operation"] == "tools/call"
    assert request["tool"] == "inc"
    assert request["decision"] == "allow"
    assert request["transport"] == "http"
    assert request["address"] == "127.0.0.1"
    assert request["trace_id"] == TRACE
    result = (await audit.entries(event="result", call=request["call"]))[0]
    assert result["outcome"] == "ok"
    assert result["duration_ms"] >= 0
    assert (foreign["issuer"], foreign["subject"]) == ("home", "ben")
    denied = (await audit.entries(event="result", call=foreign["call"]))[0]
    assert (denied["decision"], denied["outcome"]) == ("deny", "session_not_found")
    code, out = await audit.run("export")
    assert code == OK
    assert "secret words" not in out
    assert ALICE not in out


async def test_a_task_has_an_entry_at_its_end_and_polls_have_few(
    server: Running, audit: Audit, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path / name) for name in ("a", "b")]
    headers = {"authorization": f"Bearer {ALICE}"}
    async with task_client(f"{server.url}/mcp", headers=headers) as alice:
        session = await alice.session()
        tasks: list[str] = []
        for gate in gates:
            arguments = {"session_id": session, "fifo": str(gate.path)}
            tasks.append((await alice.call("slow_hold", arguments))["taskId"])
        await alice.result("tasks/cancel", {"taskId": tasks[1]})
        await gates[0].release()
        for task in tasks:
            await alice.end_of(task)
        poll = {"name": "session_paused", "arguments": {"sessionId": session}}
        for _ in range(2):
            await alice.get(tasks[0])
            await alice.result("events/poll", poll)

    async def results() -> list[JSON]:
        return await audit.entries(event="result", tool="slow_hold")

    async def is_written() -> bool:
        return len(await results()) == 4

    await until(is_written)
    outcomes: dict[str, list[str]] = {}
    for each in await results():
        outcomes.setdefault(each["call"], []).append(each["outcome"])
    assert list(outcomes.values()) == [["still_running", "ok"], ["still_running", "cancelled"]]
    for method in ("tasks/get", "events/poll"):
        [polled] = await audit.entries(operation=method)
        assert (polled["event"], polled["session_id"]) == ("request", session)


async def test_commands_are_recorded_with_the_user_of_the_machine(
    server: Running, config_file: Path, audit: Audit, session: str
) -> None:
    flags = ["--config", str(config_file), "--data", str(server.data)]
    assert await to_thread.run_sync(main, ["sessions", "pause", session, *flags]) == OK

    async def is_written() -> bool:
        return bool(await audit.entries(event="result", session_id=session, transport="command"))

    await until(is_written)
    entry = (await audit.entries(event="request", session_id=session, transport="command"))[0]
    assert entry["operation"] == "session_pause"
    assert entry["actor_name"].endswith("by a command")


async def test_requests_that_are_refused_before_they_are_read_are_recorded(
    server: Running, audit: Audit
) -> None:
    secret = "never-seen-0123456789"
    async with httpx2.AsyncClient(base_url=server.url) as stranger:
        await stranger.post("/mcp")
        await stranger.post("/mcp", headers={"authorization": f"Bearer {secret}"})
        await stranger.post(f"/mcp?access_token={secret}")
        await stranger.get("/mcp", headers={"host": "evil.example"})
        await stranger.get("/mcp", headers={"origin": "https://evil.example"})
        await stranger.get(f"/s/{'x' * 1000}/mcp")
    expected = ["token_missing", "token_invalid", "token_malformed", "wrong_host", "foreign_origin"]

    async def is_written() -> bool:
        return len(await audit.entries(event="refusal", transport="http")) == 6

    await until(is_written)
    entries = await audit.entries(event="refusal", transport="http")
    assert [entry["outcome"] for entry in entries] == [*expected, "token_missing"]
    assert {entry["address"] for entry in entries} == {"127.0.0.1"}
    code, out = await audit.run("export")
    assert code == OK
    assert secret not in out
    assert max(map(len, out.splitlines())) < 2000


async def test_people_at_the_console_are_recorded(
    server: Running, audit: Audit, session: str
) -> None:
    async with console_client(server.url) as guest:
        await guest.refused("POST", "/login", {"token": "wrong-token-0123456789"})
        await guest.refused("GET", f"/sessions/{session}")
        await guest.log_in(token=BEN)
        for _ in range(2):
            assert (await guest.refused("GET", f"/sessions/{session}"))["status"] == 404
    async with operator(server.data) as root:
        for _ in range(3):
            await root.get(f"/sessions/{session}")
        await root.act(session, "rename", name="audited")
        await root.post("/logout")

    async def is_written() -> bool:
        return bool(await audit.entries(event="login", operation="logout"))

    await until(is_written)
    logins = await audit.entries(event="login", operation="login")
    assert [(entry["decision"], entry.get("subject")) for entry in logins] == [
        ("deny", None),
        ("allow", "ben"),
        ("allow", "local"),
    ]
    assert logins[-1]["actor_name"].endswith("at the console")
    refusals = await audit.entries(event="refusal", session_id=session)
    assert [entry["outcome"] for entry in refusals] == ["login_required", "session_not_found"]
    assert refusals[-1]["subject"] == "ben"
    looks = await audit.entries(operation="console/session", session_id=session)
    assert [entry["subject"] for entry in looks if entry["event"] == "request"] == ["ben", "local"]
    renamed = await audit.entries(operation="console/act_rename", session_id=session)
    assert [entry["event"] for entry in renamed] == ["request", "result"]
    assert (await audit.run("export"))[1].count("wrong-token") == 0


async def test_the_log_is_shown_and_exported_as_events_of_ocsf(audit: Audit, session: str) -> None:
    async def is_written() -> bool:
        return len(await audit.entries(event="result", session_id=session)) == 2

    await until(is_written)
    code, out = await audit.run("tail", "--last", "50")
    assert code == OK
    lines = [line for line in out.splitlines() if session in line]
    assert len(lines) == 2
    for line in lines:
        # A call is one line, with its decision and its end.
        assert re.search(r" alice +inc +\S+ +allow +ok +\d+ ms +127\.0\.0\.1", line)
    code, out = await audit.run("export", "--format", "ocsf")
    assert code == OK
    event = next(
        event
        for event in map(json.loads, out.splitlines())
        if event.get("resources") == [{"uid": session, "type": "session"}]
    )
    assert (event["class_uid"], event["category_uid"], event["type_uid"]) == (6003, 6, 600399)
    assert event["actor"]["user"]["uid"] == "alice"
    assert event["unmapped"]["mcp_method"] == "tools/call"
    assert event["src_endpoint"]["ip"] == "127.0.0.1"


CHANGES = {
    "changed": "UPDATE audit SET document = replace(document, 'alice', 'carol') WHERE seq = 3",
    "removed": "DELETE FROM audit WHERE seq = 3",
    "reordered": "UPDATE audit SET document = (SELECT document FROM audit WHERE seq = 4) WHERE seq = 3",
    "last removed": "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
    "written anew": "UPDATE audit SET hash = lower(hex(zeroblob(32))) WHERE seq = 3",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_check_finds_what_was_done_to_an_entry(
    audit: Audit, session: str, server: Running, change: str
) -> None:
    async def is_written() -> bool:
        return len(await audit.entries(event="result", session_id=session)) == 2

    await until(is_written)
    code, out = await audit.run("verify", "--json")
    assert code == OK
    head = json.loads(out)["head"]
    assert json.loads(out)["entries"] >= 4
    with closing(sqlite3.connect(server.data / "statehold.db")) as database:
        before = database.execute("SELECT seq, document, hash FROM audit").fetchall()
        database.execute(CHANGES[change])
        database.commit()
        code, out = await audit.run("verify", "--json")
        database.execute("DELETE FROM audit")
        database.executemany("INSERT INTO audit VALUES (?, ?, ?)", before)
        database.commit()
    assert code == FAILURE
    assert json.loads(out)["faults"]
    assert (await audit.run("verify", "--head", head))[0] == OK
    other = f"{head[:-1]}{'0' if head[-1] != '0' else '1'}"
    assert (await audit.run("verify", "--head", other))[0] == FAILURE
    assert (await audit.run("verify", "--head", "anything"))[0] == USAGE


async def test_a_chain_that_was_written_anew_differs_from_an_earlier_end(
    audit: Audit, session: str
) -> None:
    head = f"100000:{'a' * 64}"
    assert (await audit.run("verify", "--head", head))[0] == FAILURE


FLOODS = {
    "requests": ("GET", "/api/v1/nodes", None),
    "tokens": ("GET", "/mcp", {"authorization": "Bearer not-a-token-0123456789"}),
    "pages": ("GET", "/mcp", {"origin": "https://evil.example"}),
    "logins": ("POST", "/api/v1/login", {"content-type": "application/json"}),
}


@pytest.mark.parametrize("flood", matrix(*FLOODS))
@pytest.mark.parametrize("refusal", matrix("operator", "look"))
async def test_strangers_hide_no_refusal_of_a_person(
    server: Running, audit: Audit, flood: str, refusal: str
) -> None:
    before = len(await audit.entries(event="refusal", subject="ben"))
    method, path, headers = FLOODS[flood]
    folder = "/operator/sessions" if refusal == "operator" else "/sessions"
    async with (
        console_client(server.url) as ben,
        httpx2.AsyncClient(base_url=server.url, timeout=60) as stranger,
        anyio.create_task_group() as tasks,
    ):
        await ben.log_in(token=BEN)

        async def flood_on() -> None:
            while True:
                body = b'{"code": "wrong"}' if method == "POST" else None
                await stranger.request(method, path, headers=headers, content=body)

        for _ in range(20):
            tasks.start_soon(flood_on)
        for number in range(15):
            assert (await ben.refused("GET", f"{folder}/{flood}-{number}"))["status"] in (403, 404)
        tasks.cancel_scope.cancel()

    async def are_written() -> bool:
        return len(await audit.entries(event="refusal", subject="ben")) == before + 15

    await until(are_written)
