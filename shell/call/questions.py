"""Questions of a tool to the person behind a command: their text, their fields, and their answers."""

from __future__ import annotations

import json
import sys

from ...server.printing import is_terminal, write_error
from ...server.sockets.request import as_list, as_object
from ...sessions.one_line import one_line
from .words import WrongUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CallQuestion:
    """The questions of a call: its task that asks, or the result that asks for input. Empty for another result."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result

    @property
    def requests(self) -> dict[str, dict[str, Any]]:
        """The params of each question by its key."""
        requests = as_object(self.result.get("inputRequests"))
        return {key: as_object(as_object(each).get("params")) for key, each in requests.items()}

    def refusals(self, action: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return answers that decline or cancel all questions, and no texts of forms."""
        return {key: {"action": action} for key in self.requests}, {}

    def forms(self, texts: dict[str, Any]) -> dict[str, Any]:
        """Return texts by question, with the schema of the form: each field belongs to the first form that has it.

        Raises:
            WrongUsage: no form has a field of that name.
        """
        forms: dict[str, Any] = {
            key: {"schema": _strict(params), "texts": {}}
            for key, params in self.requests.items()
            if params.get("mode", "form") == "form"
        }
        for name, text in texts.items():
            for form in forms.values():
                if name in as_object(form["schema"]).get("properties", {}):
                    form["texts"][name] = text
                    break
            else:
                raise WrongUsage(f"the question has no field {name[:60]!r}")
        return forms

    def acceptances(self) -> dict[str, Any]:
        """Return the answers to the questions that have no form: their address was opened."""
        return {
            key: {"action": "accept"}
            for key, params in self.requests.items()
            if params.get("mode", "form") != "form"
        }

    def fields(self) -> list[str]:
        """Return the names of the fields of all forms."""
        return [name for params in self.requests.values() for name, _ in _fields(params)]

    def text(self) -> str:
        """Return the questions and their fields as text."""
        return "\n".join(line for params in self.requests.values() for line in _lines(params))


def _strict(params: dict[str, Any]) -> dict[str, Any]:
    return {**as_object(params.get("requestedSchema")), "additionalProperties": False}


def _lines(params: dict[str, Any]) -> list[str]:
    lines = [_message(params)]
    if params.get("mode", "form") != "form":
        return [*lines, f"open: {one_line(str(params.get('url')))}"]
    for name, field in _fields(params):
        lines.append(f"  {one_line(f'{name}{_describe(name, field, params)}')}")
    return lines


def _message(params: dict[str, Any]) -> str:
    """Return the text of a question. Its further lines are indented: none of them looks like one of ours."""
    return "\n  ".join(str(params.get("message", "")).splitlines())


def _fields(params: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    properties = as_object(as_object(params.get("requestedSchema")).get("properties"))
    return [(name, as_object(field)) for name, field in properties.items()]


def _describe(name: str, field: dict[str, Any], params: dict[str, Any]) -> str:
    """Return what a field wants, in brackets and with its title."""
    required = as_list(as_object(params.get("requestedSchema")).get("required"))
    choices = _choices(field)
    kind = {"string": "text", "boolean": "yes or no"}.get(
        str(field.get("type")), str(field.get("type"))
    )
    parts = ["|".join(choices) if choices else kind]
    if "default" in field:
        parts.append(f"default {_text(field['default'])}")
    elif name not in required:
        parts.append("optional")
    title = field.get("title") or field.get("description")
    return f" ({', '.join(parts)}){f': {title}' if title and title != name else ''}"


def _choices(field: dict[str, Any]) -> list[str]:
    """Return the values of a field with choices: an enum, or titled constants, also of a list."""
    for schema in (field, as_object(field.get("items"))):
        if isinstance(schema.get("enum"), list):
            return [_text(value) for value in as_list(schema["enum"])]
        for name in ("oneOf", "anyOf"):
            options = [as_object(option) for option in as_list(schema.get(name))]
            if options and all("const" in option for option in options):
                return [_text(option["const"]) for option in options]
    return []


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def can_ask() -> bool:
    """Whether a person can be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def ask(question: CallQuestion) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask the person at the terminal. Return the answers without a form, and the texts of the forms by question.

    A form without fields is confirmed. Ctrl-D declines.
    """
    answers: dict[str, Any] = {}
    forms: dict[str, Any] = {}
    for key, params in question.requests.items():
        write_error(f"{_message(params)}\n")
        if params.get("mode", "form") != "form":
            text = _prompt(f"open {params.get('url')} and press Enter when it is done")
            answers[key] = {"action": "decline" if text is None else "accept"}
            continue
        texts = _ask_fields(params)
        if texts is None:
            answers[key] = {"action": "decline"}
        else:
            forms[key] = {"schema": _strict(params), "texts": texts}
    return answers, forms


def _ask_fields(params: dict[str, Any]) -> dict[str, str] | None:
    """Ask for each field of a form. Return the texts, None if the person declines."""
    texts: dict[str, str] = {}
    required = as_list(as_object(params.get("requestedSchema")).get("required"))
    fields = _fields(params)
    if not fields:
        text = _prompt("confirm? [y/n]")
        return {} if text is not None and text.lower() in ("y", "yes") else None
    for name, field in fields:
        choices = _choices(field)
        for number, choice in enumerate(choices, 1):
            write_error(f"  {number}. {one_line(choice)}\n")
        while True:
            text = _prompt(
                f"{name}{_describe(name, {**field, 'enum': []} if choices else field, params)}"
            )
            if text is None:
                return None
            if text.isdecimal() and 1 <= int(text) <= len(choices) and text not in choices:
                text = choices[int(text) - 1]
            if field.get("type") == "boolean":
                text = {"y": "yes", "n": "no"}.get(text.lower(), text)
            if not text and "default" in field:
                text = _text(field["default"])
            if text or name not in required:
                break
        if text:
            texts[name] = text
    return texts


def _prompt(text: str) -> str | None:
    """Return a line of the person; None at the end of the input."""
    write_error(f"{one_line(text)}: ")
    line = sys.stdin.readline()
    return line.strip() if line else None
