"""The end of a call in a shell, `statehold tasks` and `answer`: a call that takes long, or asks, is a task of the server.

A command may end before the task: another one waits for it, answers its question, or ends it.
"""

from __future__ import annotations

import binascii
import os
import sys
import time

from ...server.exit_codes import ASKS, BUSY, OK, UNKNOWN, USAGE
from ...server.printing import (
    complain,
    complain_of_output,
    discard,
    flush,
    is_terminal,
    write_error,
    write_json,
    write_line,
)
from ...server.sockets.command import RESULT_TOKENS, TEXT_ANSWERS
from ...server.sockets.processes import ask_each
from ...server.sockets.request import as_list, as_object
from ...sessions.one_line import one_line
from . import questions
from .connect import connect
from .connection import Failure, OutOfTime, RequestFailed, ServerLost, data_folder
from .output import exit_code, show
from .questions import CallQuestion
from .words import Words, WrongUsage, read_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .connection import LocalConnection
    from .remote import RemoteConnection

    Connection = LocalConnection | RemoteConnection

PAGE_TOKENS = 2000
"""The tokens of a page that a command prints; a larger one is an outline and a file."""
INVALID_PARAMS = -32602
CLEAR = "\x1b[K"
"""Has a terminal clear the line from the cursor on."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between two looks at a task: the first, and the longest, up to which they double."""
ATTEMPTS = 5
"""Looks at a task that may find the server gone, before the command ends."""
LIST_SECONDS = 5.0
"""Seconds that a process has for the list of its tasks."""
GONE = (
    "There is no such task. `statehold tasks` lists those that run, and a result is kept for a day."
)


def run_tasks(words: Words) -> int:
    """Run `statehold tasks` or one of the commands below it. Return the exit code."""
    match words.rest:
        case []:
            return _list(words)
        case ["answer", task, *fields]:
            return answer(words, task, fields)
        case ["wait" | "cancel" as action, task]:
            connection = connect(words, None)
            try:
                if action == "wait":
                    return finish(connection, words, "task", _reference(task))
                _ask_task(connection, "tasks/cancel", task)
                return OK
            finally:
                connection.close()
        case _:
            raise WrongUsage("it takes wait, cancel or answer, and the id of a task")


def answer(words: Words, task: str, fields: list[str]) -> int:
    """Answer the question of a task, and print its result. Return the exit code."""
    given, texts = read_arguments(fields)
    if given:
        raise WrongUsage("the fields of a question are key=value")
    connection = connect(words, None)
    try:
        question = CallQuestion(_ask_task(connection, "tasks/get", task))
        if not question.requests:
            raise Failure("The task asks nothing.", "call_not_found", "Run `statehold tasks`.")
        if words.has("--decline") or words.has("--cancel"):
            answers, forms = question.refusals("decline" if words.has("--decline") else "cancel")
        else:
            answers, forms = question.acceptances(), question.forms(texts)
        _answer_task(connection, task, answers, forms)
        return finish(connection, words, "task", _reference(task))
    finally:
        connection.close()


def open_calls(words: Words) -> list[dict[str, Any]]:
    """Return the calls that go on, the latest first: of a process that runs a call, with what it asks."""
    if words.has("--url"):
        params: dict[str, Any] = {"name": "call_list", "arguments": {}, "_meta": {}}
        connection = connect(words, None)
        try:
            content = connection.request("tools/call", params).get("structuredContent")
        finally:
            connection.close()
        return [as_object(each) for each in as_list(as_object(content).get("calls"))]
    found: dict[str, dict[str, Any]] = {}
    # The verb is that of operate/requests.py, whose import takes long.
    for exchange in ask_each(
        data_folder(words), "operate", {"tool": "call_list"}, seconds=LIST_SECONDS
    ):
        exchange.connection.close()
        for each in map(as_object, as_list(exchange.content.get("calls"))):
            if each["question"] or each["task_id"] not in found:
                found[str(each["task_id"])] = each
    return sorted(found.values(), key=lambda each: str(each["began_at"]), reverse=True)


