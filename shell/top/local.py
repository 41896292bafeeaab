"""The sessions of a data folder, by the processes that run on it. No store is opened."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from ...server.sockets.processes import NODES, list_nodes
from ...server.sockets.request import UNKNOWN_VERB, Refused, Unanswered, Unreachable, send_request
from ...sessions.wording import SHELL, next_step
from .sample import Sample, SessionRow, rows_of, sort_rows

VERB: Final = "activity"
OPERATE: Final = "operate"
READ_SECONDS: Final = 5.0
ACT_SECONDS: Final = 125.0
TOOLS: Final = {"pause": "session_pause", "resume": "session_resume", "close": "session_close"}


class LocalSource:
    """The processes of a data folder on this machine; see Source."""

    note = ""
    interval = 1.0

    def __init__(self, data: str) -> None:
        self.title = data
        self._folder = os.path.join(data, NODES)
        self._data = data

    def read(self, selected: str | None) -> Sample:
        documents: list[Mapping[str, Any]] = []
        problem = ""
        for node in list_nodes(self._data):
            try:
                # The store is the same for all of them.
                members = {"stored": not documents}
                exchange = send_request(self._folder, node, VERB, members, seconds=READ_SECONDS)
            except (Unreachable, Unanswered):
                continue
            except Refused as error:
                if error.code != UNKNOWN_VERB:
                    problem = error.message
                continue
            exchange.connection.close()
            documents.append(exchange.content)
        sizes = {pid: size for each in documents for pid, size in each["memory"].items()}
        return Sample(
            time.monotonic(),
            sort_rows(rows_of(documents)),
            len(documents),
            sum(sizes.values()) if sizes else None,
            sum(each["waiting"] for each in documents),
            "" if documents else problem or f"no server runs for {self._data}",
        )

    def act(self, row: SessionRow, action: str) -> str:
        request = {
            "tool": TOOLS[action],
            "arguments": {"session_id": row.id},
            "owner": row.principal,
        }
        nodes = [row.node] if row.node is not None else reversed(list_nodes(self._data))
        refusal = f"{row.title}: the process that holds it does not answer"
        for node in nodes:
            try:
                exchange = send_request(self._folder, node, OPERATE, request, seconds=ACT_SECONDS)
            except (Unreachable, Unanswered):
                continue
            except Refused as error:
                step = next_step(error.recovery, SHELL, row.name or row.id)
                refusal = f"{row.title}: {error.message} {step}".strip()
                if error.code in (UNKNOWN_VERB, "session_not_found"):
                    continue
                return refusal
            exchange.connection.close()
            return f"{row.title} is {exchange.content['status']}"
        return refusal
