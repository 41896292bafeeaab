"""The next step after an error in the terms of its reader, and names that are near."""

from __future__ import annotations

import re
import traceback

import httpx2
import pytest

from statehold.sessions import errors
from statehold.sessions.wording import (
    CONSOLE,
    PYTHON,
    SHELL,
    connection_failure,
    did_you_mean,
    next_step,
)

BIND = "Call session_bind with this session_id and service=notebook."
RECOVERIES = sorted(
    {kind.recovery for kind in vars(errors).values() if hasattr(kind, "recovery")} | {BIND}
)


def test_a_next_step_is_worded_for_its_reader() -> None:
    assert (
        next_step(BIND, SHELL, "my work")
        == "Run `statehold call 'my work' session_bind service=notebook`."
    )
    assert next_step(BIND, PYTHON) == 'Call `session.bind("notebook")`.'
    recovery = errors.SessionPaused.recovery
    assert next_step(recovery, CONSOLE) == "Use Resume, then try again."
    assert next_step("Correct the values.", SHELL, "work") == "Correct the values."


@pytest.mark.parametrize("reader", [SHELL, PYTHON, CONSOLE])
def test_only_models_read_of_this_session_id(reader: int) -> None:
    for recovery in RECOVERIES:
        text = next_step(recovery, reader, "work")
        assert "this session_id" not in text
        if reader != CONSOLE:
            bare = re.sub("`[^`]*`", "", text)
            assert re.search(r"\b(session|state)_[a-z]+", bare) is None, text


def test_a_near_name_is_named_whatever_its_case() -> None:
    assert (
        did_you_mean("Browser_Clck", ["count", "browser_click"]) == " Did you mean browser_click?"
    )
    assert did_you_mean("xyz", ["count"]) == ""
    assert did_you_mean("count" * 1000, ["count" * 1000 + "s"]) == ""


def test_a_wait_is_named_in_seconds() -> None:
    recovery = "Wait for retry_after_seconds, then try again."
    assert next_step(recovery, SHELL, retry_after=12.4) == "Wait for 12 seconds, then try again."
    assert next_step(recovery, SHELL) == recovery


def test_python_prints_the_next_step_below_an_error_that_nobody_catches() -> None:
    error = errors.SessionNotFound(recovery="Look again.")
    assert traceback.format_exception_only(error)[-1] == "Look again.\n"


async def test_the_reason_of_a_failed_connection_is_found_below_the_errors_of_libraries() -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx2.ConnectError) as refused:
            await client.get("http://127.0.0.1:9")
    assert "nothing listens" in connection_failure(refused.value)
    assert "nothing listens" in connection_failure(
        ExceptionGroup("both", [ConnectionRefusedError()])
    )
    assert connection_failure(OSError("something else")) == ""
