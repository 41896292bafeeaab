"""Skills outside of sessions (SEP-2640): those of the services, and our own one.

The address of a file of a skill is that of skill_uri() in uris.py. Contents stay as they are, so that the digests of
their server hold.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, ValidationError, model_validator

from ...sessions.errors import SessionError, SessionLimit
from ...sessions.json_codec import JSON
from ...sessions.live.budget import Budget
from ...sessions.records import Principal
from ...tools.catalog import SERVICE_META
from ...tools.upstream.connection import UpstreamConnection
from ...tools.upstream.errors import UpstreamRefused
from ...tools.upstream.probe import Profile, list_items
from ...tools.upstream.service import UpstreamService
from .gateway import STEADY_MS, Gateway
from .uris import SKILL_SCHEME, address_contents, parse_skill_uri, skill_uri

logger = logging.getLogger("statehold.server")

SKILLS: Final = "io.modelcontextprotocol/skills"
OWN_URI: Final = "skill://statehold/SKILL.md"
MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 2**20
"""The limits of one skill (SEP-2640, Limits)."""
MAX_WAITING: Final = 256
"""Requests that may wait for one service, of which each principal has a share."""
PROBLEM_SECONDS: Final = 5.0
"""Seconds until a service that failed is asked for its skills again."""

_NOTE: Final = "Tools in this skill have their server's names; they may have a prefix here."
_FILE: Final = "SKILL.md"


class _File(BaseModel):
    uri: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0, strict=True)


class _Skill(BaseModel):
    """An entry that every host accepts: a host may refuse a whole list with a malformed one."""

    uri: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*://.+/SKILL\.md$")
    frontmatter: dict[str, Any]
    resources: Annotated[list[_File], Field(max_length=MAX_FILES)] | Literal["dynamic"]
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")

    @model_validator(mode="after")
    def _check(self) -> Self:
        files = [] if self.resources == "dynamic" else self.resources
        if sum(file.size for file in files) > MAX_BYTES:
            raise ValueError(f"its files have more than {MAX_BYTES} bytes")
        if not all(file.uri.startswith(self.uri.removesuffix(_FILE)) for file in files):
            raise ValueError("a file is outside of its folder")
        if not all(isinstance(self.frontmatter.get(key), str) for key in ("name", "description")):
            raise ValueError("it has no name or no description")
        return self


class Skills:
    """The skills of the services of one gateway, for callers whose address stands for several servers.

    A list is kept as long as its service says, at most as long as our other lists. A service gets one request at a time,
    over a temporary connection, from its principals in turn.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lists: dict[str, tuple[Profile | None, float, list[JSON]]] = {}
        """The skills that each service listed, with its profile then, and the time until which they are kept."""
        shared = gateway.registry.core.policy.shared
        self._turns = defaultdict[str, Budget](
            lambda: Budget(1, queue=MAX_WAITING, queue_seconds=math.inf, shared=shared)
        )
        content = Path(__file__).with_name(_FILE).read_bytes()
        text = content.decode()
        self._own_file: JSON = {"uri": OWN_URI, "mimeType": "text/markdown", "text": text}
        frontmatter = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
        digest = f"sha256:{sha256(content).hexdigest()}"
        resource = {"uri": OWN_URI, "digest": digest, "size": len(content)}
        self._own_skill = {"uri": OWN_URI, "frontmatter": frontmatter, "resources": [resource]}

    async def list(self, principal: Principal) -> JSON:
        """Return the result of `skills/list`. The skills of a service that fails are left out."""
        await self._gateway.probes.wait_for_lists()
        services = self._services(principal)
        lists: dict[str, list[JSON]] = {}

        async def add(service: UpstreamService) -> None:
            lists[service.name] = await self._list(principal, service)

        async with anyio.create_task_group() as tasks:
            for service in services.values():
                tasks.start_soon(add, service)
        skills = [_address(skill, name) for name in services for skill in lists[name]]
        return {"skills": [self._own_skill, *skills], "ttlMs": 0, "cacheScope": "private"}

    async def get(self, principal: Principal, uri: str) -> JSON:
        """Return the result of `skills/get`.

        Raises:
            MCPError: no skill that may be served has this address.
            SessionError: its service cannot be opened, or refuses the request.
        """
        if uri == OWN_URI:
            return {"skill": self._own_skill, "ttlMs": STEADY_MS, "cacheScope": "private"}
        await self._gateway.probes.wait_for_lists()
        found = self._find(principal, uri)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"No skill is served at {uri:.500}")
        service, own_uri = found
        result = await self._ask(principal, service, "skills/get", uri, own_uri)
        fault = _fault_of(result.get("skill"))
        if fault is not None:
            raise MCPError(types.INVALID_PARAMS, f"The skill at {uri:.500} is refused: {fault}")
        skill = _address(result["skill"], service.name)
        return {"skill": skill, "ttlMs": _ttl_ms(result), "cacheScope": "private"}

    async def read(self, principal: Principal, uri: str) -> JSON | None:
        """Return the result of `resources/read` for a file of a skill, None for any other address. Raises like get()."""
        if uri == OWN_URI:
            return {"contents": [self._own_file]}
        found = self._find(principal, uri)
        if found is None:
            return None
        service, own_uri = found
        if not own_uri.startswith(SKILL_SCHEME):
            # Other schemes have other resources, too, which are read in sessions only.
            listed = await self._list(principal, service)
            folders = [skill["uri"].removesuffix(_FILE) for skill in listed]
            if not own_uri.startswith(tuple(folders)) or ".." in own_uri:
                return None
        result = await self._ask(principal, service, "resources/read", uri, own_uri)
        contents = address_contents(result, own_uri, partial(skill_uri, service.name))
        return {**contents, "cacheScope": "private"}

    def _services(self, principal: Principal) -> Mapping[str, UpstreamService]:
        """Return the services that have skills and that the principal may use."""
        limits = self._gateway.registry.core.limits.of(principal.key)
        return {
            name: service
            for name, service in self._gateway.services.items()
            if isinstance(service, UpstreamService)
            and service.profile is not None
            and SKILLS in service.profile.extensions
            and limits.allows_service(name)
        }

    def _find(self, principal: Principal, uri: str) -> tuple[UpstreamService, str] | None:
        address = parse_skill_uri(uri)
        service = None if address is None else self._services(principal).get(address[0])
        return None if address is None or service is None else (service, address[1])

    async def _list(self, principal: Principal, service: UpstreamService) -> list[JSON]:
        now = self._gateway.registry.core.clock.now

        def find() -> list[JSON] | None:
            profile, ends_at, skills = self._lists.get(service.name, (None, 0.0, []))
            return skills if profile is service.profile and now() < ends_at else None

        skills = find()
        with suppress(SessionLimit):
            if skills is None:
                async with self._turns[service.name].place(principal.key):
                    skills = find()
                    return await self._fetch(service) if skills is None else skills
        return skills or []

    async def _fetch(self, service: UpstreamService) -> list[JSON]:
        try:
            skills, seconds = await service.ask(_list_skills, "list its skills")
        except SessionError as error:
            logger.warning("the skills of %s are left out: %s", service.name, error)
            skills, seconds = [], PROBLEM_SECONDS
        ends_at = self._gateway.registry.core.clock.now() + seconds
        self._lists[service.name] = service.profile, ends_at, skills
        return skills

    async def _ask(
        self, principal: Principal, service: UpstreamService, method: str, uri: str, own_uri: str
    ) -> JSON:
        try:
            async with self._turns[service.name].place(principal.key):
                return await service.request(method, {"uri": own_uri})
        except UpstreamRefused as error:
            if error.data == {"uri": own_uri}:
                error.data = {"uri": uri}
            raise


