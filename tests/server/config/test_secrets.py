"""The secrets of a configuration reach neither the journal nor an export without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client
from support.gateway_process import JSON, opened_session, service, structured

WAYS = [("memory", "legacy")]
SECRETS: dict[str, dict[str, Any]] = {
    "env-secret-4711": {"env": {"ANYTHING": "env-secret-4711"}},
    "hushhushhush": {"env": {"API_KEY": "hushhushhush"}},
    "argsecret": {"args": ["--password", "argsecret"]},
    "usersecret": {"args": ["-u", "ada:usersecret"]},
    "urlsecret": {"env": {"DB": "postgres://ada:urlsecret@db.example/x"}},
}


@pytest.fixture(scope="module")
def settings() -> JSON:
    arguments = [one for options in SECRETS.values() for one in options.get("args", [])]
    env = {
        name: text for options in SECRETS.values() for name, text in options.get("env", {}).items()
    }
    harmless = {"MODE": "production", "FOLDER": "/srv/v1/data", "LEVEL": "12345678"}
    harmless["OPENAI_MODEL"] = "gpt-4o-2024-08-06"
    return {
        "toolsets": ["core", "lifecycle", "history", "admin", "state"],
        "services": {"quick": service("quick", *arguments, env={**env, **harmless})},
    }


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_of_a_service_is_in_no_journal_and_no_export(
    client: Client, secret: str
) -> None:
    session = await opened_session(client, state={"note": f"it is {secret}"})
    text = f"it is {secret} in production at /srv/v1/data with 12345678 by gpt-4o-2024-08-06"
    await client.call_tool("echo", {"session_id": session, "value": text})
    arguments = {"session_id": session}
    history = json.dumps(structured(await client.call_tool("session_history", arguments)))
    document = json.dumps(structured(await client.call_tool("session_export", arguments)))
    for found in (history, document):
        assert secret not in found
        assert "in production at /srv/v1/data with 12345678 by gpt-4o-2024-08-06" in found
