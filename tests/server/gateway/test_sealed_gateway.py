"""A server with a sealing key: no text of its callers is on the disk or in the log."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import (
    Way,
    kill,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.lent_logins import SecretFinder, call, open_shop

from statehold.server.config.load import load
from statehold.server.gateway.stores import store_of
from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.json_codec import JSON
from statehold.sessions.store.sql import SQLStore

KEY = "sealing-key-of-the-tests-0123456789"
ALL = ["core", "lifecycle", "state", "history", "branch"]


def settings(**more: Any) -> JSON:
    return {
        "toolsets": ALL,
        "audit": "on",
        "audit_arguments": True,
        "sealing": {"keys": ["${SEALING_KEY}"]},
        "log": {"level": "debug"},
        "services": {"quick": service("quick")},
        **more,
    }


class Canaries(list[str]):
    def new(self, channel: str) -> str:
        self.append(f"{channel}-{secrets.token_hex(8)}")
        return self[-1]


@pytest.mark.parametrize("form", ["text", "json"])
async def test_texts_of_callers_are_neither_in_the_data_folder_nor_in_the_log(
    tmp_path: Path, form: str
) -> None:
    config, data, used = tmp_path / "statehold.toml", tmp_path / "data", Canaries()
    config.write_text(toml(settings(log={"level": "debug", "format": form})))
    environment = {"SEALING_KEY": KEY}
    with serving(config, data, env=environment) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            metadata = {"order": used.new("metadata")}
            values = {"name": used.new("name"), "metadata": metadata, "user_id": used.new("label")}
            session = await opened_session(client, **values, state={"x": used.new("state")})
            arguments = {"session_id": session, "text": used.new("argument")}
            once: Any = {"statehold/operation_id": "one"}
            await client.call_tool("echo", arguments, meta=once)
            failed = await client.call_tool("fail", {**arguments, "text": used.new("error")})
            assert failed.is_error
            for tool, given in (
                ("state_update", {"values": {"y": used.new("state")}}),
                ("session_note", {"role": "user", "content": used.new("message")}),
                ("session_summary", {"text": used.new("summary")}),
                ("session_request_human", {"reason": used.new("reason"), "wait_seconds": 0}),
            ):
                await call(client, tool, session, **given)
            renamed = used.new("name")
            await call(client, "session_rename", session, name=renamed)
            log = running.log
        kill(running)
    finder = SecretFinder(used)
    assert finder.find_in_files(data) == {}
    assert finder.find(log.encode()) == set()
    with serving(config, data, env=environment) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            listed = structured(await client.call_tool("session_list", {"query": renamed}))
            assert [each["session_id"] for each in listed["sessions"]] == [session]
            history = await call(client, "session_history", session)
            assert all(each in history for each in used if each.startswith("message"))


@pytest.mark.thorough
async def test_cookies_of_a_saved_browser_are_sealed(tmp_path: Path, headless_shell: str) -> None:
    with open_shop(tmp_path, headless_shell, "fixed") as shop:
        document = {**shop.settings(headless_shell), "logins": {}, "sealing": {"keys": [KEY]}}
        shop.config.write_text(toml(document))
        shop.site.log_in()
        with serving(shop.config, shop.data) as running:
            async with shop.connect(running) as client:
                session = await opened_session(client)
                cookie = f"document.cookie = 'canary={shop.site.valid}; max-age=999'"
                await call(client, "browser_navigate", session, url=f"{shop.site.address}/echo")
                await call(client, "browser_evaluate", session, function=f"() => {{ {cookie} }}")
                await call(client, "session_pause", session)
                await call(client, "session_resume", session)
                shown = await call(
                    client, "browser_evaluate", session, function="() => document.cookie"
                )
                assert shop.site.valid in shown
                await call(client, "session_pause", session)
        assert SecretFinder([shop.site.valid]).find_in_files(shop.data) == {}


@pytest.mark.parametrize("source", ["environment", "file", "command"])
async def test_the_sealing_key_comes_from_a_variable_a_file_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    printing = [sys.executable, "-c", f"print({KEY!r})"]
    sealing: dict[str, JSON] = {
        "environment": {"keys": ["${SEALING_KEY}"]},
        "file": {"keys": ["${file:key}"]},
        "command": {"command": printing},
    }
    monkeypatch.setenv("SEALING_KEY", KEY)
    config = tmp_path / "statehold.toml"

    def store(settings: JSON) -> SQLStore:
        config.write_text(toml({"data": "data", "sealing": settings}))
        return store_of(load(config=config, services=None, flags={}))

    async with store({"keys": [KEY]}), store(sealing[source]):
        pass
    with pytest.raises(StoreUnavailable, match="sealing key"):
        async with store({"command": ["false"]}):
            pass
