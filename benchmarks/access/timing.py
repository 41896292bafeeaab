"""(T) timing: whether the time of an answer tells a session of another principal from one that does not exist.

A caller asks for both in a random order, with each request that names a session: tools, resources, prompts, the URL of a
session, the console. The AUC is the chance that the answer about a foreign session took longer: 0.5 tells nothing.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from statehold.sessions.ids import new_id

from ..gateways import http_server, statehold, statehold_config
from ..plan import TESTS, Plan
from ..processes import accepting, free_port
from ..report import Table, Target
from ..samples import median, undisturbed

# The tests are no part of the installed package.
sys.path.append(str(TESTS))

from support.gateway_process import modern_call
from support.session_requests import LEGACY_VERSION, SessionRequest, session_requests
from support.token_file import write_tokens

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
MAX_FROM_HALF: Final = 0.03
SESSIONS: Final = 40
LIVE: Final = 5
"""Sessions that are asked for, and those with an open connection; the others are stored only, or idle."""
WARM_UP: Final = 20
SETTINGS: Final = """\
toolsets = ["core", "lifecycle", "state", "history", "branch", "admin", "view"]
audit = "on"
[server]
tokens = {tokens}
"""


class Caller:
    """One caller over one connection that is kept."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._authorization = {"Authorization": f"Bearer {token}"}
        self._token = token
        self._cookie: dict[str, str] = {}

    def send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        return response, response.read()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content."""
        body, headers = modern_call(tool, arguments)
        headers = {**headers, **self._authorization, "content-type": "application/json"}
        _, answer = self.send("POST", "/mcp", json.dumps(body).encode(), headers)
        return json.loads(answer)["result"]["structuredContent"]

    def open(self) -> list[SessionRequest]:
        """Open a transport session and log in at the console; return all requests that name a session."""
        about = {"name": "benchmarks", "version": "1"}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": about}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        kinds = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        opened, _ = self.send(
            "POST", "/mcp", json.dumps(hello).encode(), {**kinds, **self._authorization}
        )
        credentials = json.dumps({"token": self._token}).encode()
        response, answer = self.send("POST", "/api/v1/login", credentials, kinds)
        self._cookie = {"Cookie": response.headers["set-cookie"].partition(";")[0]}
        return session_requests(opened.headers["mcp-session-id"], json.loads(answer)["csrf"])

    def seconds(self, request: SessionRequest, session_id: str) -> float:
        """Send a request for a session, and return the time until its whole answer is there."""
        credentials = self._cookie if request.is_of_console else self._authorization
        path, body = request.path_of(session_id), request.body_of(session_id)
        headers = {**request.headers_of(session_id), **credentials}
        begin = time.perf_counter()
        _, answer = self.send(request.method, path, body, headers)
        seconds = time.perf_counter() - begin
        # A route for operators is refused to others whatever the session.
        refusal = b"not_allowed" if "/operator/" in request.path else b"session_not_found"
        if refusal not in answer and "unsubscribe" not in request.title:
            raise RuntimeError(f"{request.title}: {answer[:300]!r}")
        return seconds


async def measure(plan: Plan) -> Table:
    table = Table(
        f"(T) timing: AUC of foreign against unknown sessions, {plan.timing_samples} answers about each"
    )
    port, folder = free_port(), plan.folder / "timing"
    config = _write_config(folder)
    with http_server(
        statehold(folder / "data", config, "serve", "--port", str(port)), folder
    ) as process:
        await accepting(port, process)
        foreign = _create_sessions(Caller(port, ALICE))
        unknown = [new_id() for _ in foreign]
        ben = Caller(port, BEN)
        for request in ben.open():
            times = _measure(ben, request, foreign, unknown, plan.timing_samples)
            auc = area_under_curve(*times)
            table.rows.append(
                {
                    "request": request.title,
                    "AUC": round(auc, 3),
                    "foreign, us": round(median(times[0]) * 1e6),
                    "unknown, us": round(median(times[1]) * 1e6),
                }
            )
            name = f"distance of the AUC from 0.5 ({request.title})"
            table.targets.append(Target(name, abs(auc - 0.5), MAX_FROM_HALF, ""))
    return table


def _write_config(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokens = write_tokens(folder / "tokens", f"{ALICE} alice\n{BEN} ben\n")
    head = SETTINGS.format(tokens=json.dumps(str(tokens)))
    return statehold_config(folder, TESTS / "upstreams" / "asking.py", head=head)


def _create_sessions(alice: Caller) -> list[str]:
    sessions = [
        str(alice.call("session_create", state={"n": 1})["session_id"]) for _ in range(SESSIONS)
    ]
    for session in sessions[:LIVE]:
        alice.call("inc", session_id=session)
    for session in sessions[SESSIONS // 2 :]:
        alice.call("session_pause", session_id=session)
    return sessions


def _measure(
    caller: Caller,
    request: SessionRequest,
    foreign: Sequence[str],
    unknown: Sequence[str],
    samples: int,
) -> tuple[list[float], list[float]]:
    """Return the seconds of the answers about foreign and about unknown sessions, which are asked for in turns."""
    order = random.Random(request.title)
    times: tuple[list[float], list[float]] = ([], [])
    with undisturbed():
        for number in range(-WARM_UP, samples):
            for kind in order.sample((0, 1), 2):
                session = order.choice((foreign, unknown)[kind])
                seconds = caller.seconds(request, session)
                if number >= 0:
                    times[kind].append(seconds)
    return times


def area_under_curve(longer: Sequence[float], others: Sequence[float]) -> float:
    """Return the chance that a value of the first is above one of the others; a tie counts half."""
    ordered = sorted([*((value, 0) for value in longer), *((value, 1) for value in others)])
    below, area, index = 0, 0.0, 0
    while index < len(ordered):
        end, counts = index, [0, 0]
        while end < len(ordered) and ordered[end][0] == ordered[index][0]:
            counts[ordered[end][1]] += 1
            end += 1
        area += counts[0] * (below + counts[1] / 2)
        below += counts[1]
        index = end
    return area / (len(longer) * len(others))


__all__ = ["area_under_curve", "measure"]
