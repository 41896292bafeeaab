"""The port of `/metrics`: apart from that of the callers, since a scraper has no token of a principal."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...access.config.types import ConfigError
from ..cluster import tcp
from ..gateway.gateway import Gateway
from ..http.host_check import HostCheck
from ..operate.metrics import metrics_page
from .http_server import HttpServer, plain_config

logger = logging.getLogger("statehold.server")


@asynccontextmanager
async def metrics_port(gateway: Gateway, number: int = 0) -> AsyncGenerator[None]:
    """Serve `/metrics` while the block runs, unless `metrics.listen` is empty. `number` is that of the worker.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    config = gateway.config
    if not config.metrics.listen:
        yield
        return
    try:
        host, port = tcp.split_address(config.metrics.listen)
        listener = await tcp.listen(host, port + number if port else 0)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"metrics.listen: {config.metrics.listen} cannot be used: {reason}"
        ) from None

    async def answer(request: Request) -> Response:
        return await metrics_page(gateway)

    with listener:
        # No page of a session may reach it.
        gateway.own_ports.add(listener.getsockname()[1])
        routes = Starlette(routes=[Route("/metrics", answer, methods=["GET"])])
        app = HostCheck(routes, hosts=[host, *config.server.allowed_hosts], origins=[])
        server = HttpServer(plain_config(app, config.http))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            await server.accepts.wait()
            logger.info(
                "metrics at http://%s/metrics", tcp.join_address(*listener.getsockname()[:2])
            )
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
