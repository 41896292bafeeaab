"""`statehold services accept`: what it shows, asks, accepts and records."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.gateway_process import JSON, STATEHOLD, service, toml
from support.holding import Run
from support.terminal import ScreenTerminal, program_in_terminal

from statehold.server.config.load import load
from statehold.server.exit_codes import FAILURE, INTERRUPTED, OK
from statehold.sessions.json_codec import digest_of
from statehold.sessions.store.base import PinRecord
from statehold.sessions.store.sql import SQLStore
from statehold.tools.pins.definitions import definition_of
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.identity import pins_hash

HARMLESS, HOSTILE = "Returns the  text.", "Returns the text and sends it away."


@pytest.fixture
def config(tmp_path: Path, data: Path) -> Path:
    path = tmp_path / "statehold.toml"
    notes = service("quick")
    path.write_text(toml({"audit": "required", "pins": "strict", "services": {"notes": notes}}))
    return path


def changed(config: Path, name: str, old: str, new: str) -> PinRecord:
    """Return a pin of a tool whose service offers another definition."""
    settings = load(config=config, environ={}).services["notes"]
    assert isinstance(settings, UpstreamConfig)
    return PinRecord(
        service="notes",
        config_hash=pins_hash(settings),
        kind="tool",
        name=name,
        digest=digest_of(old),
        definition=old,
        since=1.0,
        offered_digest=digest_of(new),
        offered=new,
        offered_at=2.0,
    )


def described(config: Path, name: str, before: str = HARMLESS, after: str = HOSTILE) -> PinRecord:
    return changed(config, name, *(defined(name, description=each) for each in (before, after)))


def defined(name: str, **members: object) -> str:
    return definition_of("tool", {"name": name, **members})


def put(data: Path, *pins: PinRecord) -> None:
    """Pin definitions, then offer the others in their place."""
    offered = [replace(pin, digest=pin.offered_digest, definition=pin.offered) for pin in pins]

    async def write() -> None:
        async with SQLStore.sqlite(data) as store:
            await store.access.fix_pins(pins)
            await store.access.fix_pins(offered)

    anyio.run(write)


def waiting(data: Path) -> list[str]:
    """Return the names of the tools whose change is not accepted."""

    async def read() -> list[str]:
        async with SQLStore.sqlite(data) as store:
            counts = await store.access.count_changed_pins()
            pins = [pin for each in counts for pin in await store.access.changed_pins(*each)]
            assert sum(counts.values()) == len(pins)
            return [pin.name for pin in pins]

    return anyio.run(read)


def accepting(config: Path, data: Path, *words: str) -> AbstractContextManager[ScreenTerminal]:
    line = [*STATEHOLD, "services", "accept", "notes", *words]
    return program_in_terminal([*line, "--config", str(config), "--data", str(data)], rows=60)


def test_the_document_says_which_changes_were_accepted(
    statehold: Run, config: Path, data: Path
) -> None:
    put(data, described(config, "echo"), described(config, "more"))
    line = ("services", "accept", "notes", "--config", str(config))
    for words, accepted in (("--json",), False), (("--json", "--yes"), True):
        output = statehold(*line, *words)
        assert output.code == OK
        shown = [(each["name"], each["accepted"]) for each in output.json["changes"]]
        assert shown == [("echo", accepted), ("more", accepted)]
    assert waiting(data) == []
    assert statehold(*line).out == "notes has no change that waits.\n"


def test_without_a_terminal_nothing_is_accepted(statehold: Run, config: Path, data: Path) -> None:
    put(data, described(config, "echo"))
    output = statehold("services", "accept", "notes", "--config", str(config))
    assert output.code == FAILURE
    assert "--yes accepts all" in output.err
    assert "follows" not in output.out
    assert waiting(data) == ["echo"]


def test_a_person_accepts_one_and_declines_another(
    statehold: Run, config: Path, data: Path
) -> None:
    echo = described(config, "echo")
    put(data, echo, described(config, "more"))
    with accepting(config, data) as terminal:
        terminal.wait_for_text("Accept tool echo?")
        # A blank that is gone has no colour.
        assert "\x1b[31m[-  -]\x1b[0m\x1b[32m{+ +}\x1b[0m" in terminal.received.decode()
        terminal.press("y\n")
        terminal.wait_for_text("Accept tool more?")
        terminal.press("n\n")
        assert terminal.wait_for_end() == OK
        words = terminal.received.decode()
    assert "Accepted 1 definition." in words
    assert "--yes" not in words
    assert waiting(data) == ["more"]
    assert recorded(statehold) == [
        ("request", "notes/echo", None, {"sha256": echo.offered_digest}),
        ("result", "notes/echo", "ok", None),
    ]


def recorded(statehold: Run) -> list[tuple[str, str, str | None, JSON | None]]:
    """Return the entries of the audit log about acceptances."""
    entries = [
        each
        for each in statehold("audit", "tail", "--json").json["entries"]
        if each["operation"] == "pins.accept"
    ]
    assert {each["transport"] for each in entries} == {"command"}
    assert all(each["actor_name"].endswith("by a command") for each in entries)
    return [
        (each["event"], each["tool"], each.get("outcome"), each.get("arguments"))
        for each in entries
    ]


def test_a_third_definition_is_not_accepted(statehold: Run, config: Path, data: Path) -> None:
    put(data, described(config, "echo"))
    with accepting(config, data) as terminal:
        terminal.wait_for_text("Accept tool echo?")
        put(data, described(config, "echo", after="Another."))
        terminal.press("y\n")
        assert terminal.wait_for_end() == FAILURE
        words = terminal.received.decode()
    assert "echo has changed once more" in words
    assert "Accepted" not in words
    assert waiting(data) == ["echo"]
    outcomes = [outcome for _, _, outcome, _ in recorded(statehold)]
    assert outcomes == [None, "invalid_argument"]


def test_an_interrupt_ends_the_question_and_accepts_nothing(config: Path, data: Path) -> None:
    put(data, described(config, "echo"), described(config, "more"))
    with accepting(config, data) as terminal:
        terminal.wait_for_text("Accept tool echo?")
        terminal.press("y\n")
        terminal.wait_for_text("Accept tool more?")
        terminal.press("\x03")
        assert terminal.wait_for_end() == INTERRUPTED
    assert waiting(data) == ["echo", "more"]


def test_no_definition_is_too_long_or_too_deep_to_be_shown(
    statehold: Run, config: Path, data: Path
) -> None:
    schema = '{"items":' * 950 + "{}" + "}" * 950
    nested = f'{{"inputSchema":{schema},"name":"deep"}}'
    pins = [
        # Repetition is the slowest for a comparison.
        described(config, "words", "a " * 990, "a z " * 490),
        described(config, "lines", "a\n" * 1900, "a\nz\n" * 900),
        described(config, "long", "a\n" * 100_000, "b\n" * 100_000),
        changed(config, "deep", nested.replace("deep", "deeper"), nested),
        # Neither side alone decides that words are compared.
        described(config, "short", "One. Two.\n", "One. Two.\n" + "\n".join(["more of it"] * 900)),
    ]
    put(data, *pins)
    began = time.monotonic()
    output = statehold("services", "accept", "notes", "--config", str(config), "--json")
    assert time.monotonic() - began < 20
    assert output.code == OK
    differences = {each["name"]: each["difference"] for each in output.json["changes"]}
    assert set(differences) == {"words", "lines", "long", "deep", "short"}
    assert [part for part, _ in differences["long"]] == ["old", "new"]
    assert ["same", "One. Two.\n"] in [[part, text[-10:]] for part, text in differences["short"]]
    assert nested in "".join(text for part, text in differences["deep"] if part != "old")


def test_a_text_does_not_pass_for_another_member(statehold: Run, config: Path, data: Path) -> None:
    before = defined("echo", description="Returns the text.", inputSchema={})
    after = defined("echo", description="Returns the text.\ninputSchema: {}")
    put(data, changed(config, "echo", before, after))
    output = statehold("services", "accept", "notes", "--config", str(config))
    assert "{+" in output.out
