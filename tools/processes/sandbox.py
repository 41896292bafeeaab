"""The sandbox of a child: the files that it may read and write, the TCP ports to which it may connect, and its limits.

Landlock only adds rights, so that no rule may hold a private file such as the data folder: keeper/confinement.py has the
rest. Which files a program needs is found by its path and the paths in its arguments.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...keeper.confinement import (
    EXECUTE,
    IOCTL_DEV,
    PORTS_ABI,
    READ_DIR,
    READ_FILE,
    SCOPES_ABI,
    WRITE_FILE,
    all_rights,
    allow_path,
    allow_port,
    create_ruleset,
)
from .launch import require_program
from .workdir import private_folder, temporary_link

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store"),
    *("/proc", "/sys", "/run/systemd/resolve", "/etc/resolv.conf", "/var/lib/ca-certificates"),
)
"""The folders that every child may read."""
DEVICES: Final = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
)
_READ: Final = EXECUTE | READ_FILE | READ_DIR
_RUNTIMES: Final = ("node", "python3")
"""Programs that launchers such as npx and uvx start, and scripts by their first line."""
_BIN: Final = frozenset({"bin", "sbin", "libexec", "shims"})
_SCRIPTS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl", ".php")
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy"})
_PORT: Final = re.compile(r":(\d{1,5})/?$")


class SandboxError(ValueError):
    """Raised when a child cannot have the sandbox of its settings. The message names the setting, or the lack."""


@dataclass(frozen=True, slots=True)
class ProcessQuota:
    """The resource limits of a child and of each of its processes (setrlimit(2)); None: that of Statehold."""

    processes: int | None = None
    """Counted over all processes of the user."""
    open_files: int | None = None
    memory_bytes: int | None = None

    def prefix(self) -> list[str]:
        """Return the words before a command that set the limits. Raises SandboxError without prlimit of util-linux."""
        values = {"nproc": self.processes, "nofile": self.open_files, "as": self.memory_bytes}
        words = [f"--{name}={value}" for name, value in values.items() if value is not None]
        program = shutil.which("prlimit", path="/usr/bin:/bin") if words else None
        if words and program is None:
            raise SandboxError("its limits need prlimit of util-linux, which is not installed")
        return [] if program is None else [program, *words, "--"]


@dataclass(frozen=True, slots=True)
class ProcessSandbox:
    """The rules of the sandbox of one start. It holds nothing open."""

    abi: int
    """The version of Landlock."""
    folders: Sequence[Path]
    """Its own folders, which it may write; the first has its temporary files. They are created."""
    read: Sequence[str]
    write: Sequence[str]
    """The paths of the settings, absolute ones."""
    ports: Sequence[int]
    private: Sequence[str]
    """Files and folders without symbolic links in their paths, which no rule may hold."""
    quota: ProcessQuota = ProcessQuota()

    def prepare(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str
    ) -> tuple[list[str], int]:
        """Return the command with its limits, and the descriptor of its ruleset, which the caller closes.

        Blocks, mostly for less than a millisecond.

        Raises:
            SandboxError: A path of the settings cannot be had, or a limit cannot be set.
            OSError: The program does not exist.
        """
        prefix, path = self.quota.prefix(), env.get("PATH", os.defpath)
        if prefix:
            require_program(command[0], path, cwd)
        ruleset = create_ruleset(self.abi)
        try:
            self._add_rules(ruleset, command, path, cwd)
            if self.abi >= PORTS_ABI:
                for port in {*self.ports, *_proxy_ports(env)}:
                    allow_port(ruleset, port)
        except BaseException:
            os.close(ruleset)
            raise
        return [*prefix, *command], ruleset

    def _add_rules(self, ruleset: int, command: Sequence[str], path: str, cwd: str) -> None:
        everything = all_rights(self.abi)
        for folder in self.folders:
            private_folder(folder)
            allow_path(ruleset, str(folder), everything)
        _link_temporary(self.folders[0])
        for device in DEVICES:
            with suppress(OSError):
                allow_path(ruleset, device, (READ_FILE | WRITE_FILE | IOCTL_DEV) & everything)
        writable = [*map(str, self.folders), *self.write]
        own = _readable(_installations(command, path, cwd, writable), self.private)
        for part in own | _readable_system(tuple(self.private)):
            with suppress(OSError):
                allow_path(ruleset, part, _READ)
        for option, paths, rights in (
            ("read", self.read, _READ),
            ("write", self.write, everything),
        ):
            for path in paths:
                self._allow_setting(ruleset, option, path, rights)

    def _allow_setting(self, ruleset: int, option: str, path: str, rights: int) -> None:
        if any(holds(each, path) for each in self.write if each != path):
            # The rule of that folder holds it. A link, which the program may have made, would lead out of it.
            return
        real = os.path.realpath(path)
        if any(holds(each, real) or holds(real, each) for each in self.private):
            problem = "would let it see files of Statehold itself; choose another folder"
            raise SandboxError(f"sandbox.{option}: {path} {problem}")
        try:
            allow_path(ruleset, path, rights)
        except OSError as error:
            problem = f"cannot be opened ({error.strerror}); correct it"
            raise SandboxError(f"sandbox.{option}: {path} {problem}") from error


def _link_temporary(folder: Path) -> None:
    """Create the folder for temporary files, and its link where no other user sees it: its target has the session's id."""
    private_folder(folder / "tmp")
    link = temporary_link(folder)
    private_folder(link.parent)
    found = link.parent.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SandboxError(f"{link.parent} belongs to another user; remove it")
    with suppress(FileExistsError):
        link.symlink_to(folder / "tmp")


