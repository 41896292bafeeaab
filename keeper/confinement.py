"""Starts a program in a Landlock domain that its processes cannot leave, and that ends with it. Linux only.

For the keeper and for nodes. A thread enters the domain and starts the program, which inherits it: that needs no other
program in between. Landlock (docs.kernel.org/userspace-api/landlock.html) restricts files, TCP ports and signals; a filter
of system calls refuses the sockets and calls that go past it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import queue
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
_REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a rule for a file may have; the others are those of folders."""
SCOPES_ABI: Final = 6
"""The Landlock ABI of Linux 6.12, the first that keeps signals and abstract sockets inside a domain."""
PORTS_ABI: Final = 4
"""That of Linux 6.7, the first that knows TCP ports."""

_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights of files and folders by ABI; all later ones have 16."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPES: Final = 3
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _ANSWER, _ANSWER_WITH_FILE = 0xC0502100, 0xC0182101, 0x40182103
"""The ioctl(2) numbers of seccomp_unotify(2)."""
_MOST_SOCKETS: Final = 64
"""Sockets of AF_UNIX that a program and its processes may have open at once. Each takes a descriptor of this process."""
_CAPABILITY_VERSION: Final = 0x20080522

_libc: ctypes.CDLL | None = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _Machine(NamedTuple):
    """The number of an architecture in filters, and its numbers of the system calls that are filtered."""

    audit: int
    socket: int
    socketpair: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    prlimit: int
    listen: int
    seccomp: int
    io_uring_setup: int = 425


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 41, 53, 44, 46, 307, 302, 50, 317),
    "aarch64": _Machine(0xC00000B7, 198, 199, 206, 211, 269, 261, 201, 277),
}


def landlock_abi() -> int:
    """Return the version of Landlock of this kernel; 0 without it, and on machines whose system calls are not known."""
    if _libc is None or os.uname().machine not in _MACHINES:
        return 0
    return max(0, _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def create_ruleset(abi: int) -> int:
    """Return the descriptor of a ruleset without rules: it refuses all files and, as far as `abi` knows them, TCP ports."""
    ports = _BIND_TCP | _CONNECT_TCP if abi >= PORTS_ABI else 0
    return _create_ruleset(all_rights(abi), ports, 0)


def all_rights(abi: int) -> int:
    """Return all rights of files and folders."""
    return (1 << _RIGHTS.get(abi, 16)) - 1


def allow_path(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a file, or a folder and all below it. Raises OSError if it cannot be opened."""
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= OF_FILES
        _call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, opened), 0)
    finally:
        os.close(opened)


def allow_port(ruleset: int, port: int) -> None:
    """Add a rule for connections to a TCP port, at any address."""
    _call(_ADD_RULE, ruleset, 2, struct.pack("QQ", _CONNECT_TCP, port), 0)


def start_confined(
    ruleset: int, start: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Run `start` in a new domain with the rules of `ruleset`, and return the program that it started.

    The processes of the domain are killed when the program ends; before Linux 6.12 they stay. Its thread lives as long as
    the program, so that a parent-death signal is that of this process. Blocks as `start` does.

    Raises:
        OSError: The kernel refuses the domain. `start` may raise others.
    """
    outcome: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException] = queue.SimpleQueue()

    def run() -> None:
        opened: list[int] = []
        try:
            has_scope = _enter_domain(ruleset, opened)
            process = start()
            opened.append(_watch_exit(process))
            outcome.put(process)
            _give_sockets(*opened)
            if has_scope:
                with suppress(ProcessLookupError):
                    # The scope of the domain keeps this from all processes outside of it, whatever user they have.
                    os.kill(-1, signal.SIGKILL)
        except BaseException as error:
            outcome.put(error)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    threading.Thread(target=run, name="confined", daemon=True).start()
    started = outcome.get()
    if isinstance(started, BaseException):
        raise started
    return started


def _watch_exit(process: subprocess.Popen[bytes]) -> int:
    """Return a descriptor that is readable after the end of a program, which stays a zombie for whoever reaps it."""
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        with process:
            process.kill()
        raise


def _enter_domain(ruleset: int, opened: list[int]) -> bool:
    """Put this thread into a domain. Return whether its signals stay inside.

    `opened` gets the descriptor that tells of its sockets of AF_UNIX, unless a filter of this process has one.
    """
    assert _libc is not None
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # Of root: its capabilities would read the environment of other processes. They never come back without new privileges.
    _check(_libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)))
    _call(_RESTRICT_SELF, ruleset, 0)
    # A layer of its own: only one that this thread has entered itself makes the signal to all processes harmless.
    has_scope = landlock_abi() >= SCOPES_ABI
    if has_scope:
        scopes = _create_ruleset(_REFER, 0, _SCOPES)
        try:
            # Every layer refuses to move files between folders unless a rule of its own allows it.
            allow_path(scopes, "/", _REFER)
            _call(_RESTRICT_SELF, scopes, 0)
        finally:
            os.close(scopes)
    machine = _MACHINES[os.uname().machine]
    program = _filter(machine)
    code = ctypes.create_string_buffer(program)
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    try:
        opened.append(_call(machine.seccomp, _SET_FILTER, _NEW_LISTENER, header))
    except OSError:
        # A process has one listener: without it, the kernel refuses these sockets.
        _call(machine.seccomp, _SET_FILTER, 0, header)
    return has_scope


