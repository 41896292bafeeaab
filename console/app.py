"""The console of one process: its routes, and the checks in front of their handlers."""

from __future__ import annotations

import hmac
import json
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from ..access.audit.recorder import OpenRequest, user_name
from ..access.refusals import Backoff, RefusalLog
from ..access.verifier import Verifier
from ..server.gateway.gateway import Gateway
from ..server.http.exchange import read_body
from ..server.operate.handler import OperatorHandler
from ..server.sockets.request import Refused
from ..sessions.errors import InvalidArgument, SessionError, StoreUnavailable
from ..sessions.principals.audit_log import AuditEvent
from .actions import OperatorSessions, SessionActions
from .approvals import ApprovalHandlers
from .login_handlers import LoginHandlers
from .logins import GUEST, LOGIN, ConsoleUser, Login, Logins, Rights, stranger
from .owner_calls import OwnerCalls
from .page import PAGE, BrowserRoute, SecurityHeaders, embedded_page, page_routes, redirect_to_page
from .port import ConsolePort
from .requests import ApiModel, NoQuery
from .routes import (
    ANYONE,
    PREFIX,
    ROUTES,
    ApiCall,
    ApiError,
    ApiRoute,
    Handler,
    error_response,
    login_required,
    not_allowed,
    not_found,
    routes_of,
)
from .screen import ScreenHandlers
from .server_documents import ServerDocuments
from .service_changes import ServiceChanges
from .service_logins import ServiceLoginHandlers
from .session_documents import ConsoleSessions
from .sharing import LinkJournal, ShareHandlers
from .state_documents import StateDocuments
from .streams import EventHandlers

if TYPE_CHECKING:
    from .account_login import AccountLogin

ID_CHARACTERS: Final = 128
UNRECORDED: Final = frozenset(
    {"login", "login_ways", "logout", "me", "openapi", "events", "input", "act_renew"}
)
"""Routes that record themselves, or that an open page uses all the time: taking control and handing it back are recorded."""
RIGHTS: Final[tuple[Rights, ...]] = get_args(Rights)
M = TypeVar("M", bound=ApiModel)

logger = logging.getLogger("statehold.server")


