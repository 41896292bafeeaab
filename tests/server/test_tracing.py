"""The spans of a call, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.gateway_process import (
    JSON,
    Era,
    Transport,
    Way,
    opened_session,
    service,
    serving,
    toml,
)
from support.runs import entries
from support.selection import matrix
from support.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@dataclass
class Collector:
    """A collector that keeps what it gets, or answers with `status`."""

    url: str = ""
    status: int = 200
    requests: int = 0
    spans: list[Span] = field(default_factory=list[Span])

    def of_trace(self, trace: str = TRACE) -> list[Span]:
        """Return the spans of a trace."""
        return [span for span in self.spans if span.trace_id.hex() == trace]


@contextmanager
def collecting() -> Generator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests += 1
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    collector.spans += scope.spans
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield collector
        finally:
            server.shutdown()


def environment(collector: Collector, **variables: str) -> dict[str, str]:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    return endpoint | variables


def config_of(folder: Path, calls: Path, **settings: JSON) -> Path:
    """Write a configuration whose service writes its calls to a file."""
    path = folder / "statehold.toml"
    services = {"quick": service("quick", "--log", str(calls))}
    path.write_text(toml({"services": services, **settings}))
    return path


def attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.mark.parametrize(
    ("transport", "era"),
    matrix(("http", "modern"), ("http", "legacy"), ("sse", "legacy")),
)
async def test_a_call_is_one_trace_from_its_client_to_the_server_behind_the_session(
    transport: Transport, era: Era, tmp_path: Path, log: Path
) -> None:
    with collecting() as collector:
        config = config_of(tmp_path, log)
        with serving(config, tmp_path / "data", env=environment(collector)) as running:
            way = Way(transport, era, config, tmp_path, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                arguments = {"session_id": session, "n": 4711}
                await client.call_tool("inc", arguments, meta={"traceparent": TRACEPARENT})
                await until(lambda: Span.SPAN_KIND_SERVER in kinds(collector))
                await client.call_tool("fail", {"session_id": session})
                await until(lambda: any(span.status.code for span in collector.spans))
    spans = collector.of_trace()
    incoming, outgoing = (
        next(span for span in spans if span.kind == kind)
        for kind in (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    )
    opening = next(span for span in spans if span.name == "statehold.connect")
    assert incoming.name == outgoing.name == "tools/call inc"
    assert incoming.parent_span_id.hex() == PARENT
    assert outgoing.parent_span_id == opening.parent_span_id == incoming.span_id
    assert attributes(incoming)["gen_ai.tool.name"] == "inc"
    assert attributes(outgoing)["statehold.service"] == "quick"
    assert "4711" not in "".join(map(str, spans))
    (inc,) = (entry for entry in entries(log) if entry["tool"] == "inc")
    assert inc["_meta"]["traceparent"] == f"00-{TRACE}-{outgoing.span_id.hex()}-01"


async def test_the_header_names_the_parent_if_the_message_does_not(
    tmp_path: Path, log: Path
) -> None:
    with collecting() as collector:
        config = config_of(tmp_path, log)
        with serving(config, tmp_path / "data", env=environment(collector)) as running:
            way = Way("http", "modern", config, tmp_path, url=running.url)
            async with way.connect(headers={"traceparent": TRACEPARENT}) as client:
                await opened_session(client)
                await until(lambda: "tools/call session_create" in names(collector))
    created = next(each for each in collector.of_trace() if "session_create" in each.name)
    assert created.parent_span_id.hex() == PARENT


def names(collector: Collector) -> list[str]:
    return [span.name for span in collector.of_trace()]


def kinds(collector: Collector) -> list[Span.SpanKind]:
    return [span.kind for span in collector.of_trace()]


async def test_an_unsampled_call_passes_its_trace_on_and_exports_nothing(
    tmp_path: Path, log: Path
) -> None:
    with collecting() as collector:
        config = config_of(tmp_path, log)
        variables = environment(collector, OTEL_TRACES_SAMPLER="always_off")
        with serving(config, tmp_path / "data", env=variables) as running:
            way = Way("http", "modern", config, tmp_path, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                await client.call_tool("inc", {"session_id": session})
            assert running.stop() == 0
    assert collector.spans == []
    (inc,) = (entry for entry in entries(log) if entry["tool"] == "inc")
    assert int(inc["_meta"]["traceparent"][-2:], 16) & 1 == 0


@pytest.mark.parametrize("status", [500, None], ids=["500", "dead"])
async def test_calls_and_the_end_do_not_wait_for_a_collector_that_fails(
    status: int | None, tmp_path: Path, log: Path
) -> None:
    with collecting() as collector:
        collector.status = status or 200
        variables = environment(collector)
        if status is None:
            variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
        config = config_of(tmp_path, log)
        with serving(config, tmp_path / "data", env=variables) as running:
            way = Way("http", "modern", config, tmp_path, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                for _ in range(20):
                    result = await client.call_tool("inc", {"session_id": session})
                    assert not result.is_error
            assert running.stop(within=10) == 0


async def test_a_line_of_the_log_names_its_trace(tmp_path: Path, log: Path) -> None:
    with collecting() as collector:
        config = config_of(tmp_path, log, log={"format": "json", "level": "debug"})
        with serving(config, tmp_path / "data", env=environment(collector)) as running:
            way = Way("http", "modern", config, tmp_path, url=running.url)
            async with way.connect() as client:
                await client.call_tool("session_create", {}, meta={"traceparent": TRACEPARENT})
            assert running.stop() == 0
    lines: list[JSON] = [json.loads(line) for line in running.lines if line.startswith("{")]
    (created,) = (line for line in lines if " created" in line["message"])
    assert created["trace_id"] == TRACE
    assert created["session"] in created["message"]


async def test_a_call_that_another_node_answers_is_one_trace(tmp_path: Path, log: Path) -> None:
    with collecting() as collector:
        config, data = config_of(tmp_path, log), tmp_path / "data"
        variables = environment(collector)
        with (
            serving(config, data, env=variables) as owner,
            serving(config, data, env=variables) as edge,
        ):
            async with Way("http", "modern", config, tmp_path, url=owner.url).connect() as client:
                session = await opened_session(client)
            async with Way("http", "modern", config, tmp_path, url=edge.url).connect() as client:
                await client.call_tool("inc", {"session_id": session})
            await until(lambda: len(of_inc(collector)) == 3)
    at_edge = next(span for span in of_inc(collector) if not span.parent_span_id)
    spans = {span.parent_span_id: span for span in collector.of_trace(at_edge.trace_id.hex())}
    at_owner = spans[at_edge.span_id]
    assert at_owner.kind == Span.SPAN_KIND_SERVER
    (inc,) = (entry for entry in entries(log) if entry["tool"] == "inc")
    assert inc["_meta"]["traceparent"].startswith(f"00-{at_edge.trace_id.hex()}-")


def of_inc(collector: Collector) -> list[Span]:
    return [span for span in collector.spans if span.name == "tools/call inc"]