def _give_sockets(*opened: int) -> None:
    """Answer each socket() of AF_UNIX with a socket that reaches nothing, until the last descriptor tells of an exit.

    Chromium and others demand one to listen on, and do without connections to it.
    """
    ends: dict[int, socket.socket] = {}
    poll = select.poll()
    for descriptor in opened:
        poll.register(descriptor, select.POLLIN)
    while opened[-1] not in (ready := dict(poll.poll())):
        for descriptor in ready:
            if descriptor in ends:
                # All others have closed theirs.
                poll.unregister(descriptor)
                ends.pop(descriptor).close()
            elif end := _give_socket(descriptor, is_full=len(ends) >= _MOST_SOCKETS):
                poll.register(end, 0)
                ends[end.fileno()] = end
    for end in ends.values():
        end.close()


def _give_socket(listener: int, *, is_full: bool) -> socket.socket | None:
    """Answer one call with an end of a pair, which can never be connected anew. Return the other end, or None."""
    request = bytearray(80)
    # Its caller may be gone.
    with suppress(OSError):
        fcntl.ioctl(listener, _RECEIVE, request)
        call, kind = struct.unpack_from("=Q32xQ", request)
        with suppress(OSError):
            if kind & 0xF == socket.SOCK_STREAM and not is_full:
                return _send_end(listener, call, kind)
        fcntl.ioctl(listener, _ANSWER, struct.pack("=QqiI", call, 0, -errno.EACCES, 0))
    return None


def _send_end(listener: int, call: int, kind: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    try:
        theirs.setblocking(not kind & socket.SOCK_NONBLOCK)
        answer = (call, 2, theirs.fileno(), 0, kind & socket.SOCK_CLOEXEC)
        fcntl.ioctl(listener, _ANSWER_WITH_FILE, struct.pack("=QIIII", *answer))
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours


def _create_ruleset(files: int, ports: int, scopes: int) -> int:
    attributes = struct.pack("QQQ", files, ports, scopes)
    # Older kernels know fewer fields, and accept others only as zeros.
    return _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)


def _call(number: int, *arguments: object) -> int:
    assert _libc is not None
    return _check(_libc.syscall(number, *arguments))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


_LOAD, _AND, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_DO_NOTHING: Final = 0x00050000
_REFUSE: Final = _DO_NOTHING | errno.EACCES
_NOTIFY: Final = 0x7FC00000
_NUMBER, _ARCHITECTURE = 0, 4
_X32: Final = 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_PROTOCOLS: Final = (0, 1, 6, 17, 58)
"""The protocols of sockets that are allowed: that of the type, ICMP, TCP, UDP and ICMPv6. Others, such as MPTCP and SMC,
may carry TCP past Landlock."""
_STREAM, _SEQUENCE, _SOCKET_TYPE = 1, 5, 15
_FAST_OPEN: Final = 0x20000000

_Instruction = tuple[int, int, int, int]
"""The code of an instruction, how many others it skips if its condition is true, and if it is not, and its operand."""


def _filter(machine: _Machine) -> bytes:
    """Return the filter of system calls (bpf(4), seccomp(2)), each of whose refusals is EACCES.

    Landlock checks `connect` of TCP sockets alone. So MPTCP, SMC, TCP Fast Open and io_uring would reach any address, and a
    socket of a path, such as that of the keeper or of a container engine, would start programs outside of the domain. A
    datagram socket of a pair could send to one, too. _give_sockets() answers the calls that this filter tells of; listen()
    does nothing and returns 0. `prlimit` changes the limits of any process of the same user.
    """
    load, refuse, allow = _argument, (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)
    sockets: list[_Instruction] = [
        load(0),
        (_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _NOTIFY),
        (_EQUAL, 3, 0, _AF_INET),
        (_EQUAL, 2, 0, _AF_INET6),
        (_EQUAL, 3 + len(_PROTOCOLS), 0, _AF_NETLINK),
        refuse,
        load(2),
        *((_EQUAL, len(_PROTOCOLS) - at, 0, each) for at, each in enumerate(_PROTOCOLS)),
        refuse,
        allow,
    ]
    rules: dict[int, list[_Instruction]] = {
        machine.socket: sockets,
        machine.socketpair: [
            load(1),
            (_AND, 0, 0, _SOCKET_TYPE),
            (_EQUAL, 2, 0, _STREAM),
            (_EQUAL, 1, 0, _SEQUENCE),
            refuse,
            allow,
        ],
        machine.sendto: [load(3), (_HAS_BITS, 1, 0, _FAST_OPEN), allow, refuse],
        machine.sendmsg: [load(2), (_HAS_BITS, 1, 0, _FAST_OPEN), allow, refuse],
        machine.sendmmsg: [load(3), (_HAS_BITS, 1, 0, _FAST_OPEN), allow, refuse],
        machine.prlimit: [load(0), (_EQUAL, 0, 1, 0), allow, refuse],
        machine.io_uring_setup: [refuse],
        # Landlock sees bind() only, but a socket without an address gets one here.
        machine.listen: [(_RETURN, 0, 0, _DO_NOTHING)],
    }
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.audit),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
    ]
    for number, rule in rules.items():
        program += [(_EQUAL, 0, len(rule), number), *rule]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in [*program, allow])


def _argument(index: int) -> _Instruction:
    """Return the load of an argument, of which the kernel reads the lower half as well; both machines are little-endian."""
    return (_LOAD, 0, 0, 16 + 8 * index)
