"""Changes that make an HTTP request of a tool call unusual."""

from __future__ import annotations

from collections.abc import Callable

from .asgi import AsgiRequest

Change = Callable[[AsgiRequest], None]


def without(name: str) -> Change:
    def change(asking: AsgiRequest) -> None:
        asking.headers = [header for header in asking.headers if header[0] != name]

    return change


def instead(name: str, value: str) -> Change:
    def change(asking: AsgiRequest) -> None:
        without(name)(asking)
        asking.headers.append((name, value))

    return change


def twice(name: str) -> Change:
    def change(asking: AsgiRequest) -> None:
        asking.headers += [header for header in asking.headers if header[0] == name]

    return change


def body(text: bytes) -> Change:
    def change(asking: AsgiRequest) -> None:
        asking.body = text
        instead("content-length", str(len(text)))(asking)

    return change


def replace(old: bytes, new: bytes) -> Change:
    def change(asking: AsgiRequest) -> None:
        assert old in asking.body
        body(asking.body.replace(old, new))(asking)

    return change