class Console:
    """The console over one gateway. It lives as long as the process.

    `verifier` checks the tokens with which a person can log in; without it, only codes are accepted. `clock` returns
    seconds since 1970.
    """

    def __init__(
        self,
        gateway: Gateway,
        verifier: Verifier | None = None,
        *,
        clock: Callable[[], float] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        machine_user = ConsoleUser(f"{user_name()} at the console")
        tokens = None if verifier is None else verifier.static
        is_valid = None if tokens is None else tokens.is_valid_digest
        self.logins = Logins(
            gateway.store, gateway.registry, machine_user, clock=clock, is_valid=is_valid
        )
        self._gateway = gateway
        config = gateway.config
        self._embed_origins = config.server.embed_origins
        self._origins = {origin.lower() for origin in config.server.allowed_origins}
        data = None if config.ephemeral else config.data
        run = OperatorHandler(gateway.registry, gateway.store, gateway.describe_services, data=data)
        calls = OwnerCalls(gateway, run)
        sessions = ConsoleSessions(gateway, calls)
        links = LinkJournal(sessions, calls)
        self._audit = audit = gateway.audit
        self._refusals = RefusalLog()
        backoff = backoff or (Backoff() if verifier is None else verifier.backoff)
        self._account: AccountLogin | None = None
        if verifier is not None and config.auth.console.enabled:
            # Imported here: a process without issuers needs neither PyJWT nor cryptography.
            from .account_login import AccountLogin

            page = f"{config.server.public_url}{PAGE}"
            self._account = AccountLogin(
                config.auth, page, self.logins, backoff, audit, verifier.record_caller
            )
        handlers = [
            LoginHandlers(
                logins=self.logins,
                verifier=verifier,
                backoff=backoff,
                links=links,
                audit=audit,
                server=config.server,
                browsers=list(config.browsers()),
                account=self._account,
            ),
            sessions,
            StateDocuments(sessions, gateway.store),
            SessionActions(sessions, calls),
            ScreenHandlers(gateway, sessions, calls, self.logins),
            ServerDocuments(gateway),
            ServiceLoginHandlers(gateway),
            ServiceChanges(gateway),
            ApprovalHandlers(gateway),
            ShareHandlers(gateway, sessions, calls, self.logins, links),
            OperatorSessions(gateway, sessions, calls),
            EventHandlers(gateway, sessions, calls, self.logins),
        ]
        self._handlers: dict[ApiRoute, Handler] = {
            route: getattr(each, name) for each in handlers for route, name in routes_of(type(each))
        }

    def is_in_use(self) -> bool:
        """Whether a person has the page open."""
        return self.logins.is_in_use()

    def port(self, listener: socket.socket | None = None) -> ConsolePort:
        """Return the address of the console; see ConsolePort."""
        return ConsolePort(self.routes(), self.logins, self._gateway, listener)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the console and its API, for an HTTP application that checks Host and Origin."""
        api = Router(
            [self._route(route) for route in ROUTES],
            redirect_slashes=False,
            default=_unknown,
        )
        login = [] if self._account is None else self._account.routes()
        page = Router([*login, *page_routes()], redirect_slashes=False, default=_unknown)
        return [
            Mount(PREFIX, app=SecurityHeaders(api)),
            BrowserRoute("/", endpoint=SecurityHeaders(redirect_to_page), methods=["GET"]),
            Route(PAGE, endpoint=SecurityHeaders(redirect_to_page), methods=["GET"]),
            Route(
                f"{PAGE}/embed.html",
                endpoint=SecurityHeaders(embedded_page, self._embed_origins),
                methods=["GET"],
            ),
            Mount(PAGE, app=SecurityHeaders(page)),
        ]

    def _route(self, route: ApiRoute) -> Route:
        served = Route(
            route.path, partial(self._answer, route, self._handlers[route]), methods=[route.method]
        )
        # An answer without its body would still follow the events.
        served.methods = {route.method}
        return served

    async def _answer(self, route: ApiRoute, handler: Handler, request: Request) -> Response:
        address = request.client.host if request.client else ""
        session_id: str | None = request.path_params.get("session_id")
        if session_id is not None:
            # No id is longer; the log has no room for what a stranger writes.
            session_id = session_id[:ID_CHARACTERS]
        record: OpenRequest | None = None
        login: Login | None = None
        outcome, is_admitted = "error", False
        is_read = route.method == "GET"
        try:
            login, csrfs = await self._find_login(request, session_id)
            call = self._check(route, request, login, csrfs)
            models = await _read_models(route, request)
            if route.name not in UNRECORDED:
                actor, operation = call.user.actor(address), f"console/{route.name}"
                if is_read:
                    await self._audit.admit_read(actor, operation, session_id)
                else:
                    record = await self._audit.admit(actor, operation, session_id)
            is_admitted = True
            response = await handler(call, **models)
            outcome = "ok"
            return response
        except (ApiError, SessionError, Refused) as error:
            outcome = error.code
            if not is_admitted:
                self._record_refusal(route, outcome, login, session_id, address)
            elif is_read and login is not None and session_id is not None:
                # A read that was admitted found nothing that its user may see.
                self._audit.refuse_read(
                    login.user.actor(address), f"console/{route.name}", session_id, outcome
                )
            return error_response(error)
        except StoreUnavailable as error:
            return error_response(error)
        except Exception:
            logger.exception("a request to the console failed")
            return error_response(ApiError("internal", "It failed.", "See the log of the server."))
        finally:
            if record is not None:
                record.end(outcome)

    async def _find_login(
        self, request: Request, session_id: str | None
    ) -> tuple[Login | None, list[str]]:
        """Return the login of a request, and the CSRF tokens that a page of this browser may have.

        That of a link counts for its session, and for everything if it is the only one. That of a frame comes in a header.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if self._embed_origins and scheme.lower() == "bearer":
            embedded = await self.logins.find(secret)
            if embedded is not None and embedded.user.rights == "embed":
                return embedded, []
        login = await self.logins.find(request.cookies.get(LOGIN, ""))
        cookie = request.cookies.get(GUEST)
        guest = await self.logins.find(cookie) if cookie else None
        if guest is not None and not guest.user.is_guest:
            guest = None
        csrfs = [each.csrf for each in (login, guest) if each is not None]
        is_guest = guest is not None and (login is None or guest.user.session_id == session_id)
        return (guest if is_guest else login), csrfs

    def _record_refusal(
        self,
        route: ApiRoute,
        code: str,
        login: Login | None,
        session_id: str | None,
        address: str,
    ) -> None:
        actor = stranger(address) if login is None else login.user.actor(address)
        who = "" if login is None else f" of {actor.name} ({actor.principal.words})"
        self._refusals.add(f"console: {code}", address, f"for {route.name}{who}")
        self._audit.record(
            AuditEvent.REFUSAL, actor, f"console/{route.name}", code, session_id=session_id
        )

    def _check(
        self, route: ApiRoute, request: Request, login: Login | None, csrfs: Sequence[str]
    ) -> ApiCall:
        """Return a request that may be answered.

        Raises:
            ApiError: it may not.
        """
        if route.method != "GET":
            self._check_origin(request)
        if route.audience == "anyone":
            user = ANYONE if login is None else login.user
        else:
            if login is None:
                raise login_required()
            _check_login(route, request, login, csrfs)
            user = login.user
        return ApiCall(route, request, user, login)

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        scheme, _, host = origin.lower().partition("://")
        if scheme not in ("http", "https") or host != request.headers.get("host", "").lower():
            raise ApiError("csrf", "This page may not do that.", "Open the console itself.")


def _check_login(route: ApiRoute, request: Request, login: Login, csrfs: Sequence[str]) -> None:
    token = request.headers.get("x-csrf-token", "").encode()
    is_ours = any(hmac.compare_digest(token, csrf.encode()) for csrf in csrfs)
    if route.method != "GET" and not is_ours:
        raise ApiError(
            "csrf", "The header X-CSRF-Token is missing or wrong.", "Read it from GET /api/v1/me."
        )
    user = login.user
    if route.audience == "machine" and not user.is_machine_user:
        raise not_allowed("Only the user of the machine may see this.")
    if route.audience == "member" and user.is_guest:
        raise not_allowed("A link does not include this.")
    if not user.has_role(route.role):
        raise not_allowed(f"This needs the role {route.role}.")
    if RIGHTS.index(user.rights) < RIGHTS.index(route.rights):
        raise not_allowed("This login may look only.")


async def _read_models(route: ApiRoute, request: Request) -> dict[str, ApiModel]:
    """Return the query and the body of a request, if its handler takes them.

    Raises:
        ApiError, InvalidArgument: one does not fit its model.
    """
    query = _parse(route.query or NoQuery, dict(request.query_params))
    models = {} if route.query is None else {"query": query}
    if route.body is not None:
        models["body"] = _parse(route.body, await _read_json(request, route))
    return models


async def _read_json(request: Request, route: ApiRoute) -> object:
    """Return the JSON of a body, an empty object for none.

    Raises:
        ApiError: it is too large, or is no JSON.
    """
    body, _ = await read_body(request.receive)
    if body is None or len(body) > route.body_bytes:
        raise ApiError("too_large", "The body is too large.", "Send less.")
    if not body:
        return {}
    try:
        # A form of another page cannot have this type.
        if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
            return json.loads(body)
    except (ValueError, RecursionError):
        pass
    raise InvalidArgument("The body should be JSON, with content-type: application/json.")


def _parse(model: type[M], members: object) -> M:
    """Read a query or a body.

    Raises:
        InvalidArgument: it does not fit its model.
    """
    try:
        return model.model_validate(members)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "body"
        raise InvalidArgument(f"{location}: {first['msg'].lower()}.") from None


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    await error_response(not_found())(scope, receive, send)
