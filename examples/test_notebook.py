"""How to test an MCP server of your own: pytest, and one session of the server that stays open across calls.

    uv run pytest examples/test_notebook.py

The fixture comes with Statehold. The server here is the notebook that comes with it as well; put your command in its place.
"""

from __future__ import annotations

import sys

import pytest

from statehold.client.errors import RequestRefused
from statehold.client.integrations.testing import BlockingStdioSessions, StdioSessions
from statehold.client.sync import Session

COMMAND = [sys.executable, "-m", "statehold.shell.demo.server"]


@pytest.fixture
def notebook(stdio_session: BlockingStdioSessions) -> Session:
    """A notebook of this test's own. When the test is over it is closed, and it is an error when anything stays behind."""
    return stdio_session(COMMAND)


def test_it_keeps_its_notes(notebook: Session) -> None:
    for note in ("milk", "tea"):
        notebook.call("write_note", text=note)
    found = notebook.call("read_notes").structured_content
    assert found is not None
    assert found["notes"] == ["milk", "tea"]


def test_each_session_has_notes_of_its_own(stdio_session: BlockingStdioSessions) -> None:
    ada, bob = stdio_session(COMMAND), stdio_session(COMMAND)
    ada.call("write_note", text="milk")
    assert ("milk" in ada.call("read_notes").text, "milk" in bob.call("read_notes").text) == (
        True,
        False,
    )


def test_there_is_no_such_tool(notebook: Session) -> None:
    with pytest.raises(RequestRefused, match="read_notes"):
        notebook.call("read_nodes")


@pytest.mark.anyio
async def test_the_same_without_blocking(stdio_session: StdioSessions) -> None:
    session = await stdio_session(COMMAND)
    await session.call("write_note", text="milk")
    assert "milk" in (await session.call("read_notes")).text
