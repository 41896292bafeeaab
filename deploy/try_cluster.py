"""A cluster to try: PostgreSQL, three nodes and HAProxy on this machine. `uv run python deploy/try_cluster.py`

Each node has a data folder of its own, as if it were on a machine of its own. A node that ends is started again. Ctrl-C ends
everything and removes what was stored.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.error import URLError

import anyio
from anyio.abc import Process

DEPLOY = Path(__file__).resolve().parent
NOTEBOOK = DEPLOY.parent / "examples" / "notebook.toml"
NODES = 3
START_SECONDS = 60
STOP_SECONDS = 60
"""Longer than a node needs to end its calls and to save its sessions."""
PAUSE_SECONDS = 1.0
"""Seconds before a node that ended is started again."""

ADVICE = """
Three nodes answer at http://127.0.0.1:{port}/mcp. Each owns some of the sessions, and passes requests for others on.

    uv run statehold nodes list --config {config}
    kill -9 {pid}           # ends node 1: it is started again, and its sessions go on
    kill -STOP {pid}        # or stops it: after 10 seconds the others take its sessions over
    tail -f {folder}/*.log

Ctrl-C ends all."""


class CannotStart(Exception):
    """Raised when a part of the cluster cannot be started. Its message names the remedy."""


async def run(port: int) -> None:
    """Run the cluster until a signal comes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="statehold-")))
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM))
        say("Starting PostgreSQL, three nodes and HAProxy ...")
        url = await stack.enter_async_context(running_postgres(folder))
        config = write_settings(folder, url)
        nodes = [Node(number, folder, config) for number in range(1, NODES + 1)]
        await stack.enter_async_context(running_nodes(nodes))
        await stack.enter_async_context(running_haproxy(folder, port, nodes))
        async with anyio.create_task_group() as tasks:
            for node in nodes:
                tasks.start_soon(node.supervise)
            say(ADVICE.format(port=port, config=config, pid=nodes[0].pid, folder=folder))
            await anext(aiter(signals))
            say("\nEnding ...")
            tasks.cancel_scope.cancel()


class Node:
    """One `statehold serve`. It keeps its port and its data folder when it is started again."""

    def __init__(self, number: int, folder: Path, config: Path) -> None:
        self.number = number
        self.port = free_port()
        self._log = folder / f"node{number}.log"
        data = folder / f"node{number}"
        options = ["--config", str(config), "--data", str(data), "--port", str(self.port)]
        self._command = [sys.executable, "-m", "statehold", "serve", *options]
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        self._process = await start(self._command, self._log)

    async def stop(self) -> None:
        if self._process is not None:
            await stop(self._process, signal.SIGTERM)

    async def wait_until_it_serves(self) -> None:
        """Wait for its first answer.

        Raises:
            CannotStart: it ended, or needs longer than START_SECONDS.
        """
        with anyio.move_on_after(START_SECONDS):
            while self._process is None or self._process.returncode is None:
                if await anyio.to_thread.run_sync(is_served, self.port):
                    return
                await anyio.sleep(0.1)
        raise CannotStart(f"Node {self.number} does not serve:\n{self._log.read_text()}")

    async def supervise(self) -> None:
        """Start it again whenever it ends."""
        while True:
            assert self._process is not None
            code = await self._process.wait()
            await anyio.sleep(PAUSE_SECONDS)
            await self.start()
            say(f"Node {self.number} ended (exit code {code}) and is started again, pid {self.pid}")


@asynccontextmanager
async def running_nodes(nodes: Sequence[Node]) -> AsyncGenerator[None]:
    """Run nodes, which serve when the block begins."""
    try:
        for node in nodes:
            await node.start()
        for node in nodes:
            await node.wait_until_it_serves()
        yield
    finally:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for node in nodes:
                    tasks.start_soon(node.stop)


def is_served(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=START_SECONDS):
            return True
    except (URLError, OSError):
        return False


@asynccontextmanager
async def running_postgres(folder: Path) -> AsyncGenerator[str]:
    """Run an empty database, reachable through a socket in the folder only, and yield its URL."""
    data, sockets, log = folder / "database", folder / "sockets", folder / "postgres.log"
    account = own_account()
    make_folders(folder, [data, sockets], account)
    options = ["--auth=trust", "--username=statehold", "--encoding=UTF8", "--locale=C"]
    initdb = [program("initdb"), "-D", str(data), "--no-sync", *options]
    done = await anyio.run_process(as_account(initdb, account), cwd="/", check=False)
    if done.returncode != 0:
        raise CannotStart(f"initdb failed:\n{done.stderr.decode()}")
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={sockets}"]
    postgres = [program("postgres"), "-D", str(data), *settings]
    process = await start(as_account(postgres, account), log)
    try:
        with anyio.fail_after(START_SECONDS):
            while "ready to accept connections" not in log.read_text():
                if process.returncode is not None:
                    raise CannotStart(f"PostgreSQL ended:\n{log.read_text()}")
                await anyio.sleep(0.1)
        yield f"postgresql://statehold@/postgres?host={sockets}"
    finally:
        await stop(process, signal.SIGINT)


def make_folders(folder: Path, paths: list[Path], account: pwd.struct_passwd | None) -> None:
    for path in paths:
        path.mkdir()
        if account is not None:
            os.chown(path, account.pw_uid, account.pw_gid)
    if account is not None:
        folder.chmod(0o711)


def own_account() -> pwd.struct_passwd | None:
    """Return the account for PostgreSQL when this process is root, as which it refuses to run; otherwise None."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def as_account(command: list[str], account: pwd.struct_passwd | None) -> list[str]:
    if account is None:
        return command
    ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, *command]


def write_settings(folder: Path, url: str) -> Path:
    """Write the settings of all nodes, with the notebook server and the browser as their services."""
    path = folder / "statehold.toml"
    path.touch(0o600)
    path.write_text(
        f'[store]\nurl = "{url}"\n\n[cluster]\nenabled = true\nkeys = ["{secrets.token_hex(32)}"]\n\n'
        f"{NOTEBOOK.read_text()}\n[services.browser]\n"
    )
    return path


@asynccontextmanager
async def running_haproxy(folder: Path, port: int, nodes: Sequence[Node]) -> AsyncGenerator[None]:
    """Run HAProxy with its file in deploy/, in front of these nodes."""
    text = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    text = text.replace("bind :8080", f"bind 127.0.0.1:{port}")
    text = re.sub(r"\n    server node.*", "", text)
    servers = "".join(f"    server node{n.number} 127.0.0.1:{n.port}\n" for n in nodes)
    path = folder / "haproxy.cfg"
    path.write_text(text + servers)
    log = folder / "haproxy.log"
    process = await start([program("haproxy"), "-db", "-f", str(path)], log)
    try:
        with anyio.fail_after(START_SECONDS):
            while not await anyio.to_thread.run_sync(is_served, port):
                if process.returncode is not None:
                    raise CannotStart(f"HAProxy ended; is port {port} free?\n{log.read_text()}")
                await anyio.sleep(0.1)
        yield
    finally:
        await stop(process, signal.SIGTERM)


async def start(command: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own: Ctrl-C in the terminal reaches this program only."""
    with log.open("ab") as output:
        return await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )


async def stop(process: Process, sign: signal.Signals) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(sign)
        with anyio.move_on_after(STOP_SECONDS):
            await process.wait()
            return
        process.kill()
        await process.wait()


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        CannotStart: it is not installed.
    """
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        path = str(paths[-1]) if paths else None
    if path is None:
        raise CannotStart(
            f"There is no {name}. Install it (Debian: apt-get install postgresql haproxy)."
        )
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(".")[0])
    parser.add_argument("--port", type=int, default=8931, help="port of HAProxy (8931)")
    try:
        anyio.run(run, parser.parse_args().port)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
