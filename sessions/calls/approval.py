"""The approval of calls by a person: asked of the caller's client or given elsewhere, for one exact call, used once.

An approval is for the service, the definition of the tool, the arguments, the session, its epoch and its caller: another one
of them needs another approval, as a repeat of the call does. It is used up right before the call is sent.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from ..concurrency import RaceLost
from ..core import Core
from ..errors import ApprovalRequired, InvalidArgument, NotAllowed, SessionLimit, StoreUnavailable
from ..json_codec import JSON, canonical, digest_of, room_left
from ..one_line import spell_out
from ..principals.audit_log import AdmitRequest
from ..records import Principal
from ..services import ApprovalRule, ToolSpec
from ..store.base import ApprovalRecord, ApprovalState
from ..times import timestamp
from .login_wait import wait_for_person
from .request import Call
from .task_records import task_id

if TYPE_CHECKING:
    from ..store.sql import SQLStore

Decision: TypeAlias = Literal["approve", "approve_for_session", "refuse"]

APPROVAL_SECONDS: Final = 300.0
"""Seconds within which a request is decided, and then an approval used."""
STANDING_SECONDS: Final = 28_800.0
_STATES: Final[dict[Decision, tuple[ApprovalState, float]]] = {
    "approve": (ApprovalState.APPROVED, APPROVAL_SECONDS),
    "approve_for_session": (ApprovalState.STANDING, STANDING_SECONDS),
    "refuse": (ApprovalState.REFUSED, APPROVAL_SECONDS),
}
"""The state after each decision, and the seconds for which it holds."""
LOOK_SECONDS: Final = 0.5
REPEAT_SECONDS: Final = 50.0
"""Seconds that a call waits which was sent before, and whose client cannot ask."""
MAX_CHARACTERS: Final = 1_000_000
"""The most characters of arguments that a person approves, and SHOWN_CHARACTERS the most in a form of a client."""
SHOWN_CHARACTERS: Final = 2000
LINE_CHARACTERS: Final = 76
CHOICES: Final[dict[str, Decision]] = {
    "Approve once": "approve",
    "Always in this session": "approve_for_session",
    "Refuse": "refuse",
}


async def _admit_unrecorded(*_: object, **__: object) -> AbstractContextManager[None]:
    return nullcontext()


def needs_approval(rule: ApprovalRule, spec: ToolSpec | None, tool: str) -> bool:
    """Return whether a rule has a person approve the calls of a tool. A tool that is not known counts as destructive."""
    if rule == "destructive":
        hints: object = None if spec is None else spec.definition.get("annotations")
        known = cast("JSON", hints) if isinstance(hints, dict) else {}
        # By default a tool may destroy something (MCP 2026-07-28, ToolAnnotations).
        return known.get("readOnlyHint") is not True and known.get("destructiveHint") is not False
    if isinstance(rule, str):
        return rule == "all"
    return any(fnmatchcase(tool, pattern) for pattern in rule)


def unused_patterns(rule: ApprovalRule, tools: Iterable[str]) -> list[str]:
    """Return the patterns of a rule that name none of the tools of its service."""
    names = [*tools]
    patterns: Sequence[str] = () if isinstance(rule, str) else rule
    return [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]


class Approvals:
    """The approvals of one process. Any task may use it; it keeps nothing between calls.

    `address_of` returns the address at which a person decides about a request, None if there is none. `admit_of` returns the
    function that records a decision of a principal before it is stored.
    """

    def __init__(
        self,
        core: Core,
        address_of: Callable[[str], str | None] = lambda _: None,
        admit_of: Callable[[Principal], AdmitRequest] = lambda _: _admit_unrecorded,
    ) -> None:
        self._core = core
        self._address_of = address_of
        self._admit_of = admit_of

    def needs_person(self, call: Call) -> bool:
        """Return whether a person has to approve a call."""
        request, limits = call.request, self._core.limits
        if request.is_internal:
            return False
        if needs_approval(call.binding.service.approve, call.spec, call.tool):
            return True
        owners = (call.session.record.owner, request.sharee) if limits.is_active else ()
        return any(
            each.matches(call.service, call.tool, request.arguments)
            for owner in filter(None, owners)
            for each in limits.of(owner).approve or ()
        )

    async def obtain(self, call: Call, record: Callable[[], Awaitable[None]]) -> None:
        """Wait until a person has approved a call. `record` makes a call with a hand-over durable.

        Raises:
            ApprovalRequired: The client cannot ask its person, and nobody has decided yet.
            NotAllowed: A person refused, or nobody decided in time.
            SessionLimit: Too many calls of the session wait for a person.
            StoreUnavailable: The store does not answer; nothing was sent.
        """
        now, session, content = self._core.clock.now(), call.session, _content(call)
        most = MAX_CHARACTERS
        # Writing those of any length could take seconds.
        if room_left(content, most) < 0 or len(arguments := canonical(content)) > most:
            raise NotAllowed("The arguments are too long for a person, who has to approve them.")
        digest, standing = _digests(call, arguments)
        wanted = ApprovalRecord(
            id=f"apr_{secrets.token_urlsafe(12)}",
            owner=session.record.owner,
            session_id=session.id,
            service=call.service,
            tool=call.tool,
            digest=digest,
            standing=standing,
            arguments=arguments,
            state=ApprovalState.PENDING.value,
            created_at=now,
            ends_at=now + APPROVAL_SECONDS,
        )
        found = await self._core.store.access.request_approval(wanted)
        if found is None:
            raise SessionLimit(
                "Too many calls of this session wait for a person.",
                recovery="Ask a person to decide about them first.",
            )
        call.approval = found.id
        if found.id == wanted.id:
            self._core.metrics.approvals.add("requested")
        if found.state == ApprovalState.REFUSED:
            raise _refusal()
        if found.state != ApprovalState.PENDING:
            return
        hand_over = call.request.hand_over
        work = None if hand_over is None else hand_over.work
        if work is not None and hand_over is not None:
            task = task_id(session.id, hand_over.operation_id)
            work.blocked = partial(self._required, found, task)
        is_repeat, ends_at = found.id != wanted.id, found.ends_at

        async def ask() -> bool:
            nonlocal ends_at
            if await self._ask(call, found) or hand_over is not None:
                return True
            ends_at = min(ends_at, now + REPEAT_SECONDS)
            return is_repeat

        async def wait() -> bool:
            return await self._wait(found, lambda: ends_at)

        try:
            await wait_for_person(ask, wait, hand_over, record)
        except RaceLost:
            raise self._required(found) from None
        finally:
            if work is not None:
                work.blocked = None

    async def use(self, call: Call) -> None:
        """Use the approval of a call up, right before it is sent.

        Raises:
            ApprovalRequired: It has none, or that is for something else by now.
            StoreUnavailable: The store does not answer.
        """
        digests, now = _digests(call, canonical(_content(call))), self._core.clock.now()
        if call.used_approval == digests[0]:
            return  # The call was not sent after all, and is sent now.
        if call.approval is None or not await self._core.store.access.use_approval(
            call.approval, *digests, now
        ):
            raise ApprovalRequired(
                "The approval of this call has ended, or the tool has changed since.",
                recovery="Send the call again to ask anew.",
            )
        call.used_approval = digests[0]
        self._core.metrics.approvals.add("used")

    async def _ask(self, call: Call, wanted: ApprovalRecord) -> bool:
        """Ask the person of a caller. Return False if the client cannot, or the answer cannot be stored."""
        try:
            decision = await self._ask_client(call, wanted)
            if decision is not None:
                admit, now = self._admit_of(call.request.principal), self._core.clock.now()
                await decide(self._core.store, admit, wanted, decision, now)
        except (NotAllowed, StoreUnavailable):
            return False
        return True

    async def _ask_client(self, call: Call, wanted: ApprovalRecord) -> Decision | None:
        """Return the decision of the person in its client, None if the person decides elsewhere. Raises NotAllowed."""
        context, title = call.context, f"Run {title_of(wanted)}?"
        shown = wanted.arguments
        # Any client of a principal, and who shares the session, may answer the questions of a task.
        is_task = call.request.hand_over is not None
        if len(shown) <= SHOWN_CHARACTERS and not is_task and context.options.may_approve:
            field: JSON = {"type": "string", "title": "Decision", "enum": [*CHOICES]}
            schema = {
                "type": "object",
                "properties": {"decision": field},
                "required": ["decision"],
            }
            message = f"{title}\n\n{show_arguments(shown)}"
            form: JSON = {"mode": "form", "message": message, "requestedSchema": schema}
            answer = await context.ask("elicitation/create", form)
            # The caller of a request that continues may be another one.
            if context.options.may_approve:
                content: object = answer.get("content")
                if answer.get("action") != "accept" or not isinstance(content, dict):
                    return "refuse"
                return CHOICES.get(str(cast("JSON", content).get("decision")), "refuse")
        address = self._address_of(wanted.id)
        if address is None or not context.options.is_owner:
            raise NotAllowed("There is no console for the person of this client.")
        params = context.options.ask_to_open(address, title)
        answer = await context.ask("elicitation/create", params)
        return "refuse" if answer.get("action") == "decline" else None

    async def _wait(self, wanted: ApprovalRecord, until: Callable[[], float]) -> bool:
        """Return when a request is approved. Raises as obtain(); ApprovalRequired if it goes on, but not the wait."""
        clock, found = self._core.clock, wanted
        while found.state == ApprovalState.PENDING:
            if until() <= clock.now() < found.ends_at:
                raise self._required(wanted)
            if found.ends_at <= clock.now():
                self._core.metrics.approvals.add("expired")
                raise NotAllowed(
                    f"Nobody approved this call within {APPROVAL_SECONDS:g} seconds.",
                    recovery="Send it again to ask anew.",
                )
            await clock.sleep_until(min(clock.now() + LOOK_SECONDS, found.ends_at))
            try:
                found = await self._core.store.access.approval(wanted.id) or found
            except StoreUnavailable:
                continue
        if found.state == ApprovalState.REFUSED:
            self._core.metrics.approvals.add("refused")
            raise _refusal()
        return True

    def _required(self, wanted: ApprovalRecord, task: str | None = None) -> ApprovalRequired:
        address = self._address_of(wanted.id)
        place = f"at {address}, or with" if address else "with"
        then = "send the same call again, which waits for the decision"
        if task is not None:
            then = f"call call_result with the task_id {task}"
        return ApprovalRequired(
            f"A person has to approve {title_of(wanted)} with these arguments, as request {wanted.id}.",
            session_id=wanted.session_id,
            recovery=f"Ask a person to decide within five minutes {place} `statehold approvals approve {wanted.id}`. "
            f"Then {then}.",
        )


async def decide(
    store: SQLStore, admit: AdmitRequest, wanted: ApprovalRecord, decision: Decision, now: float
) -> bool:
    """Approve or refuse a call for a person, or end a standing approval. Return False if it was decided, used, or has ended.

    Raises:
        StoreUnavailable: It cannot be stored, or not be recorded in a log that is required.
    """
    state, seconds = _STATES[decision]
    tool, arguments = f"{wanted.service}/{wanted.tool}", {"sha256": wanted.digest}
    entry = admit(f"approvals.{decision}", wanted.session_id, tool=tool, arguments=arguments)
    with suppress(InvalidArgument), await entry:
        if await store.access.decide_approval(wanted.id, state, now, now + seconds):
            return True
        # The log has the code of this error as the outcome.
        raise InvalidArgument("The call does not wait any more.")
    return False


def title_of(approval: ApprovalRecord) -> str:
    """Return service and tool as a person reads them."""
    return spell_out(f"{approval.service}/{approval.tool}")


def show_arguments(arguments: str) -> str:
    """Return the arguments of a call as a person reads them, with all that is not seen, or looks like another, as escapes.

    A line that begins with `~` continues the one before it; no argument can begin a line.
    """
    try:
        text = json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except RecursionError:
        text = arguments
    lines: list[str] = []
    for line in map(spell_out, text.split("\n")):
        starts = range(LINE_CHARACTERS, len(line), LINE_CHARACTERS)
        more = (f"~ {line[start : start + LINE_CHARACTERS]}" for start in starts)
        lines += [line[:LINE_CHARACTERS], *more]
    return "\n".join(lines)


def describe_approval(approval: ApprovalRecord) -> JSON:
    """Return an approval as people see it, in JSON, without its arguments."""
    return {
        "id": approval.id,
        "state": approval.state,
        "tool": title_of(approval),
        "session_id": approval.session_id,
        "owner": Principal.of_key(approval.owner).words,
        "created_at": timestamp(approval.created_at),
        "ends_at": timestamp(approval.ends_at),
    }


def _content(call: Call) -> JSON:
    """Return what a person sees: the arguments, the answers to the questions of an earlier call, and who asks."""
    options, arguments = call.context.options, dict(call.request.arguments)
    more: JSON = {}
    if call.request.sharee is not None:
        more["asked by"] = Principal.of_key(call.request.sharee).words
    if call.continues:
        more["inputResponses"] = options.input_responses
        more["requestState"] = options.request_state
    return {"arguments": arguments, **more} if more else arguments


def _digests(call: Call, content: str) -> tuple[str, str]:
    """Return the SHA-256 of a call with what a person sees, and that of all of its caller's to its tool in the session."""
    session, definition = call.session, None if call.spec is None else call.spec.definition
    tool = [call.service, definition, call.tool, session.id, call.request.sharee]
    exact = [*tool, session.record.epoch, content, call.continues]
    return digest_of(canonical(exact)), digest_of(canonical(tool))


def _refusal() -> NotAllowed:
    return NotAllowed(
        "A person refused this call.",
        recovery=f"Ask the person what to do; the same call can ask again after {APPROVAL_SECONDS:g} seconds.",
    )
