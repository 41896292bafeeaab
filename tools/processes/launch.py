"""Starts a program so that it is killed when this process dies.

On Linux the kernel kills a child whose parent-death signal is set when the parent dies. Setting it in Python code after the
fork copies the page tables of this process and blocks the event loop for 5 to 15 ms. So the child starts as `setpriv` of
util-linux, where that is installed, which sets the signal and then executes the program.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ...keeper.confinement import start_confined

INHERITED: Final = frozenset(
    {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        *("LANG", "LANGUAGE", "TZ"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        "NODE_EXTRA_CA_CERTS",
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    }
)
"""The environment variables that every child inherits: to find files, the network and its language.

Other variables may be secrets; a child gets them only if the configuration names them.
"""
INHERITED_PREFIXES: Final = ("LC_", "XDG_")

_LINUX: Final = sys.platform == "linux"
_PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: a child between fork and exec must not load anything.
_libc: ctypes.CDLL | None = ctypes.CDLL(None) if _LINUX else None


def inherited_environment(extra_names: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment variables that a child inherits: INHERITED, and those in `extra_names`."""
    names = INHERITED.union(extra_names)
    return {
        name: value
        for name, value in os.environ.items()
        if (name in names or name.startswith(INHERITED_PREFIXES))
        # Exported shell functions are code, not settings.
        and not value.startswith("()")
    }


def launch(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None, ruleset: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program with pipes, in its own process session, and confined by the Landlock ruleset of a descriptor.

    The thread that calls this must live as long as the loop: the kernel kills the child when that thread ends.

    Raises:
        OSError: The program or the folder does not exist, or the program cannot be run or confined.
        ValueError: The command or the environment contains a null byte.
    """
    prefix, preexec_fn = _death_signal_options()
    if prefix:
        # With setpriv in between, a failed exec is reported to setpriv, not to us, so check beforehand.
        require_program(command[0], env.get("PATH", os.defpath), cwd)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=preexec_fn,
        )

    return start() if ruleset is None else start_confined(ruleset, start)


def _death_signal_options() -> tuple[list[str], Callable[[], None] | None]:
    if not _LINUX:
        return [], None
    prefix = death_signal_prefix()
    return prefix, None if prefix else functools.partial(_die_with, os.getpid())


def death_signal_prefix() -> list[str]:
    """Return the words before a command with which the kernel kills it when its parent dies; none without setpriv."""
    setpriv = find_setpriv() if _LINUX else None
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]


@functools.cache
def find_setpriv() -> str | None:
    """Return the path of a setpriv that supports --pdeathsig (that of busybox does not), or None. Blocks once, for 2 ms."""
    path = shutil.which("setpriv", path=f"/usr/bin:/bin:{os.defpath}")
    if path is None:
        return None
    completed = subprocess.run(
        [path, "--pdeathsig", "KILL", "--", path, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return path if completed.returncode == 0 else None


def _die_with(parent: int) -> None:
    """Set the parent-death signal. Runs in the child before its program."""
    assert _libc is not None
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the parent died before the call above, the kernel never kills this child.
    if os.getppid() != parent:
        os._exit(127)


def require_program(program: str, path: str, cwd: str | None) -> None:
    """Raises OSError when a program or its working folder does not exist or cannot be used. `path` is its PATH."""
    if cwd is not None and not os.path.isdir(cwd):
        reason = errno.ENOTDIR if os.path.exists(cwd) else errno.ENOENT
        raise OSError(reason, os.strerror(reason), cwd)
    if os.sep not in program:
        if shutil.which(program, path=path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        return
    file = os.path.join(cwd or "", program)
    if not os.path.exists(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if os.path.isdir(file) or not os.access(file, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
