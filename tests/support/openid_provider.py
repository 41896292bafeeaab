"""A real OpenID provider with its pages, the servers that demand its tokens, and a person who logs in there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from statehold.sessions.json_codec import JSON

from .gateway_process import statehold
from .listening import run_listening

PEERS = Path(__file__).resolve().parents[1] / "peers"


@dataclass
class OpenIdProvider:
    """A running oidc-provider. A refresh token that is used twice ends its login."""

    issuer: str
    _log: Path

    def grants(self) -> list[JSON]:
        """Return the answers of its token endpoint."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def renewals(self) -> int:
        return sum(each["grant"] == "refresh_token" for each in self.grants())


@contextmanager
def running_provider(log: Path, *, seconds: int, hold_ms: int = 0) -> Generator[OpenIdProvider]:
    """Run a provider whose access tokens live for `seconds`, and whose tokens are answered after `hold_ms`."""
    log.touch()
    words = ["forms", str(seconds), str(log), str(hold_ms)]
    command = ["node", str(PEERS / "oidc_provider.mjs"), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield OpenIdProvider(process.stdout.readline().strip(), log)
        finally:
            process.terminate()


def typescript_server(issuer: str) -> AbstractContextManager[int]:
    """Run a server of the TypeScript SDK that demands tokens of an issuer. The block gets its port."""
    return run_listening(["node", str(PEERS / "guarded_server.mjs"), issuer])


def log_in(address: str) -> str:
    """Open the address of a login, fill in the pages of the provider, and return the text of the last page."""
    with httpx2.Client(follow_redirects=True, timeout=60) as person:
        page = person.get(address)
        for form in ({"prompt": "login", "login": "ada", "password": "x"}, {"prompt": "consent"}):
            action = re.search(r'action="([^"]+)"', page.text)
            assert action is not None, page.text
            page = person.post(page.url.join(action[1]), data=form)
        return page.text


def add_login(config: Path, data: Path, service: str) -> None:
    """Log in by the command."""
    command = [*statehold(), "logins", "add", service, "--url-only"]
    command += ["--config", str(config), "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if match := re.fullmatch(r"\s+(http\S+)\n", line):
                assert f"Logged in at {service}" in log_in(match[1])
    assert process.returncode == 0


__all__ = [
    "PEERS",
    "OpenIdProvider",
    "add_login",
    "log_in",
    "running_provider",
    "typescript_server",
]
