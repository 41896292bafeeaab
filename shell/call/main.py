"""Runs `statehold call`, `answer`, `tools` and the completion of a shell."""

from __future__ import annotations

import binascii
import os
import sys

from ...server.exit_codes import BUSY, FAILURE, INTERRUPTED, NOT_FOUND, OK, UNKNOWN, USAGE
from ...server.printing import (
    complain,
    complain_of_output,
    discard,
    end,
    flush,
    is_terminal,
    write_error,
    write_line,
)
from ...server.sockets.command import (
    ANY,
    EXISTING,
    NEW,
    RESULT_TOKENS,
    TEXT_ANSWERS,
    TEXT_ARGUMENTS,
)
from ...server.sockets.request import as_list, as_object
from ...sessions.one_line import one_line
from ...sessions.repeats import may_repeat
from . import questions
from .connect import connect
from .connection import Failure, LocalConnection, OutOfTime, RequestFailed, ServerLost, data_folder
from .output import complain_of, exit_code, show
from .questions import CallQuestion
from .words import FIND, Words, WrongUsage, read_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .remote import RemoteConnection

PAGE_TOKENS = 2000
"""The tokens of a page that a command prints; a larger one is an outline and a file."""
INVALID_PARAMS = -32602
CLEAR = "\x1b[K"
"""Has a terminal clear the line from the cursor on."""


