"""nginx and HAProxy, run from the files in deploy/ with other ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from .machines import free_port
from .waiting import until_blocking

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NODE_PORTS = ("8931", "8932")
"""The ports of the nodes in the files."""
START_SECONDS = 10.0


class StartProxy(Protocol):
    def __call__(
        self, folder: Path, nodes: Sequence[int], *, by_session: bool = False
    ) -> AbstractContextManager[str]: ...


@contextmanager
def running_proxy(
    name: str, folder: Path, nodes: Sequence[int], *, by_session: bool = False
) -> Generator[str]:
    """Run `nginx` or `haproxy` in front of two ports of this machine, and yield its URL.

    It sends requests round robin, or with `by_session` all calls of a session to one port.
    """
    port = free_port()
    folder.mkdir()
    command = _WRITERS[name](folder, port, nodes, by_session)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
    try:
        _wait_until_open(port, process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _write_nginx(folder: Path, port: int, nodes: Sequence[int], by_session: bool) -> list[str]:
    text = _with_ports((DEPLOY / "nginx" / "statehold.conf").read_text(), nodes)
    text = _replaced(text, "listen 8080;", f"listen 127.0.0.1:{port};")
    if by_session:
        text = _replaced(text, "#hash ", "hash ")
    (folder / "statehold.conf").write_text(text)
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in temporary)
    main = folder / "nginx.conf"
    main.write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{\n{paths}access_log off;\ninclude {folder}/statehold.conf;\n}}\n"
    )
    return [_program("nginx"), "-e", "stderr", "-c", str(main)]


def _write_haproxy(folder: Path, port: int, nodes: Sequence[int], by_session: bool) -> list[str]:
    text = _with_ports((DEPLOY / "haproxy" / "haproxy.cfg").read_text(), nodes)
    text = _replaced(text, "bind :8080", f"bind 127.0.0.1:{port}")
    if by_session:
        text = _replaced(text, "balance roundrobin", "")
        text = _replaced(text, "#balance ", "balance ")
        text = _replaced(text, "#hash-type ", "hash-type ")
    path = folder / "haproxy.cfg"
    path.write_text(text)
    return [_program("haproxy"), "-db", "-f", str(path)]


_WRITERS: dict[str, Callable[[Path, int, Sequence[int], bool], list[str]]] = {
    "nginx": _write_nginx,
    "haproxy": _write_haproxy,
}


def _with_ports(text: str, nodes: Sequence[int]) -> str:
    for port, node in zip(NODE_PORTS, nodes, strict=True):
        text = _replaced(text, f"127.0.0.1:{port}", f"127.0.0.1:{node}")
    return text


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the file"
    return text.replace(old, new)


def _program(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    assert path is not None, f"there is no {name}; python tests/peers/install.py installs it"
    return path


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_open() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until_blocking(lambda: is_open() or process.poll() is not None, within=START_SECONDS)
    assert process.poll() is None, log.read_text()


__all__ = ["StartProxy", "running_proxy"]
