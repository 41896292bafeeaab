"""The spans of a call, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Era,
    Transport,
    Way,
    opened_session,
    service,
    serving,
    toml,
)
from support.listening import run_listening
from support.machines import free_port
from support.runs import entries
from support.selection import matrix
from support.waiting import until

from statehold.server.process.tracing import span_export
from statehold.sessions.metrics.spans import SPANS, trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@dataclass
class Collector:
    """A collector that keeps what it gets, and answers with `status` as soon as it may."""

    url: str = ""
    status: int = 200
    may_answer: threading.Event = field(default_factory=threading.Event)
    spans: list[Span] = field(default_factory=list[Span])

    def of_trace(self, trace: str = TRACE) -> list[Span]:
        """Return the spans of a trace."""
        return [span for span in self.spans if span.trace_id.hex() == trace]


@contextmanager
def collecting() -> Generator[Collector]:
    collector = Collector()
    collector.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    collector.spans += scope.spans
            collector.may_answer.wait()
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield collector
        finally:
            collector.may_answer.set()
            server.shutdown()


def environment(collector: Collector, **variables: str) -> dict[str, str]:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    return endpoint | variables


def config_of(folder: Path, calls: Path, **settings: JSON) -> Path:
    """Write a configuration whose service writes its calls to a file."""
    path = folder / "statehold.toml"
    services = {"quick": service("quick", "--log", str(calls))}
    path.write_text(toml({"services": services} | settings))
    return path


def attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.fixture
def http_service(fork_server: ForkServer, log: Path) -> Generator[JSON]:
    """The counter over Streamable HTTP, as a service."""
    options = ("--transport", "http", "--port", "0", "--log", str(log))
    with run_listening(fork_server.command(str(UPSTREAMS / "counter.py"), *options)) as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


@pytest.mark.parametrize(
    ("transport", "era", "is_remote"),
    matrix(
        ("http", "modern", False),
        ("http", "legacy", True),
        ("http", "modern", True),
        ("sse", "legacy", False),
        quick=2,
    ),
)
async def test_a_call_is_one_trace_from_its_client_to_the_server_behind_the_session(
    transport: Transport,
    era: Era,
    is_remote: bool,
    http_service: JSON,
    tmp_path: Path,
    log: Path,
) -> None:
    with collecting() as collector:
        settings = {"services": {"quick": http_service}} if is_remote else {}
        config = config_of(tmp_path, log, **settings)
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
    waiting = next(span for span in spans if span.name == "statehold.connect")
    opening = next(span for span in spans if span.name == "statehold.open")
    assert incoming.name == outgoing.name == "tools/call inc"
    assert incoming.parent_span_id.hex() == PARENT
    assert outgoing.parent_span_id == waiting.parent_span_id == incoming.span_id
    assert opening.parent_span_id == waiting.span_id
    assert attributes(incoming)["gen_ai.tool.name"] == "inc"
    assert attributes(outgoing)["statehold.service"] == "quick"
    assert "4711" not in str([attributes(span) for span in spans])
    (inc,) = (entry for entry in entries(log) if entry["tool"] == "inc")
    assert inc["_meta"]["traceparent"].startswith(f"00-{TRACE}-{outgoing.span_id.hex()}-")


async def test_the_restore_of_a_session_is_a_span(tmp_path: Path, log: Path) -> None:
    with collecting() as collector:
        save = [{"tool": "get", "keep": {"count": "/count"}}]
        restore = [{"tool": "inc", "arguments": {"n": "{count}"}}]
        recipe = {"save": save, "restore": restore}
        services = {"quick": service("quick", "--log", str(log), recipe=recipe)}
        config = config_of(tmp_path, log, services=services)
        with serving(config, tmp_path / "data", env=environment(collector)) as running:
            way = Way("http", "modern", config, tmp_path, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                await client.call_tool("inc", {"session_id": session})
                await client.call_tool("session_pause", {"session_id": session})
                arguments = {"session_id": session}
                await client.call_tool("inc", arguments, meta={"traceparent": TRACEPARENT})
                await until(lambda: "statehold.restore" in names(collector))


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


def kinds(collector: Collector) -> list[Span.SpanKind.ValueType]:
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
                arguments = {"session_id": session}
                await client.call_tool("inc", arguments, meta={"traceparent": TRACEPARENT})
                await client.call_tool("inc", arguments)
            assert running.stop() == 0
    assert collector.spans == []
    named, unnamed = (entry.get("_meta", {}) for entry in entries(log) if entry["tool"] == "inc")
    assert named["traceparent"].startswith(f"00-{TRACE}-")
    assert int(named["traceparent"][-2:], 16) & 1 == 0
    assert "traceparent" not in unnamed


@pytest.mark.parametrize("fault", matrix("slow", "dead", "500"))
async def test_calls_and_the_end_do_not_wait_for_a_collector_that_fails(
    fault: str, tmp_path: Path, log: Path
) -> None:
    with collecting() as collector:
        if fault == "slow":
            collector.may_answer.clear()
        collector.status = 500
        variables = environment(collector)
        if fault == "dead":
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


@pytest.mark.parametrize(
    ("state", "is_passed_on"),
    [("rojo=00f0,congo@es=t61 , a=b", True), ("to=do,line\n2", False), ("1=x", False)],
)
async def test_only_a_well_formed_state_of_a_trace_is_passed_on(
    state: str,
    is_passed_on: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with collecting() as collector:
        for name, text in environment(collector).items():
            monkeypatch.setenv(name, text)
        async with span_export("1", "node"):
            span = SPANS.request("ping", {"traceparent": TRACEPARENT, "tracestate": state})
            assert span is not None
            assert ("tracestate" in trace_context()) == is_passed_on
            span.end()
    assert [bool(span.trace_state) for span in collector.spans] == [is_passed_on]
    assert caplog.messages == []


async def test_a_variable_of_opentelemetry_turns_the_export_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    async with span_export("1", "node"):
        assert SPANS.exporter is None


async def test_a_text_that_cannot_be_encoded_costs_no_other_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        for name, text in environment(collector).items():
            monkeypatch.setenv(name, text)
        async with span_export("1", "node"):
            for name in ("tools/call \ud800", "tools/call inc"):
                span = SPANS.request(name, {})
                assert span is not None
                span.end(describe=lambda name=name: {"gen_ai.tool.name": name})
    assert [span.name for span in collector.spans] == ["tools/call \ufffd", "tools/call inc"]


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


@pytest.fixture
def collector() -> Generator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def rotel(collector: Collector, peers_python: str, tmp_path: Path) -> Generator[Collector]:
    """A real collector, which passes on what it gets."""
    find = "import rotel; print(rotel.__path__[0])"
    folder = subprocess.run([peers_python, "-c", find], capture_output=True, text=True, check=True)
    ports = free_port(), free_port()
    options = {
        "otlp-http-endpoint": f"127.0.0.1:{ports[0]}",
        "otlp-grpc-endpoint": f"127.0.0.1:{ports[1]}",
        "otlp-exporter-endpoint": collector.url,
        "otlp-exporter-protocol": "http",
        "batch-timeout": "100ms",
        "pid-file": tmp_path / "rotel.pid",
        "log-file": tmp_path / "rotel.log",
    }
    command = [f"{folder.stdout.strip()}/rotel-agent", "start"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        collector.url = f"http://127.0.0.1:{ports[0]}"
        yield collector
        process.terminate()


@pytest.mark.parametrize("era", matrix("modern", "legacy"))
async def test_a_call_that_another_node_answers_is_one_trace(
    era: Era, collector: Collector, tmp_path: Path, log: Path
) -> None:
    await check_trace_over_two_nodes(era, collector, tmp_path, log)


@pytest.mark.peer
@pytest.mark.thorough
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_real_collector_has_one_trace_of_a_call_that_another_node_answers(
    era: Era, rotel: Collector, tmp_path: Path, log: Path
) -> None:
    await check_trace_over_two_nodes(era, rotel, tmp_path, log)


async def check_trace_over_two_nodes(
    era: Era, collector: Collector, folder: Path, log: Path
) -> None:
    config, data = config_of(folder, log), folder / "data"
    variables = environment(collector)
    with (
        serving(config, data, env=variables) as owner,
        serving(config, data, env=variables) as edge,
    ):
        async with Way("http", era, config, folder, url=owner.url).connect() as client:
            session = await opened_session(client)
        async with Way("http", era, config, folder, url=edge.url).connect() as client:
            await client.call_tool("inc", {"session_id": session})
        await until(lambda: len(of_inc(collector)) == 3)
    at_edge = next(span for span in of_inc(collector) if not span.parent_span_id)
    spans = {span.parent_span_id: span for span in of_inc(collector)}
    at_owner = spans[at_edge.span_id]
    outgoing = spans[at_owner.span_id]
    assert at_owner.kind == Span.SPAN_KIND_SERVER
    assert outgoing.kind == Span.SPAN_KIND_CLIENT
    trace = at_edge.trace_id.hex()
    assert {span.trace_id.hex() for span in of_inc(collector)} == {trace}
    (inc,) = (entry for entry in entries(log) if entry["tool"] == "inc")
    assert inc["_meta"]["traceparent"].startswith(f"00-{trace}-{outgoing.span_id.hex()}-")


def of_inc(collector: Collector) -> list[Span]:
    return [span for span in collector.spans if span.name == "tools/call inc"]
