"""Runs `statehold call`, `answer`, `tasks`, `tools` and the completion of a shell."""

from __future__ import annotations

from ...server.exit_codes import FAILURE, INTERRUPTED, OK, UNKNOWN, USAGE
from ...server.printing import complain, discard, end, write_line
from ...server.sockets.command import ANY, EXISTING, NEW, RESULT_TOKENS, TEXT_ARGUMENTS
from ...sessions.one_line import one_line
from ...sessions.repeats import may_repeat
from .connect import connect
from .connection import Failure, OutOfTime, RequestFailed, ServerLost
from .output import complain_of
from .tasks import INVALID_PARAMS, PAGE_TOKENS, answer, finish, request_call, run_tasks
from .words import FIND, Words, WrongUsage, read_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
                if not line.rest:
                    raise WrongUsage("it takes the id of a task")
                return answer(line, line.rest[0], line.rest[1:])
            case "tasks":
                return run_tasks(line)
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
    seconds = words.seconds()
    if words.has("--detach") or seconds is not None:
        meta["statehold/hand_over"] = True
    params = {"name": tool, "arguments": given, "_meta": meta}
    connection = connect(words, session, _presence(words))
    try:
        try:
            result = request_call(connection, params, words, seconds)
        except ServerLost as lost:
            if operation is not None:
                meta["statehold/operation_repeated"] = True
            elif not lost.is_unread and not _may_repeat(words, session, tool):
                return complain(
                    f"{lost} during the call; look at its effect before you repeat it",
                    UNKNOWN,
                )
            result = request_call(connection, params, words, seconds)
        if connection.is_new:
            complain(f"session {session} is new")
        if words.has("--detach") and result.get("resultType") == "task":
            write_line(str(result["taskId"]))
            return OK
        return finish(connection, words, tool, result, session, is_caller=True)
    except OutOfTime:
        limit = words.options.get("--timeout")
        return complain(f"{tool} took longer than {limit} seconds and was cancelled", UNKNOWN)
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
