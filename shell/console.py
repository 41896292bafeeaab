"""`statehold console`: open the web console of the server that runs for the data folder."""

from __future__ import annotations

import html
import os
import webbrowser
from pathlib import Path
from typing import Final

from ..server.config.data_folder import find_data_folder
from ..server.exit_codes import OK, USAGE
from ..server.printing import complain
from ..server.sockets.processes import ask_each
from ..server.sockets.request import Refused
from .output import CommandError, say, say_json
from .parser import CommandLine

VERB: Final = "console"
SECONDS: Final = 15.0
"""Seconds that a process may take to open its port."""
PAGE: Final = "console.html"
"""The file in the data folder that leads the browser to the address."""


def open_console(arguments: CommandLine) -> int:
    """Ask a server of the data folder for a one-time address, and open it or print it. Return the exit code."""
    try:
        data = find_data_folder(
            data=getattr(arguments, "data", None),
            config=getattr(arguments, "config", None),
            environ=os.environ,
        )
    except ValueError as error:
        return complain(str(error), USAGE)
    try:
        address = console_address(Path(data))
    except Refused as error:
        return complain(f"{error} {error.recovery}")
    if address is not None:
        return show_address(address, Path(data), arguments)
    return complain(
        f"no server runs for {data}; start one with `statehold serve`, or a client with --shared"
    )


def console_address(data: Path) -> str | None:
    """Return a one-time address of the console of a server that runs for a data folder, None if there is none.

    Raises:
        Refused: the server serves no console.
    """
    for exchange in ask_each(data, VERB, {}, seconds=SECONDS):
        exchange.connection.close()
        return str(exchange.content["url"])
    return None


def start_console(data: Path, arguments: CommandLine) -> str:
    """Return a one-time address of the console as console_address() does; start a server if there is none. Blocks.

    Raises:
        CommandError: no server can be reached or started, or it serves no console.
    """
    # Imported here: the start of a server needs more than the look for one.
    from .shared import start_and_send

    try:
        exchange = start_and_send(data, arguments, VERB, {})
    except Refused as error:
        raise CommandError(error.code, f"{error} {error.recovery}".strip()) from None
    except RuntimeError as error:
        raise CommandError("service_unavailable", str(error)) from None
    exchange.connection.close()
    return str(exchange.content["url"])


def show_address(url: str, data: Path, arguments: CommandLine) -> int:
    """Open an address of the console; print it if the command line asks for that, or there is no browser."""
    if arguments.json:
        say_json({"url": url})
    elif arguments.url_only or not open_page(url, data):
        say(url)
    else:
        say(f"opened {url.partition('#')[0]}")
    return OK


def open_page(url: str, data: Path) -> bool:
    """Open an address in the browser of this user. Return False if there is none."""
    # Other users see the command line of a browser, but not this file, so none of them gets the code.
    path = data / PAGE
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as page:
            target = html.escape(url)
            page.write(f'<meta http-equiv="refresh" content="0; url={target}">\n')
        return webbrowser.open(path.as_uri())
    except (OSError, webbrowser.Error):
        return False