def run(command: str, words: list[str]) -> int:
    """Run one command and return its exit code. `words` are those behind its name."""
    try:
        return end(_run(command, words), lost=FAILURE if command == "tools" else UNKNOWN)
    except BrokenPipeError:
        discard()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: str, words: list[str]) -> int:
    line: Words | None = None
    try:
        line = Words(command, words)
        match command:
            case "call":
                return _call(line)
            case "answer":
                return _answer(line)
            case "tools":
                from .tools import show_tools

                return show_tools(line)
            case _:
                from .completion import complete

                return complete(line)
    except WrongUsage as error:
        return complain(f"{error}; see statehold {command} --help", USAGE)
    except Failure as error:
        session = line.rest[0] if line and command == "call" else None
        return complain_of(error.code, str(error), error.recovery, session)
    except ServerLost as lost:
        return complain(str(lost), FAILURE if command == "tools" else UNKNOWN)
    except RequestFailed as error:
        text = one_line(str(error))
        if text.startswith("Unknown tool"):
            text = f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} {FIND}"
        return complain(text, USAGE if error.code == INVALID_PARAMS else FAILURE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(f"{error.filename or 'it failed'}: {error.strerror}", FAILURE)


def _call(words: Words) -> int:
    if len(words.rest) < 2:
        raise WrongUsage("it takes a session, a tool and the arguments of the tool")
    session, tool, *arguments = words.rest
    given, texts = read_arguments(arguments)
    meta: dict[str, Any] = {
        TEXT_ARGUMENTS: texts,
        RESULT_TOKENS: 0 if words.has("--quiet") else PAGE_TOKENS,
    }
    operation = words.options.get("--operation")
    if operation is not None:
        meta["statehold/operation_id"] = operation
    params = {"name": tool, "arguments": given, "_meta": meta}
    connection = connect(words, session, _presence(words))
    try:
        try:
            result = _request(connection, params, words)
        except ServerLost as lost:
            connection.close()
            if operation is not None:
                meta["statehold/operation_repeated"] = True
            elif not lost.is_unread and not _may_repeat(words, session, tool):
                return complain(
                    f"{lost} during the call; look at its effect before you repeat it",
                    UNKNOWN,
                )
            # The server that ended may have created the session.
            connection = connect(words, session)
            result = _request(connection, params, words)
        if connection.is_new:
            complain(f"session {session} is new")
        return _finish(connection, words, CallQuestion(session, tool, result))
    except OutOfTime:
        return _out_of_time(words, tool)
    finally:
        connection.close()


def _presence(words: Words) -> str:
    if words.has("--new") and words.has("--exists"):
        raise WrongUsage("--new and --exists exclude each other")
    return NEW if words.has("--new") else EXISTING if words.has("--exists") else ANY


def _may_repeat(words: Words, session: str, tool: str) -> bool:
    """Whether a call may run again after the server was lost: see may_repeat()."""
    from .tools import list_tools

    connection = connect(words, session)
    try:
        tools = list_tools(connection)
    except (Failure, ServerLost):
        return False
    finally:
        connection.close()
    return any(each.get("name") == tool and may_repeat(each) for each in tools)


def _answer(words: Words) -> int:
    if not words.rest:
        raise WrongUsage("it takes the token of a question")
    token, *fields = words.rest
    folder = _shared_folder(words)
    question = questions.find(token, folder)
    given, texts = read_arguments(fields)
    if given:
        raise WrongUsage("the fields of a question are key=value")
    if question.has_ended:
        return _print_again(words, question, token)
    meta: dict[str, Any] = {RESULT_TOKENS: PAGE_TOKENS}
    if words.has("--decline") or words.has("--cancel"):
        answers = question.refusals("decline" if words.has("--decline") else "cancel")
    else:
        answers = question.acceptances()
        meta[TEXT_ANSWERS] = question.forms(texts)
    connection = connect(words, question.session, EXISTING)
    try:
        result = _request(connection, question.params(answers, meta), words)
        if exit_code(result) != USAGE:
            questions.forget(token, folder)
        question = CallQuestion(question.session, question.tool, result)
        return _finish(connection, words, question, token)
    except RequestFailed:
        questions.forget(token, folder)
        return complain(questions.GONE, NOT_FOUND)
    except OutOfTime:
        return _out_of_time(words, question.tool)
    finally:
        connection.close()


def _print_again(words: Words, question: CallQuestion, token: str) -> int:
    """Print the result that an earlier command could not write. It is kept until it is written."""
    connection = connect(words, question.session, EXISTING)
    try:
        questions.forget(token, _shared_folder(words))
        return _finish(connection, words, question, token)
    finally:
        connection.close()


def _finish(
    connection: LocalConnection | RemoteConnection,
    words: Words,
    question: CallQuestion,
    token: str | None = None,
) -> int:
    """Print the result of a call; ask the person first while the result is a question.

    `token`: the one of its question, under which a result that cannot be written is kept.
    """
    while not question.has_ended:
        if words.has("--no-input") or not questions.can_ask():
            return _print_question(words, question)
        answers, forms = questions.ask(question)
        meta = {RESULT_TOKENS: PAGE_TOKENS, TEXT_ANSWERS: forms}
        result = _request(connection, question.params(answers, meta), words)
        if exit_code(result) == USAGE:
            # A text does not fit its field; the call waits on.
            show(result, Words("call", []), question.tool, "", _no_file, question.session)
            continue
        question = CallQuestion(question.session, question.tool, result)
    folder = os.path.join(_shared_folder(words), "files")
    try:
        read_link = _link_reader(connection)
        code = show(question.result, words, question.tool, folder, read_link, question.session)
        flush()
        if code == BUSY:
            _show_waiting(question.session, _shared_folder(words))
        return code
    except BrokenPipeError:
        raise
    except OSError as error:
        # The tool has run.
        code = complain_of_output(error, UNKNOWN)
    discard()
    if token is not None:
        try:
            questions.keep(question, _shared_folder(words), token)
        except OSError:
            return code
        complain(f"it is kept: statehold answer {token}")
    return code


def _show_waiting(session: str, folder: str) -> None:
    """Say how the question is answered that keeps a session busy, if a command has kept it."""
    waiting = questions.waiting(session, folder)
    if waiting is not None:
        complain(f"a question of the session waits: statehold answer {waiting}")


def _print_question(words: Words, question: CallQuestion) -> int:
    if not question.token.startswith(questions.PARKED):
        return complain(
            f"{question.tool} asks, and needs an answer at a terminal", exit_code(question.result)
        )
    questions.keep(question, _shared_folder(words))
    if words.has("--json"):
        return show(question.result, words, question.tool, "", _no_file)
    import shlex  # here because only a question needs it

    fields = " ".join(f"{shlex.quote(one_line(name))}=..." for name in _field_names(question))
    text = f"{question.text()}\nanswer with: statehold answer {question.token} {fields}".rstrip()
    write_line(text)
    return exit_code(question.result)


def _field_names(question: CallQuestion) -> list[str]:
    schemas = [as_object(params.get("requestedSchema")) for params in question.requests.values()]
    return [name for schema in schemas for name in as_object(schema.get("properties"))]


def _request(
    connection: LocalConnection | RemoteConnection, params: dict[str, Any], words: Words
) -> dict[str, Any]:
    has_progress = words.has("--progress") or (is_terminal(sys.stderr) and not words.has("--json"))
    on_progress = _show_progress if has_progress else None
    try:
        return connection.request(
            "tools/call", params, on_progress=on_progress, seconds=words.seconds()
        )
    finally:
        if has_progress:
            _clear_progress()


def _show_progress(params: dict[str, Any]) -> None:
    """Write progress to stderr: one line that is replaced at a terminal, else a line each."""
    total, message = params.get("total"), one_line(str(params.get("message") or ""))
    count = f"{params.get('progress'):g}{f' of {total:g}' if total else ''}"
    text = f"statehold: {count}{f': {message}' if message else ''}"
    if not is_terminal(sys.stderr):
        write_error(f"{text}\n")
        return
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    sys.stderr.write(f"\r{CLEAR}{text[: max(1, columns - 1)]}")
    sys.stderr.flush()


def _clear_progress() -> None:
    if is_terminal(sys.stderr):
        sys.stderr.write(f"\r{CLEAR}")
        sys.stderr.flush()


def _link_reader(
    connection: LocalConnection | RemoteConnection,
) -> Callable[[str], bytes | None]:
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


def _no_file(uri: str) -> bytes | None:
    return None


def _shared_folder(words: Words) -> str:
    return os.path.join(data_folder(words), "shared")


def _out_of_time(words: Words, tool: str) -> int:
    seconds = words.options.get("--timeout")
    return complain(f"{tool} took longer than {seconds} seconds and was cancelled", UNKNOWN)
