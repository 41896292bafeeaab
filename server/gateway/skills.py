"""Skills outside of sessions (SEP-2640): those of the services, and our own one.

The address of a file of a skill is that of skill_uri() in uris.py. Contents stay as they are, so that the digests of
their server hold.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, ValidationError, model_validator

from ...sessions.errors import SessionError, SessionLimit
from ...sessions.json_codec import JSON, room_left
from ...sessions.live.budget import Budget
from ...sessions.owned_map import OwnedMap
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
QUEUE_SECONDS: Final = 60.0
LIST_SECONDS: Final = 2.0
"""Seconds that a list waits for a service; later ones have its skills."""
PROBLEM_SECONDS: Final = 5.0
"""Seconds until a service that failed is asked for its skills again."""
MAX_ANSWERS: Final = 512
ANSWER_CHARACTERS: Final = 2**16
"""Characters of the largest answer that is kept, a list aside."""

_NOTE: Final = "Tools in this skill have their server's names; they may have a prefix here."
_FILE: Final = "SKILL.md"
_Request: TypeAlias = tuple[str, str, str, str]
"""A service, a method, a URI of the service, empty for a list, and the one principal of the answer, empty for all."""


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


@dataclass(eq=False)
class _Answer:
    """The answer of a service to one request, which all that ask for the same share."""

    profile: Profile | None
    asked_at: float
    result: JSON
    """Until it is done, that of the request before."""
    ends_at: float = math.inf
    done: anyio.Event = field(default_factory=anyio.Event)
    error: SessionError | None = None

    async def wait(self) -> JSON:
        """Return the result. Raises the error of the service."""
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class Skills:
    """The skills of the services of one gateway, for callers whose address stands for several servers.

    A service gets one request at a time, over a temporary connection, from its principals in turn. Its answers are kept
    until it changes, at most as long as it says or our other lists are. A list does not wait for a slow service.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._answers = OwnedMap[_Request, _Answer](MAX_ANSWERS)
        shared = gateway.registry.core.policy.shared
        self._turns = defaultdict[str, Budget](
            lambda: Budget(1, queue=MAX_WAITING, queue_seconds=QUEUE_SECONDS, shared=shared)
        )
        content = Path(__file__).with_name(_FILE).read_bytes()
        text = content.decode()
        self._own_file: JSON = {"uri": OWN_URI, "mimeType": "text/markdown", "text": text}
        frontmatter = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
        digest = f"sha256:{sha256(content).hexdigest()}"
        resource = {"uri": OWN_URI, "digest": digest, "size": len(content)}
        self._own_skill = {"uri": OWN_URI, "frontmatter": frontmatter, "resources": [resource]}

    async def list(self, principal: Principal) -> JSON:
        """Return the result of `skills/list`. A service that fails or did not answer yet is left out."""
        await self._gateway.probes.wait_for_lists()
        services = self._services(principal).values()
        answers = {each.name: await self._ask(principal, each, "skills/list") for each in services}
        for answer in answers.values():
            with anyio.CancelScope(deadline=answer.asked_at + LIST_SECONDS):
                await answer.done.wait()
        skills = [
            _address(skill, name)
            for name, answer in answers.items()
            for skill in answer.result.get("skills", ())
        ]
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
        result = await (await self._ask(principal, service, "skills/get", own_uri)).wait()
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
            listed = await (await self._ask(principal, service, "skills/list")).wait()
            folders = [skill["uri"].removesuffix(_FILE) for skill in listed.get("skills", ())]
            if not own_uri.startswith(tuple(folders)) or ".." in own_uri:
                return None
        result = await (await self._ask(principal, service, "resources/read", own_uri)).wait()
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

    async def _ask(
        self, principal: Principal, service: UpstreamService, method: str, own_uri: str = ""
    ) -> _Answer:
        """Return the kept answer to a request, or begin to ask."""
        owner = principal.key if await service.separates(principal.key) else ""
        now = self._gateway.registry.core.clock.now()
        request = (service.name, method, own_uri, owner)
        answer = self._answers.get(request)
        if answer is None or answer.profile is not service.profile or answer.ends_at <= now:
            former = {} if answer is None else answer.result
            answer = _Answer(service.profile, anyio.current_time(), former)
            self._answers.put(principal.key, request, answer)
            self._gateway.registry.spawn(self._send, principal, service, request, answer)
        return answer

    async def _send(
        self, principal: Principal, service: UpstreamService, request: _Request, answer: _Answer
    ) -> None:
        _, method, own_uri, owner = request
        seconds = 0.0
        try:
            async with self._turns[service.name].place(principal.key):
                if method == "skills/list":
                    answer.result = await service.ask(_list_skills, "list its skills", owner)
                else:
                    answer.result = await service.request(method, {"uri": own_uri}, owner)
            if method == "skills/list" or room_left(answer.result, ANSWER_CHARACTERS) >= 0:
                seconds = (_ttl_ms(answer.result) or STEADY_MS) / 1000
        except SessionError as error:
            if isinstance(error, UpstreamRefused) and error.data == {"uri": own_uri}:
                error.data = {"uri": skill_uri(service.name, own_uri)}
            if method == "skills/list" and not isinstance(error, SessionLimit):
                seconds = PROBLEM_SECONDS
                logger.warning("the skills of %s are left out: %s", service.name, error)
            answer.result, answer.error = {}, error
        finally:
            answer.ends_at = self._gateway.registry.core.clock.now() + seconds
            answer.done.set()
            if not seconds:
                self._answers.pop(request)


async def _list_skills(connection: UpstreamConnection) -> JSON:
    """Return the valid skills that a service lists, with the shortest `ttlMs` of the pages."""
    pages: list[JSON] = []
    skills: list[JSON] = []
    for skill in await list_items(connection, "skills/list", "skills", pages.append):
        fault = _fault_of(skill)
        if fault is None:
            skills.append(skill)
        else:
            logger.warning("a skill of %s is left out: %s", connection.service, fault)
    return {"skills": skills, "ttlMs": min(map(_ttl_ms, pages), default=0)}


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
