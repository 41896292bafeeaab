"""The logins at services, websites and keys at the console: each person's own, and never their values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON
from ..sessions.records import LOCAL, Principal
from ..sessions.store.base import LoginRecord, login_id
from ..sessions.times import timestamp
from ..tools.logins import keys
from ..tools.upstream.service import UpstreamService
from .logins import ConsoleUser
from .requests import BrowserLoginBody, KeyBody, LogInBody
from .routes import ApiCall, json_response, not_found, route


class ServiceLoginHandlers:
    """The handlers of the logins of one process. They keep nothing."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @route("GET", "/logins", "List the logins at services, without their values")
    async def service_logins(self, call: ApiCall) -> Response:
        user = call.user
        rows = await self._gateway.store.logins.page(
            None if user.has_role("operator") else user.owner
        )
        own = {row.name for row in rows if row.owner == _owner(user)}
        logins = [await self._describe(row, user) for row in rows]
        sites = await self._gateway.browser_logins.absent_of(user.principal or LOCAL, own)
        new = [self._describe_new("browser", name, "new", user, site=sites[name]) for name in sites]
        return json_response({"logins": [*logins, *new, *self._absent(user, own)]})

    @route(
        "POST", "/logins/keys", "Store a key of yours, in place of an earlier one", rights="control"
    )
    async def add_key(self, call: ApiCall, body: KeyBody) -> Response:
        gateway = self._gateway
        owner = _owner(call.user)
        await gateway.keys.put(owner, body.name, body.value.get_secret_value())
        # Probes use the keys of the operator.
        for service, login in gateway.probes.needed_logins.items():
            if login == body.name and owner == LOCAL.key:
                gateway.registry.spawn(gateway.probes.probe_again, service)
        return json_response({})

    @route(
        "POST",
        "/logins/visits",
        "Get the address at which the user of this machine logs in at a service",
        audience="machine",
        rights="control",
    )
    async def visit_login(self, call: ApiCall, body: LogInBody) -> Response:
        service, visit = self._gateway.services.get(body.service), None
        if isinstance(service, UpstreamService) and service.config.url is not None:
            visit = await self._gateway.logins.visit(LOCAL.key, body.service, service.config)
        if visit is None:
            command = f"statehold logins add {shlex.quote(body.service)}"
            raise InvalidArgument("This process cannot log in there.", recovery=f"Run {command}.")
        return json_response({"address": visit.address})

    @route(
        "POST",
        "/logins/sessions",
        "Open a session in which you log in at the sites of a login of the browser",
        rights="control",
    )
    async def log_in(self, call: ApiCall, body: BrowserLoginBody) -> Response:
        principal = call.user.principal or LOCAL
        session = await self._gateway.browser_logins.log_in(principal, body.login)
        return json_response({"session_id": session})

    @route("DELETE", "/logins/{login_id}", "Forget a login", rights="control")
    async def forget_login(self, call: ApiCall) -> Response:
        row = await self._find(call)
        await self._gateway.logins.audit.admit("forget", row.owner, row.name)
        await self._gateway.store.logins.delete(row.owner, row.name)
        return json_response({})

    @route(
        "POST",
        "/logins/{login_id}/take-back",
        "Have the session that has a login give it back",
        rights="control",
    )
    async def take_back_login(self, call: ApiCall) -> Response:
        row = await self._find(call)
        await self._gateway.logins.audit.admit("take-back", row.owner, row.name)
        await self._gateway.store.logins.take_back(row.owner, row.name)
        return json_response({})

    async def _find(self, call: ApiCall) -> LoginRecord:
        """Return a login that the user may change.

        Raises:
            ApiError: there is none.
        """
        for row in await self._gateway.store.logins.page(call.user.owner):
            if login_id(row.owner, row.name) == call.parameter("login_id"):
                return row
        raise not_found()

    async def _describe(self, row: LoginRecord, user: ConsoleUser) -> JSON:
        is_visible = user.owner in (None, row.owner)
        services = [name for name, needed in self._needs() if row.name in needed]
        actions: list[str] = []
        if is_visible and user.rights == "control":
            held = ["take_back"] if row.session else []
            actions = [*self._renewals(row.kind, row.name, row.owner, user), *held, "forget"]
        return {
            "id": login_id(row.owner, row.name),
            "name": row.name,
            "kind": row.kind,
            "owner": None if row.owner == _owner(user) else Principal.of_key(row.owner).words,
            "site": row.site,
            "services": [row.name] if row.kind == "oauth" else services,
            "state": row.state,
            "reason": row.reason or None,
            "since": timestamp(row.since),
            "used_at": _timestamp(row.used_at),
            "expires_at": _timestamp(row.expires_at),
            "session": await self._describe_session(row.session, user) if row.session else None,
            "actions": actions,
            "command": _command(row.kind, row.name, row.owner),
        }

    async def _describe_session(self, session_id: str, user: ConsoleUser) -> JSON:
        """Return the session that has a login: its name only for a user who may see it."""
        record = await self._gateway.store.get(session_id)
        if record is None or not user.may_see(record):
            return {"session_id": session_id, "name": None, "owner": None, "is_visible": False}
        owner = None if record.owner == _owner(user) else Principal.of_key(record.owner).words
        return {
            "session_id": session_id,
            "name": record.name,
            "owner": owner,
            "is_visible": True,
        }

    def _absent(self, user: ConsoleUser, own: Iterable[str]) -> Iterator[JSON]:
        """Yield the keys that services need and the user lacks, and the logins that unavailable services need."""
        missing = {name: [service] for service, name in self._gateway.probes.needed_logins.items()}
        kinds = dict.fromkeys(missing, "oauth")
        for service, needed in self._needs():
            for name in needed:
                kinds[name] = keys.KIND
                if service not in missing.setdefault(name, []):
                    missing[name].append(service)
        for name, services in missing.items():
            if name not in own and name not in self._gateway.config.logins:
                yield self._describe_new(kinds[name], name, "absent", user, services=services)

    def _describe_new(
        self,
        kind: str,
        name: str,
        state: str,
        user: ConsoleUser,
        *,
        site: str = "",
        services: Sequence[str] = (),
    ) -> JSON:
        """Return a login of a user that has no row yet."""
        owner, is_able = _owner(user), user.rights == "control"
        return {
            "id": login_id(owner, name),
            "name": name,
            "kind": kind,
            "owner": None,
            "site": site,
            "services": services,
            "state": state,
            "actions": self._renewals(kind, name, owner, user) if is_able else [],
            "command": _command(kind, name, owner),
        }

    def _needs(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each service with the keys in its settings."""
        for name, service in self._gateway.services.items():
            if isinstance(service, UpstreamService):
                yield name, service.config.key_names

    def _renewals(self, kind: str, name: str, owner: str, user: ConsoleUser) -> list[str]:
        """Return what gives a login a new value here; else its person needs the command."""
        if kind == keys.KIND:
            return ["add_key"] if owner == _owner(user) else []
        if kind == "browser":
            is_own = owner == _owner(user) and name in self._gateway.browser_logins
            return ["log_in"] if is_own else []
        can_visit = user.is_machine_user and owner == LOCAL.key and self._gateway.logins.spawn
        return ["log_in"] if kind == "oauth" and can_visit else []


def _owner(user: ConsoleUser) -> str:
    """Return whose logins a user adds."""
    return (user.principal or LOCAL).key


def _timestamp(at: float | None) -> str | None:
    return None if at is None else timestamp(at)


def _command(kind: str, name: str, owner: str) -> str:
    principal = Principal.of_key(owner)
    words = ["statehold", "logins", "add", name, *(["--key"] if kind == keys.KIND else [])]
    if principal != LOCAL:
        words += ["--subject", principal.subject]
        words += ["--issuer", principal.issuer] if principal.issuer else []
    return shlex.join(words)
