"""The console of a person whose access is revoked, at the process that does not hold the session."""

from __future__ import annotations

import datetime
import json
import subprocess
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from lab import Lab
from support.agent import Agent
from support.console_client import ConsoleClient, console_client
from support.gateway_process import JSON, Running, Way, opened_session, serving, statehold
from support.selection import matrix
from support.token_file import write_tokens
from support.waiting import until

ALICE = "alice-token-0123456789"
PROMPT = 1.5
"""Seconds after which everything has ended: a second, and half of one on a busy machine."""


@pytest.fixture(scope="module")
def settings(headless_shell: str, tmp_path_factory: pytest.TempPathFactory) -> JSON:
    tokens = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", f"{ALICE} alice\n")
    browser = {"executable": headless_shell, "private": True}
    return {"server": {"tokens": str(tokens)}, "services": {"browser": browser}}


@pytest.mark.thorough
@pytest.mark.timeout(90)
@pytest.mark.parametrize("keeps", matrix(True, False))
async def test_the_picture_and_the_control_of_a_revoked_person_end_within_a_second(
    keeps: bool, server: Running, config_file: Path, lab_site: Lab
) -> None:
    headers = {"authorization": f"Bearer {ALICE}"}
    flags = ["--config", str(config_file), "--data", str(server.data), "--json"]

    async def principals(*words: str) -> JSON:
        command = [*statehold(), "principals", *words, *flags]
        done = await anyio.to_thread.run_sync(subprocess.check_output, command)
        return json.loads(done)

    with anyio.fail_after(80), serving(config_file, server.data) as other:
        way = Way("http", "modern", config_file, server.data, url=server.url)
        async with way.connect(headers=headers) as client, console_client(other.url) as alice:
            agent = Agent(client, await opened_session(client))
            await agent.said("browser_navigate", url=f"{lab_site.url}/keys")
            await alice.log_in(token=ALICE)
            await alice.act(agent.session, "take")
            async with alice.frames(agent.session) as frames:
                await frames.picture(state="live")
                kept = ["--keep-sessions"] if keeps else []
                revoked = await principals("revoke", "alice", *kept)
                while await frames.next() is not None:
                    pass
                ended_at = time.time()
            revoked_at = datetime.datetime.fromisoformat(revoked["revoked_at"]).timestamp()
            assert ended_at - revoked_at < PROMPT

            async def is_out() -> bool:
                return (await alice.send("GET", "/me")).status_code == 401

            # The stream ends at the node of the session; the node of the console looks a moment later.
            await until(is_out)
            show = [*statehold(), "sessions", "show", agent.session, *flags]

            async def has_ended() -> bool:
                shown = json.loads(await anyio.to_thread.run_sync(subprocess.check_output, show))
                return shown["status"] == ("paused" if keeps else "closed")

            await until(has_ended)
            await principals("restore", "alice")
            # The login has ended for good; the token is accepted again.
            assert (await alice.send("GET", "/me")).status_code == 401

            for node in (server, other):
                async with console_client(node.url) as person:

                    async def is_accepted(person: ConsoleClient = person) -> bool:
                        answer = await person.send("POST", "/login", {"token": ALICE})
                        return answer.status_code == 200

                    await until(is_accepted)
            if keeps:
                said = await agent.said("browser_snapshot")
                assert "until the access of that person was revoked" in said
