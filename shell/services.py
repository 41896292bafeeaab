"""`statehold services`: lists the configured services and checks whether they start."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import anyio

from ..access.config.types import ConfigError
from ..server.config.model import Config, ServiceConfig
from ..server.exit_codes import FAILURE, OK
from ..server.gateway.names import configured_renames
from ..server.gateway.services import service_of
from ..server.gateway.stores import store_of
from ..server.printing import complain
from ..sessions.calls.approval import unused_patterns
from ..sessions.clock import SystemClock
from ..sessions.errors import SessionError, StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.one_line import one_line
from ..tools.browser.config import BrowserConfig
from ..tools.logins.audit import LoginAudit
from ..tools.logins.keys import Keys
from ..tools.processes.ledger import Ledger
from ..tools.upstream.config import UnusableConfig, UpstreamConfig
from ..tools.upstream.identity import transport_of
from ..tools.upstream.known_secrets import Secrets
from ..tools.upstream.service import UpstreamService
from ..tools.upstream.shared_connections import describe_sharing
from .accept import accept
from .output import say, say_json, table
from .parser import CommandLine

if TYPE_CHECKING:
    from ..server.gateway.services import AnyService
    from ..sessions.services import ApprovalRule, ToolSpec
    from ..tools.upstream.probe import Check

_PARALLEL_CHECKS = 4


def run(config: Config, arguments: CommandLine) -> int:
    """Run one action and return its exit code."""
    if not config.services:
        for note in config.notes:
            complain(note)
        complain("no services are configured; add [services.NAME] to --config, or give --services")
    if arguments.action == "list":
        return _list(config, json=arguments.json)
    if arguments.action == "accept":
        return accept(config, arguments)
    return _check(config, arguments)


def _list(config: Config, *, json: bool) -> int:
    services = [_describe(name, service) for name, service in config.services.items()]
    if json:
        say_json({"services": services})
    elif services:
        head = ("NAME", "TRANSPORT", "TARGET", "PREFIX", "SCOPE", "PAUSE", "CONNECT", "")
        keys = ("name", "transport", "target", "prefix", "scope", "pause", "connect")
        say(
            table(
                head,
                [
                    (*(service[key] for key in keys), service["problem"] or _state(service))
                    for service in services
                ],
            )
        )
    return OK


def _state(service: JSON) -> str:
    return "disabled" if service["disabled"] else ""


def _describe(name: str, service: ServiceConfig) -> JSON:
    """Return the settings of a service without secrets: only the names in its environment and headers."""
    if isinstance(service, BrowserConfig):
        return _describe_browser(name, service)

    target = " ".join([service.command, *service.args]) if service.command else service.url or ""
    return {
        "name": name,
        "transport": transport_of(service),
        "target": Secrets.of(service).redact(target),
        "env": sorted(service.env),
        "headers": sorted(service.headers),
        "prefix": service.prefix,
        "scope": service.scope,
        "pause": service.pause or ("snapshot" if service.recipe else "keep"),
        "connect": service.connect,
        "disabled": service.disabled,
        "problem": service.problem if isinstance(service, UnusableConfig) else None,
    }


def _describe_browser(name: str, service: BrowserConfig) -> JSON:
    """Return the settings of a browser service without secrets: the address of a remote browser may hold a key."""
    return {
        "name": name,
        "transport": "browser",
        "target": service.place,
        "env": [],
        "headers": sorted(service.cdp_headers),
        "prefix": service.prefix,
        "scope": "session",
        "pause": "snapshot",
        "connect": service.connect,
        "disabled": service.disabled,
        "problem": None,
    }


def _check(config: Config, arguments: CommandLine) -> int:
    services = config.enabled_services()
    for name in arguments.names:
        if name not in services:
            names = ", ".join(services) or "none"
            raise ConfigError(f"{name}: is not an enabled service; there are: {names}")
    if arguments.names:
        services = {name: services[name] for name in arguments.names}
    checks = anyio.run(check_all, config, services)
    if arguments.json:
        say_json({"services": [asdict(check) for check in checks], "notes": list(config.notes)})
    elif checks:
        head = ("NAME", "", "TRANSPORT", "PROTOCOL", "BECAUSE", "SERVER", "TOOLS", "TOOK", "ERROR")
        say(table(head, [_row(check) for check in checks]))
        for check in checks:
            for line in (check.renamed, check.shared, check.unapproved):
                if line is not None:
                    say(one_line(f"{check.service}: {line}"))
        for note in config.notes:
            say(one_line(note))
    return OK if all(check.ok for check in checks) else FAILURE


async def check_all(
    config: Config, services: Mapping[str, ServiceConfig], *, sharing: bool = True
) -> list[Check]:
    """Start the services, a few at a time. Their working folders are temporary."""
    checks: dict[str, Check] = {}
    tools: dict[str, Sequence[ToolSpec]] = {}
    prompts: dict[str, Sequence[JSON]] = {}
    lines: dict[str, dict[str, str | None]] = {}
    slots = anyio.Semaphore(_PARALLEL_CHECKS)
    ledger = Ledger(None)
    without_data = config.model_copy(update={"ephemeral": True})

    async def check(name: str, service: ServiceConfig, keys: Keys | None) -> None:
        async with slots:
            built_service = service_of(
                name, service, without_data, ledger, has_local_callers=True, keys=keys
            )
            checks[name] = await built_service.check()
            if checks[name].ok:
                tools[name] = await built_service.tools()
                prompts[name] = built_service.prompts
                shared = await _describe_sharing(built_service) if sharing else None
                unapproved = _describe_unused(service.approve, tools[name])
                lines[name] = {"shared": shared, "unapproved": unapproved}

    try:
        async with _opened_keys(config, services) as keys, anyio.create_task_group() as tasks:
            for name, service in services.items():
                tasks.start_soon(check, name, service, keys)
    finally:
        with anyio.CancelScope(shield=True):
            await ledger.aclose()
    renames = configured_renames(config, tools, prompts)
    return [
        replace(checks[name], renamed=renames.get(name), **lines.get(name, {})) for name in services
    ]


@asynccontextmanager
async def _opened_keys(
    config: Config, services: Mapping[str, ServiceConfig]
) -> AsyncGenerator[Keys | None]:
    """Yield the keys of the operator; None if no service needs one, or the store cannot be opened."""
    keys: Keys | None = None
    async with AsyncExitStack() as stack:
        upstreams = (each for each in services.values() if isinstance(each, UpstreamConfig))
        if any(each.key_names for each in upstreams):
            with suppress(StoreUnavailable):
                store = await stack.enter_async_context(store_of(config))
                clock = SystemClock()
                keys = Keys(config.logins, store, clock, LoginAudit(None, clock))
        yield keys


async def _describe_sharing(service: AnyService) -> str | None:
    """Return a line about what two sessions of a service share, None if nothing is known."""
    if not isinstance(service, UpstreamService):
        return None
    try:
        return await describe_sharing(service)
    except SessionError as error:
        return f"it did not start again: {error.message}"


def _describe_unused(rule: ApprovalRule, tools: Sequence[ToolSpec]) -> str | None:
    """Return a line about the patterns of `approve` that name no tool, None if there are none."""
    unused = ", ".join(unused_patterns(rule, (spec.name for spec in tools)))
    return f"no tool is named by {unused} in `approve`, so no person is asked" if unused else None


def _row(check: Check) -> tuple[Any, ...]:
    server = f"{check.server.get('name', '')} {check.server.get('version', '')}".strip()
    return (
        check.service,
        "ok" if check.ok else "fail",
        check.transport,
        check.protocol_version,
        check.era_reason,
        server,
        check.tools if check.ok else None,
        f"{check.seconds:.1f} s",
        check.error,
    )
