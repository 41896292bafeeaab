"""`statehold doctor`: checks of the installation and the data, with a remedy for each problem.

Changes nothing, except that it installs a missing browser with consent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from ...config.load import load_for
from ...config.model import Config, ConfigError
from ..command_line import CommandLine
from ..exit_codes import FAILURE, OK
from ..output import say, say_json, table
from .finding import Finding

Check = Callable[[Config], Iterator[Finding]]


def run(arguments: CommandLine) -> int:
    """Print every finding; the exit code is 1 when one of them is a failure."""
    from .browser import check_browser, install_missing
    from .data import check_children, check_folder, check_store
    from .system import check_files, check_programs, check_python, check_services, check_tool_names

    config, configured = _configuration(arguments)
    checks: list[Check] = [check_python, check_programs]
    if configured.status != "fail":
        checks += [check_services, check_browser, check_tokens, check_files]
    if not config.ephemeral:
        checks += [check_folder, check_store, check_children]
    if configured.status != "fail" and not config.ephemeral:
        checks.append(check_tool_names)
    if configured.status != "fail" and (arguments.install or not arguments.json):
        install_missing(config, consent=arguments.install)
    found = [configured]
    for check in checks:
        found += _guarded(check, config)
    sound = all(finding.status != "fail" for finding in found)
    if arguments.json:
        say_json({"ok": sound, "checks": [asdict(finding) for finding in found]})
    else:
        _print(found)
    return OK if sound else FAILURE


def _guarded(check: Check, config: Config) -> list[Finding]:
    found: list[Finding] = []
    try:
        # One by one: findings before an error are still shown.
        for finding in check(config):
            found.append(finding)  # noqa: PERF402
    except Exception as error:
        name = check.__name__.removeprefix("check_")
        detail = f"could not be checked: {type(error).__name__}: {error}"
        found.append(Finding(name, "fail", detail, "report this"))
    return found


def _configuration(arguments: CommandLine) -> tuple[Config, Finding]:
    try:
        config = load_for(arguments)
    except ConfigError as error:
        problem, _, remedy = str(error).rpartition("; ")
        data = getattr(arguments, "data", None)
        rest = Config(data=Path(data).absolute()) if data else Config()
        return rest, Finding("configuration", "fail", problem or remedy, remedy if problem else "")
    services = len(config.enabled_services())
    detail = f"{services} service{'' if services == 1 else 's'}"
    if services == 0:
        remedy = "add [services.NAME] to the file of --config, or give --services FILE"
        return config, Finding("configuration", "warn", "no services", remedy)
    return config, Finding("configuration", "ok", detail)


def check_tokens(config: Config) -> Iterator[Finding]:
    """Read the token file, if there is one."""
    from ...auth.tokens import StaticTokens

    if config.server.tokens is None:
        return
    try:
        count = len(StaticTokens.read(config.server.tokens))
    except ConfigError as error:
        problem, _, remedy = str(error).rpartition("; ")
        yield Finding("tokens", "fail", problem, remedy)
    else:
        yield Finding("tokens", "ok", f"{count} in {config.server.tokens}")


def _print(found: list[Finding]) -> None:
    rows = [(finding.status, finding.name, finding.detail) for finding in found]
    say(table(("", "WHAT", "FOUND"), rows))
    wrong = [finding for finding in found if finding.status != "ok" and finding.remedy]
    if wrong:
        say("\nwhat to do:")
    for finding in wrong:
        say(f"  {finding.name}: {finding.remedy}")
    failed = sum(finding.status == "fail" for finding in found)
    say(f"\n{failed} wrong" if failed else "\nnothing is wrong")
