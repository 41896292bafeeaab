"""The conversation of a session as messages for a model, and as one text for a prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statehold.client import Client, Session
from statehold.client.errors import ToolFailed


def tokens(messages: list[dict[str, Any]]) -> int:
    return len(json.dumps([m["content"] for m in messages])) // 4


async def talk(s: Session, run: str, *, fails: bool = False) -> None:
    try:
        async with s.run(run):
            await s.note("system", "be kind")
            await s.note("user", f"question of {run}")
            await s.call("echo", text=f"result of {run}")
            await s.note("assistant", f"answer of {run}")
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass


async def test_messages_are_pairs_oldest_first_of_the_last_runs(client: Client) -> None:
    async with client.session(services=["quick"]) as s:
        await s.note("user", "before")
        for run, fails in (("one", False), ("two", True), ("three", False)):
            await talk(s, run, fails=fails)
        found = await s.messages(
            last_runs=2, roles=("user", "assistant"), skip_status=("error",), tools=True
        )
        assert [m["role"] for m in found] == ["user", "assistant", "tool", "assistant"] * 2
        question, call, result, answer = found[4:]
        assert (question["content"], answer["content"]) == (
            "question of three",
            "answer of three",
        )
        [made] = call["tool_calls"]
        assert (made["type"], made["function"]["name"]) == ("function", "echo")
        assert json.loads(made["function"]["arguments"]) == {"text": "result of three"}
        assert (result["role"], result["tool_call_id"]) == ("tool", made["id"])
        assert "result of three" in result["content"]
        assert {m["content"] for m in found} >= {"question of one"}
        assert len(await s.messages(tools=False)) == 1 + 3 * 3
        assert {m["role"] for m in await s.messages(roles="user")} == {"user"}
        assert await s.messages(last_runs=0) == []


async def test_blocks_come_back_and_a_result_that_was_noted_has_a_call(embedded: Client) -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
    blocks = [{"type": "text", "text": "look"}, picture]
    async with embedded.session(services=[]) as s:
        await s.note("user", blocks)
        await s.note("tool", "[1]")
        for text in ('[{"n": 1}]', "[{", "[]"):
            await s.note("assistant", text)
        user, call, result, *texts = await s.messages()
        assert (user["content"], result["content"]) == (blocks, "[1]")
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
        assert [each["content"] for each in texts] == ['[{"n": 1}]', "[{", "[]"]
        assert len(await s.messages(tools=False)) == 4
        assert "look" in await s.context()


async def test_a_failed_call_and_a_cut_result_say_so(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s:
        with pytest.raises(ToolFailed) as caught:
            await s.call("fail")
        long = (await s.call("echo", text="y" * 3000)).text
        await s.call("link")
        failed, cut, linked = [m["content"] for m in await s.messages() if m["role"] == "tool"]
        assert failed == caught.value.result.text
        note = f"... [cut: 500 of {len(long)} characters; the whole was not kept]"
        assert cut == long[:500] + note
        assert linked == "[resource_link quick://value]"
        document = await s.export()
        [call] = [e for e in document["journal"] if str(e["request"]).count("y") > 100]
        uri = f"session://{s.id}/browser/files/page.md"
        call["result"]["content"].append({"type": "resource_link", "uri": uri})
        again = await embedded.import_session(document)
        [named] = [m["content"] for m in await again.messages() if "[cut" in m["content"]]
        assert f"the whole is the file {uri}]" in named


async def test_messages_keep_to_their_budget_and_tell_where_the_whole_is(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s:
        first = await s.note("user", "a" * 20_000)
        for number in range(30):
            await s.note("user", f"{number} " + "b" * 390)
            await s.call("echo", text="c" * 100)
        for budget in (0, 10, 60, 1000, 4000):
            found = await s.messages(max_tokens=budget)
            assert tokens(found) <= budget + len(found)
            calls = [c["id"] for m in found for c in m.get("tool_calls", ())]
            assert calls == [m["tool_call_id"] for m in found if m["role"] == "tool"]
        assert "c" * 100 in found[-1]["content"]
        assert found[-3]["content"].startswith("29 b")
        whole = await s.messages(max_tokens=None)
        assert (whole[0]["content"], len(whole)) == ("a" * 20_000, 1 + 30 * 3)
        [*_, cut] = await s.messages(max_tokens=6000, roles="user")
        [oldest, *_] = await s.messages(max_tokens=6000, roles="user")
        assert oldest["content"].endswith(f"the whole is entry {first.seq} of session_history]")
        assert not cut["content"].endswith("]")


async def test_a_context_is_one_text_of_state_summary_and_runs(embedded: Client) -> None:
    async with embedded.session(services=["quick"]) as s:
        await s.note("user", "hello")
        assert "user: hello" in await s.context()
        await talk(s, "one")
        await talk(s, "two")
        await s.state.update({"cart": ["tea"], "notes": "n" * 50_000})
        await s.summary("They want tea.")
        text = await s.context(last_runs=1, state_tokens=100)
        state, summary, conversation = text.split("\n\n")
        assert state.startswith('State (version 1):\n{"cart": ["tea"]')
        assert len(state) < 500
        assert "state_get returns the whole" in state
        assert summary == "Summary:\nThey want tea."
        system, user, call, result, assistant = conversation.splitlines()[1:]
        assert (system, user) == ("system: be kind", "user: question of two")
        assert call == 'call echo {"text": "result of two"}'
        assert result.startswith("result: ")
        assert assistant == "assistant: answer of two"
        assert await s.context(state_tokens=0, summary_tokens=0, message_tokens=0) == ""
