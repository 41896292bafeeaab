"""The metrics of a server as a scraper reads them, and the last hour of a session."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from prometheus_client.parser import text_string_to_metric_families
from support.counting import Nobody
from support.gateway_process import (
    JSON,
    Era,
    Running,
    Way,
    count,
    opened_session,
    service,
    serving,
    toml,
)
from support.open_gateways import serving_gateway
from support.token_file import write_tokens
from support.waiting import until_blocking

from statehold.server.operate.handler import OperatorHandler
from statehold.server.operate.metrics import metrics_page
from statehold.server.operate.requests import OperatorRequest
from statehold.server.operate.usage_samples import UsageSamples
from statehold.sessions.calls.request import Request
from statehold.sessions.records import LOCAL

ROOT = Path(__file__).resolve().parents[3]
Samples: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]

CALLS = "mcp_client_operation_duration_seconds"
REQUESTS = "mcp_server_operation_duration_seconds"


@contextmanager
def measured(folder: Path, *options: str, **settings: JSON) -> Generator[Running]:
    """Run a server with metrics on a free port."""
    document: JSON = {"metrics": {"listen": "127.0.0.1:0"}, "services": {"quick": service("quick")}}
    config = folder / "statehold.toml"
    config.write_text(toml(document | settings))
    with serving(config, folder / "data", *options) as running:
        yield running


def address(running: Running) -> str:
    found = until_blocking(lambda: re.search(r"metrics at (http://\S+)", running.log))
    assert found is not None
    return found[1]


@asynccontextmanager
async def connected(running: Running, era: Era = "modern") -> AsyncGenerator[Client]:
    way = Way("http", era, running.data, running.data, url=running.url)
    async with way.connect() as client:
        yield client


async def scrape(running: Running) -> tuple[str, Samples]:
    async with httpx2.AsyncClient() as http:
        answer = await http.get(address(running))
    assert answer.status_code == 200
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    return answer.text, samples


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels."""
    return sum(
        each
        for (found, others), each in samples.items()
        if found == name and labels.items() <= dict(others).items()
    )


async def test_a_scrape_has_calls_connections_and_sessions_and_names_nobody(tmp_path: Path) -> None:
    with measured(tmp_path) as running:
        async with connected(running) as client:
            session = await opened_session(client, name="ledger")
            await count(client, session)
            await client.call_tool("fail", {"session_id": session})
            await client.call_tool("crash", {"session_id": session})
            await count(client, session)
            await client.call_tool("session_pause", {"session_id": session})
        text, samples = await scrape(running)
    calls = f"{CALLS}_count"
    assert value(samples, calls, service="quick", error_type="") == 2
    assert value(samples, calls, service="quick", error_type="tool_error") == 1
    assert value(samples, calls, service="quick") == 4
    labels = {"era": "modern", "network_transport": "tcp", "mcp_method_name": "tools/call"}
    assert value(samples, f"{REQUESTS}_count", **labels) == 6
    assert value(samples, f"{REQUESTS}_count", mcp_method_name="server/discover") >= 1
    assert value(samples, "statehold_connections_lost_total", service="quick") == 1
    assert value(samples, "statehold_restarts_total", service="quick") == 1
    assert value(samples, "statehold_connection_open_seconds_count", service="quick") >= 2
    assert value(samples, "statehold_sessions", status="paused") == 1
    assert value(samples, "statehold_store_up") == 1
    assert value(samples, "statehold_store_bytes") > 0
    assert value(samples, "statehold_store_write_seconds_count") > 0
    assert value(samples, "process_resident_memory_bytes") > 0
    assert session not in text
    assert "ledger" not in text
    assert "local" not in text.replace("localhost", "")


async def test_series_of_rare_events_begin_with_0(tmp_path: Path) -> None:
    with measured(tmp_path) as running:
        _, samples = await scrape(running)
    begun = {(name, labels) for (name, labels), each in samples.items() if each == 0}
    for what in ("losses_told", "restarts", "connections_lost"):
        assert (f"statehold_{what}_total", frozenset({("service", "quick")})) in begun
    failed = {("service", "quick"), ("error_type", "failed")}
    assert ("statehold_snapshot_seconds_count", frozenset(failed)) in begun
    assert ("statehold_approvals_total", frozenset({("state", "expired")})) in begun
    assert ("statehold_human_requests_total", frozenset[tuple[str, str]]()) in begun