async def _list_skills(connection: UpstreamConnection) -> tuple[list[JSON], float]:
    """Return the valid skills that a service lists, and the seconds for which they may be kept."""
    pages: list[JSON] = []
    skills: list[JSON] = []
    for skill in await list_items(connection, "skills/list", "skills", pages.append):
        fault = _fault_of(skill)
        if fault is None:
            skills.append(skill)
        else:
            logger.warning("a skill of %s is left out: %s", connection.service, fault)
    return skills, min(map(_ttl_ms, pages), default=0) / 1000


def _fault_of(skill: object) -> str | None:
    try:
        _Skill.model_validate(skill)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    return None


def _ttl_ms(result: JSON) -> int:
    ttl: object = result.get("ttlMs")
    return int(min(max(ttl, 0), STEADY_MS)) if isinstance(ttl, int | float) else 0


def _address(skill: JSON, service: str) -> JSON:
    """Return an entry with the addresses of its files outside of sessions."""
    files: list[JSON] | str = skill["resources"]
    if not isinstance(files, str):
        files = [{**file, "uri": skill_uri(service, file["uri"])} for file in files]
    meta: JSON = {**(skill.get("_meta") or {}), SERVICE_META: service, "statehold/note": _NOTE}
    return {**skill, "uri": skill_uri(service, skill["uri"]), "resources": files, "_meta": meta}