def _list(words: Words) -> int:
    calls = open_calls(words)
    if words.has("--json"):
        write_json(calls)
        return OK
    if not calls:
        return complain("no call goes on", OK)
    # Imported here: nothing else of the commands that call tools has a table.
    from ..output import plain, table

    head = ("task", "session", "tool", "began", "status", "question")
    names = ("task_id", "session_name", "tool", "began_at", "status", "question")
    write_line(table(head, [[plain(each[name]) for name in names] for each in calls]))
    return OK


def finish(
    connection: Connection,
    words: Words,
    tool: str,
    result: dict[str, Any],
    session: str | None = None,
    *,
    is_caller: bool = False,
) -> int:
    """Wait for the end of a call and print its result; put its questions to the person first. Return the exit code.

    `is_caller`: Ctrl-C cancels the call.
    """
    task: str | None = None
    seconds = words.seconds()
    until = None if seconds is None else time.monotonic() + seconds
    try:
        while True:
            if result.get("resultType") == "task":
                task = str(result["taskId"])
                result = _wait(connection, words, task, until)
            question = CallQuestion(result)
            if not question.requests:
                break
            can_ask = not words.has("--no-input") and questions.can_ask()
            if task is not None and not can_ask:
                return _print_question(words, task, question)
            # A call that is no task ends with the command that began it.
            answers, forms = questions.ask(question) if can_ask else question.refusals("cancel")
            if task is None:
                result = _continue(connection, words, tool, question, answers, forms)
                continue
            try:
                _answer_task(connection, task, answers, forms)
            except RequestFailed as error:
                # A text does not fit its field: the person is asked again.
                if error.code != INVALID_PARAMS:
                    raise
                complain(one_line(str(error)))
            result = _reference(task)
    except (OutOfTime, ServerLost) as reason:
        if task is None:
            raise
        text = str(reason) or f"{tool} runs longer than {seconds:g} seconds"
        return complain(f"{text}; it goes on, wait with: statehold tasks wait {task}", UNKNOWN)
    except KeyboardInterrupt:
        if task is not None and is_caller:
            try:
                connection.request("tasks/cancel", {"taskId": task})
            except (Failure, RequestFailed, ServerLost) as error:
                complain(one_line(str(error)))
        raise
    folder = os.path.join(data_folder(words), "shared", "files")
    # The files of a session are read over a connection to it.
    source = connect(words, task.partition(".")[0]) if task and session is None else connection
    try:
        code = show(result, words, tool, folder, _link_reader(source), session)
        flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # The tool has run.
        code = complain_of_output(error, UNKNOWN)
        discard()
        return code if task is None else complain(f"it is kept: statehold tasks wait {task}", code)
    finally:
        if source is not connection:
            source.close()
    if code == BUSY and session is not None:
        _show_waiting(words, session)
    return code


def request_call(
    connection: Connection, params: dict[str, Any], words: Words, seconds: float | None
) -> dict[str, Any]:
    """Send a call and return its result, showing its progress. Raises as LocalConnection.request() does."""
    on_progress = _show_progress if _has_progress(words) else None
    try:
        return connection.request("tools/call", params, on_progress=on_progress, seconds=seconds)
    finally:
        _clear_progress(words)


def _wait(connection: Connection, words: Words, task: str, until: float | None) -> dict[str, Any]:
    """Return the result of a task, or the task if it asks.

    Raises:
        OutOfTime: neither came in time.
        RequestFailed: the call was refused.
        Failure: there is no such task, or it was cancelled.
    """
    pause, losses = FIRST_PAUSE, 0
    try:
        while True:
            try:
                found = _ask_task(connection, "tasks/get", task)
            except ServerLost:
                losses += 1
                if losses == ATTEMPTS:
                    raise
                found = {"status": "working"}
            match found.get("status"):
                case "completed":
                    return as_object(found.get("result"))
                case "input_required":
                    return found
                case "cancelled":
                    raise Failure(
                        "The call was cancelled; it may have taken effect.", "outcome_unknown"
                    )
                case "failed":
                    error = as_object(found.get("error"))
                    raise RequestFailed(int(error.get("code", 0)), str(error.get("message")))
                case _:
                    pass
            if until is not None and time.monotonic() >= until:
                raise OutOfTime
            if "statusMessage" in found and _has_progress(words):
                _show_line(one_line(str(found["statusMessage"])))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    finally:
        _clear_progress(words)


