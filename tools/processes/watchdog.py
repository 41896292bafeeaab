"""The watchdog: a small shell process that kills our children, not those of the keeper, when this process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Final

import anyio

from . import procfs

# Reads "+pgid" and "-pgid" lines. Its input ends when Statehold ends. Then it kills the groups that are still listed and,
# on Linux, the marked processes that left their group.
_SCRIPT: Final = r"""
groups=' '
while read -r line; do
  case $line in
    +*) groups="$groups${line#+} " ;;
    -*) case $groups in
          *" ${line#-} "*) groups="${groups%%" ${line#-} "*} ${groups#*" ${line#-} "}" ;;
        esac ;;
  esac
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
if [ -d /proc/self ]; then
  for found in $(grep -l -a -F "$1" /proc/[0-9]*/environ 2>/dev/null); do
    found=${found#/proc/}
    kill -KILL "${found%/environ}" 2>/dev/null
  done
fi
"""

_TERMINATION_SIGNALS: Final = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
CLOSE_SECONDS: Final = 3.0


class Watchdog:
    """One `/bin/sh` for all children of this process. It ends with this process.

    It starts before the first child: a child whose start is interrupted by our death has its mark already, but neither a
    record nor a parent-death signal. It has no open file except its pipe. If it dies, the next add() or remove() starts it
    again.
    """

    def __init__(self, mark: str) -> None:
        self._mark = f"{procfs.MARK}={mark}"
        self._shell: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    @property
    def pid(self) -> int | None:
        return self._shell.pid if self._shell is not None else None

    def start(self) -> None:
        """Start the shell, if it does not run yet."""
        if self._shell is None:
            self._start()

    def add(self, pgid: int) -> None:
        self._groups.add(pgid)
        self._send(f"+{pgid}\n".encode())

    def remove(self, pgid: int) -> None:
        self._groups.discard(pgid)
        if self._shell is not None:
            self._send(f"-{pgid}\n".encode())

    def _send(self, line: bytes) -> None:
        if self._shell is not None and self._write(line):
            return
        self._end()
        self._start()
        self._write("".join(f"+{group}\n" for group in sorted(self._groups)).encode())

    def _start(self) -> None:
        # The shell inherits the blocked signals, so that only the end of its input ends it.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATION_SIGNALS)
        try:
            self._shell = self._spawn_shell()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        assert self._shell.stdin is not None
        os.set_blocking(self._shell.stdin.fileno(), False)

    def _spawn_shell(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "statehold-watchdog", self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"PATH": os.defpath},
            start_new_session=True,
        )

    def _write(self, lines: bytes) -> bool:
        shell = self._shell
        if shell is None or shell.stdin is None:
            return False
        try:
            return os.write(shell.stdin.fileno(), lines) == len(lines)
        except OSError:
            return False

    def _end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is None:
            return
        # Kill it before closing its input; otherwise it would kill the groups that are still listed.
        shell.kill()
        shell.wait()
        if shell.stdin is not None:
            shell.stdin.close()

    async def aclose(self) -> None:
        """Close its input and wait until it has killed the listed groups, CLOSE_SECONDS at most. May be called twice."""
        shell, self._shell = self._shell, None
        if shell is None or shell.stdin is None:
            return
        shell.stdin.close()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                while shell.poll() is None:  # noqa: ASYNC110 - nothing tells of it but asking
                    await anyio.sleep(0.005)
            if shell.poll() is None:
                shell.kill()
                shell.wait()