async def test_names_and_codes_of_others_add_no_series(tmp_path: Path) -> None:
    async def invent(client: Client, session: str, numbers: range) -> None:
        for number in numbers:
            with suppress(MCPError):
                await client.call_tool(f"invented_{number}", {"session_id": session})

    with measured(tmp_path, metrics={"listen": "127.0.0.1:0", "tools": True}) as running:
        async with connected(running) as client:
            session = await opened_session(client)
            await count(client, session)
            await invent(client, session, range(5))
            before = (await scrape(running))[1]
            await invent(client, session, range(5, 305))
            after = (await scrape(running))[1]
    names = [f"{REQUESTS}_count"]
    assert {key for key in before if key[0] in names} == {key for key in after if key[0] in names}
    assert value(after, names[0], gen_ai_tool_name="_OTHER") == 305
    assert value(after, f"{CALLS}_count", gen_ai_tool_name="inc") == 1


async def test_only_its_own_address_may_name_the_port(tmp_path: Path) -> None:
    with measured(tmp_path) as running:
        async with httpx2.AsyncClient() as http:
            rebound = await http.get(address(running), headers={"host": "evil.example"})
            assert rebound.status_code == 421
            assert (await http.get(f"{running.url}/metrics")).status_code == 404


async def test_refused_tokens_are_counted_and_a_scraper_needs_none(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{'a' * 32} ada")
    services = {"quick": service("quick", sandbox="off")}
    with measured(tmp_path, services=services, server={"tokens": str(tokens)}) as running:
        async with httpx2.AsyncClient() as http:
            assert (await http.post(f"{running.url}/mcp")).status_code == 401
            wrong = {"authorization": f"Bearer {'e' * 32}"}
            assert (await http.post(f"{running.url}/mcp", headers=wrong)).status_code == 401
        samples = (await scrape(running))[1]
    refused = "statehold_requests_refused_total"
    assert value(samples, refused, error_type="token_missing") == 1
    assert value(samples, refused) == 2


async def test_the_last_hour_of_a_session_has_calls_errors_latency_and_programs(
    tmp_path: Path,
) -> None:
    async with serving_gateway(tmp_path, quick=service("quick")) as gateway:
        registry = gateway.registry
        session = await registry.create(LOCAL)

        async def call(tool: str) -> None:
            request = Request(LOCAL, session.id, "quick", tool, {})
            await gateway.router.call(request, Nobody())

        for tool in ("inc", "inc", "fail"):
            await call(tool)
        await UsageSamples(registry).take()
        handler = OperatorHandler(registry, gateway.store)
        (described,) = (await handler(OperatorRequest(tool="operator_sessions")))["sessions"]
        (quick,) = described["services"]
        use: dict[str, Any] = quick["last_hour"]
        assert (use["calls"], use["errors"], use["restarts"]) == (3, 1, 0)
        assert 0 < use["p50_seconds"] <= use["p95_seconds"]
        assert use["peak_memory_bytes"] > 0


async def test_dashboard_rules_and_page_name_only_metrics_that_there_are(tmp_path: Path) -> None:
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in (
            "deploy/grafana/statehold.json",
            "deploy/prometheus/alerts.yml",
            "docs/operate/metrics.md",
        )
    }
    with measured(tmp_path) as running:
        text, _ = await scrape(running)
    known = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    pattern = r"\b(?:statehold|mcp_client|mcp_server|process)_[a-z_]+"
    for path, content in texts.items():
        names = {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(pattern, content)}
        assert names <= known, path
    documented = re.findall(pattern, texts["docs/operate/metrics.md"])
    assert known <= set(documented)


@pytest.mark.load
async def test_a_scrape_of_10_000_sessions_takes_at_most_50_ms(tmp_path: Path) -> None:
    async with serving_gateway(tmp_path, quick=service("quick")) as gateway:
        limiter = anyio.CapacityLimiter(200)

        async def create() -> None:
            async with limiter:
                await gateway.registry.create(LOCAL)

        async with anyio.create_task_group() as tasks:
            for _ in range(10_000):
                tasks.start_soon(create)
        for number in range(200):
            gateway.registry.core.metrics.calls.record(0.1, f"service_{number}", "", "")
        durations: list[float] = []
        for _ in range(5):
            began_at = time.perf_counter()
            answer = await metrics_page(gateway)
            durations.append(time.perf_counter() - began_at)
            assert b'statehold_sessions{status="idle"} 10000' in answer.body
        assert min(durations) <= 0.05