def _reference(task: str) -> dict[str, Any]:
    return {"resultType": "task", "taskId": task}


def _ask_task(
    connection: Connection, method: str, task: str, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    try:
        return connection.request(method, {"taskId": task, **(more or {})})
    except RequestFailed as error:
        if error.code == INVALID_PARAMS and str(error) == "Task not found":
            raise Failure(GONE, "call_not_found") from None
        raise


def _answer_task(
    connection: Connection, task: str, answers: dict[str, Any], forms: dict[str, Any]
) -> None:
    more = {"inputResponses": answers, "_meta": {TEXT_ANSWERS: forms}}
    _ask_task(connection, "tasks/update", task, more)


def _continue(
    connection: Connection,
    words: Words,
    tool: str,
    question: CallQuestion,
    answers: dict[str, Any],
    forms: dict[str, Any],
) -> dict[str, Any]:
    """Send a call that is no task again with the answers. Return its result, or the question if an answer does not fit."""
    params = {
        "name": tool,
        "arguments": {},
        "requestState": question.result.get("requestState"),
        "inputResponses": answers,
        "_meta": {RESULT_TOKENS: PAGE_TOKENS, TEXT_ANSWERS: forms},
    }
    result = request_call(connection, params, words, words.seconds())
    if exit_code(result) != USAGE:
        return result
    show(result, Words("call", []), tool, "", _link_reader(connection))
    return question.result


def _print_question(words: Words, task: str, question: CallQuestion) -> int:
    if words.has("--json"):
        write_json(question.result)
        return ASKS
    import shlex  # here because only a question needs it

    fields = " ".join(f"{shlex.quote(one_line(name))}=..." for name in question.fields())
    write_line(f"{question.text()}\nanswer with: statehold answer {task} {fields}".rstrip())
    return ASKS


def _show_waiting(words: Words, session: str) -> None:
    """Say how the question is answered that keeps a session busy."""
    for each in open_calls(words):
        if each["question"] and session in (each["session_id"], each["session_name"]):
            complain(f"a question of the session waits: statehold answer {each['task_id']}")


def _has_progress(words: Words) -> bool:
    return words.has("--progress") or (is_terminal(sys.stderr) and not words.has("--json"))


def _show_progress(params: dict[str, Any]) -> None:
    total, message = params.get("total"), one_line(str(params.get("message") or ""))
    count = f"{params.get('progress'):g}{f' of {total:g}' if total else ''}"
    _show_line(f"{count}{f': {message}' if message else ''}")


def _show_line(text: str) -> None:
    """Write progress to stderr: one line that is replaced at a terminal, else a line each."""
    text = f"statehold: {text}"
    if not is_terminal(sys.stderr):
        write_error(f"{text}\n")
        return
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    sys.stderr.write(f"\r{CLEAR}{text[: max(1, columns - 1)]}")
    sys.stderr.flush()


def _clear_progress(words: Words) -> None:
    if _has_progress(words) and is_terminal(sys.stderr):
        sys.stderr.write(f"\r{CLEAR}")
        sys.stderr.flush()


def _link_reader(connection: Connection) -> Callable[[str], bytes | None]:
    """Return a function that reads a file of the session. It says why it cannot, and returns None."""

    def read(uri: str) -> bytes | None:
        try:
            result = connection.request("resources/read", {"uri": uri})
        except (RequestFailed, ServerLost) as error:
            complain(f"{uri} cannot be read: {error}")
            return None
        data = b""
        for part in map(as_object, as_list(result.get("contents"))):
            is_text = "blob" not in part
            data += (
                str(part["text"]).encode() if is_text else binascii.a2b_base64(str(part["blob"]))
            )
        return data

    return read