def missing_features(abi: int) -> list[str]:
    """Return what the sandbox leaves open with a version of Landlock, in words."""
    if abi < 1:
        return ["files (Landlock)"]
    later = {"TCP ports (Linux 6.7)": PORTS_ABI, "signals (Linux 6.12)": SCOPES_ABI}
    return [feature for feature, first in later.items() if abi < first]


def holds(folder: str, path: str) -> bool:
    """Return whether a path is a folder, or lies below it. Both are absolute and normal."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


@functools.lru_cache(maxsize=16)
def _readable_system(private: Sequence[str]) -> set[str]:
    """Return the parts of SYSTEM that a process may read, as they were at the first start of one."""
    return _readable(SYSTEM, private)


def _readable(paths: Iterable[str], private: Sequence[str]) -> set[str]:
    real = {os.path.realpath(path) for path in paths}
    return {part for path in real if os.path.exists(path) for part in _without(path, private)}


def _without(path: str, private: Sequence[str]) -> Generator[str]:
    """Yield a path without symbolic links, or the parts of it that neither are private nor hold something private."""
    if any(holds(each, path) for each in private):
        return
    if not any(holds(path, each) for each in private):
        yield path
        return
    with suppress(OSError):
        for entry in os.scandir(path):
            # A link could lead anywhere; its target has a rule of its own, or none.
            if not entry.is_symlink():
                yield from _without(entry.path, private)


def _installations(
    command: Sequence[str], path: str, cwd: str, writable: Sequence[str]
) -> Generator[str]:
    """Yield the folders and files that a command needs: where it is installed, and its scripts. `path` is its PATH."""
    if not _is_wide(Path(cwd)) and not any(holds(each, cwd) for each in writable):
        yield cwd
    if command[0] == sys.executable:
        # The servers that come with Statehold; in an editable install it is not below its interpreter.
        yield str(Path(__file__).parents[2])
    for program in (command[0], *_RUNTIMES):
        name = os.path.join(cwd, program) if os.sep in program else program
        for hop in _hops(shutil.which(name, path=path), writable):
            yield from _installation(hop)
    for argument in command[1:]:
        file = os.path.join(cwd, argument)
        for hop in _hops(file if os.path.isfile(file) else None, writable):
            is_script = hop.endswith(_SCRIPTS) or "node_modules" in hop
            yield from _installation(hop) if is_script else [hop]


def _hops(path: str | None, writable: Sequence[str]) -> Generator[str]:
    """Yield a path, the targets of its symbolic links, and at last the path without links.

    It ends at a folder that the program may write: a link there could lead it to any file.
    """
    for _ in range(8):
        if path is None or any(holds(each, os.path.normpath(path)) for each in writable):
            return
        yield path
        if not os.path.islink(path):
            yield os.path.realpath(path)
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


@functools.lru_cache(maxsize=64)
def _installation(path: str) -> Sequence[str]:
    """Return what is installed with a program: its node_modules, the prefix of its bin, its folder, or only itself.

    As it was at the first start of one.
    """
    program = Path(path)
    if "node_modules" in program.parts:
        end = program.parts.index("node_modules") + 1
        return [str(Path(*program.parts[:end]))]
    folder, prefix = program.parent, program.parent.parent
    if folder.name in _BIN:
        if prefix.name == ".local":
            return [str(folder), str(prefix / "lib")]
        # Others, such as ~/.cargo, hold programs without libraries, and may hold secrets.
        if (prefix / "lib").is_dir() or (prefix / "libexec").is_dir():
            return [str(folder if _is_wide(prefix) else prefix)]
    return [str(program if _is_wide(folder) else folder)]


def _is_wide(folder: Path) -> bool:
    """Return whether a folder holds more than one installation: the home folder, and each at the root."""
    return len(folder.parts) < 3 or Path.home().is_relative_to(folder)


def _proxy_ports(env: Mapping[str, str]) -> Generator[int]:
    """Yield the ports of the proxies through which the program reaches the network."""
    for name, value in env.items():
        if name.lower() in _PROXIES and value:
            port = _PORT.search(value)
            default = 443 if value.startswith("https:") else 80
            yield default if port is None else min(int(port[1]), 65_535)
