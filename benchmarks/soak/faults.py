"""The faults of a soak: kills of every kind of process, graceful stops, and a full disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeAlias

import anyio
import psutil

from .deployment import Deployment, Node
from .findings import Findings
from .orphans import command_of, living
from .programs import fill_disk

PAUSE_SECONDS: Final = (0.3, 2.5)

NETWORK: Final = "--utility-sub-type=network.mojom.NetworkService"
PARTS: Final[dict[str, Callable[[str], bool]]] = {
    "stdio upstream": lambda line: "quick.py" in line,
    "browser": lambda line: "--remote-debugging-pipe" in line and "--type=" not in line,
    "network process": lambda line: NETWORK in line,
    "driver": lambda line: "run-driver" in line,
    "stdio node": lambda line: "-m statehold " in f"{line} " and " serve " not in line,
}
"""The command lines of each kind of process that the soak finds below itself and kills."""

Fault: TypeAlias = Callable[[], Awaitable[bool]]
"""Injects a fault and, unless it is one for good, ends it. Returns False when there was nothing to inject it into."""


async def run_faults(
    faults: Mapping[str, Fault],
    findings: Findings,
    random: Random,
    seconds: float,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Inject one fault after the other, each equally often, in rounds of random order.

    End after some seconds, or when it `is_over` after a fault.
    """
    ends = anyio.current_time() + seconds
    while True:
        for kind in random.sample(sorted(faults), len(faults)):
            await anyio.sleep(random.uniform(*PAUSE_SECONDS))
            if anyio.current_time() >= ends:
                return
            if await faults[kind]():
                findings.faults[kind] += 1
            if is_over():
                return


def faults_of(deployment: Deployment, random: Random) -> dict[str, Fault]:
    """Return the faults of a deployment by their names. The choice of victims depends on `random` alone."""

    async def kill(nodes: Sequence[Node]) -> bool:
        """Kill nodes at once: while both are killed, no page has a server."""
        processes = [node.process for node in nodes if node.process is not None]
        for process in processes:
            process.kill()
        for node, process in zip(nodes, processes, strict=True):
            process.wait()
            await deployment.start_node(node)
        return True

    async def kill_node() -> bool:
        return await kill([random.choice(deployment.nodes)])

    async def stop_node() -> bool:
        node = random.choice(deployment.nodes)
        await deployment.stop_node(node)
        await deployment.start_node(node)
        return True

    async def kill_upstream() -> bool:
        await deployment.upstream.kill()
        await deployment.upstream.start()
        return True

    async def exhaust_disk() -> bool:
        await fill_disk(deployment.data)
        return True

    faults: dict[str, Fault] = {kind: partial(kill_part, kind, random) for kind in PARTS}
    faults |= {
        "node": kill_node,
        "both nodes": partial(kill, deployment.nodes),
        "graceful stop": stop_node,
    }
    faults |= {"HTTP upstream": kill_upstream}
    return faults | ({"full disk": exhaust_disk} if deployment.has_disk else {})


async def kill_part(kind: str, random: Random) -> bool:
    """Kill one of the processes of a kind in PARTS. Return False if there are none."""
    candidates = [process for process in living() if PARTS[kind](command_of(process))]
    if not candidates:
        return False
    victim = random.choice(sorted(candidates, key=lambda process: process.pid))
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    return True
