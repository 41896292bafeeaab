"""The records the store keeps of sessions and nodes, and the filters that select them.

Times are seconds since 1970 in UTC, as floats. Durations are seconds. A record is a value: nothing in it is live.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from .lifecycle import Status


class Principal(BaseModel):
    """A caller: a token's issuer and subject, or `local`.

    The store keeps `key` as the owner of a session. Compare principals by their keys: a client that registers
    anew finds its user's sessions. `client_id` is for audit only.
    """

    model_config = ConfigDict(frozen=True)

    issuer: str = ""
    subject: str = "local"
    client_id: str = ""

    @cached_property
    def key(self) -> str:
        """The owner as the store keeps it, unique to an issuer and a subject."""
        if not self.issuer:
            return f":{self.subject}"
        # The length prefix separates the issuer from the subject. The 0 is from older keys, which had a client between them.
        return f"{len(self.issuer)}.0:{self.issuer}{self.subject}"

    @property
    def words(self) -> str:
        """The principal in the log: its issuer, if it has one, and its subject."""
        return f"{self.issuer}/{self.subject}" if self.issuer else self.subject

    @classmethod
    def of_key(cls, key: str) -> Principal:
        """Return the principal of a stored key."""
        sizes, _, rest = key.partition(":")
        length = int(sizes.partition(".")[0] or 0)
        return cls(issuer=rest[:length], subject=rest[length:])


LABELS: Final = ("user_id", "agent_id", "team_id", "workflow_id")
"""Ids that a caller may attach to a session, to find it again. They give no access rights."""


def labels_of(holder: object) -> dict[str, str]:
    """Return the labels in LABELS that `holder` has as attributes and that are not None."""
    labels = {label: getattr(holder, label) for label in LABELS}
    return {label: value for label, value in labels.items() if value is not None}


LOCAL = Principal()
"""The caller on stdio and on an unauthenticated loopback address."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=False)


class Timeouts(Record):
    """The clocks of one session, in seconds. 0 means never."""

    idle: float = Field(default=900.0, ge=0)
    paused: float = Field(default=2_592_000.0, ge=0)
    """Time without use of a paused session."""
    lifetime: float = Field(default=0.0, ge=0)


class SessionDriver(StrEnum):
    """The driver of a session."""

    AGENT = "agent"
    REQUESTED = "requested"
    """The agent, which asks for a person."""
    HUMAN = "human"


class ControlEnd(StrEnum):
    """How a person's control of a session, or a request for a person, ended."""

    DONE = "done"
    COULD_NOT = "could_not"
    EXPIRED = "expired"
    """Nobody renewed it, or nobody came."""
    REVOKED = "revoked"
    """The link by which the person came was revoked."""


class ControlLease(Record):
    """The driver of a session, and the end of the last control of a person. It outlives the process.

    A lease of a person is renewed while the person is there and ends at `expires_at`; a request ends then as well.
    """

    driver: SessionDriver = SessionDriver.AGENT
    epoch: int = 0
    """Rises by one whenever a login gets control. It fences the input of an earlier one."""
    holder: str | None = None
    """The person who drives, in words."""
    user: str | None = None
    """Identifies the person over several logins."""
    login: str | None = None
    """The id of the login that has control. Input of another one is refused."""
    reason: str | None = None
    """Why the agent asks for a person, in its words."""
    since: float = 0.0
    expires_at: float | None = None
    end: ControlEnd | None = None
    """How it ended; None while a person is asked for or drives, and before the first time."""
    reply: str | None = None
    """The words of the person who handed it back."""
    notice: str | None = None
    """The notice for the agent's next result; None when that was sent."""
    agent_left: bool = False
    """Whether the agent that asks for a person has ended its wait by leaving."""


class SessionRecord(Record):
    """One session as the store keeps it.

    `status` is the durable status: the store never holds `active`, which only the owning node knows.
    `epoch` is the fencing number: it rises by one whenever a node becomes the owner and is never reset.
    `due_at` is when Deadlines must look at the session next, or None for never.
    """

    id: str
    owner: str
    namespace: str = ""
    name: str | None = None
    status: Status = Status.CREATING
    reason: str | None = None
    created_at: float
    used_at: float
    status_at: float
    """Since when the session has its status."""
    closed_at: float | None = None
    due_at: float | None = None
    timeouts: Timeouts = Field(default_factory=Timeouts)
    lifetime_ends_at: float | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    parent: str | None = None
    node: str | None = None
    epoch: int = 0
    services: list[str] = Field(default_factory=list[str])
    """Names of the bound services, in the order they were bound."""
    user_id: str | None = None
    agent_id: str | None = None
    team_id: str | None = None
    workflow_id: str | None = None
    control: ControlLease = Field(default_factory=ControlLease)

    @property
    def labels(self) -> dict[str, str]:
        """The labels in LABELS that are not None."""
        return labels_of(self)


class BindingStatus(StrEnum):
    """Status of a session's use of a service."""

    UNOPENED = "unopened"
    OPEN = "open"
    PAUSED = "paused"
    """The live connection was given up; a snapshot may exist."""
    KEPT = "kept"
    """The session is paused and the live connection is still open."""
    LOST = "lost"
    """The live connection ended, and no caller has been told."""
    FAILED = "failed"
    """The last attempt to open it failed."""

    @property
    def missing(self) -> bool:
        """Whether the connection was lost or could not be opened, rather than given up."""
        return self in (BindingStatus.LOST, BindingStatus.FAILED)


class BindingRecord(Record):
    """One service used by one session."""

    session_id: str
    service: str
    status: BindingStatus = BindingStatus.UNOPENED
    generation: int = 0
    """Rises by one whenever a live connection is opened; 0 before the first."""
    told_generation: int = 0
    """The newest generation reported to a caller. If it is lower than `generation`, a notice is due. A database column."""
    config_hash: str = ""
    last_error: str | None = None
    since: float = 0.0
    resume_token: str | None = Field(default=None, repr=False)
    """A later process takes the live connection up with it; None if that ends with its process. Secret."""


class SnapshotRecord(Record):
    """The data a service saved of one connection. The store keeps the last two per binding."""

    session_id: str
    service: str
    seq: int
    taken_at: float
    epoch: int
    data: bytes


class StateRecord(Record):
    """The JSON object of a session, with its version; version 0 is the value given at create."""

    session_id: str
    version: int = 0
    value: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    json_schema: dict[str, JsonValue] | None = None


class JournalKind(StrEnum):
    CALL = "call"
    TRANSITION = "transition"
    MESSAGE = "message"
    STATE = "state"
    """A change of the state in a run."""
    RUN = "run"
    """A run: a group of calls, messages and changes of the state."""
    CONTROL = "control"
    """A request for a person, a change of who drives, or a link for a guest."""
    COMPACTED = "compacted"
    """Replaces the oldest entries, which were deleted, by counts of them."""


class JournalRecord(Record):
    """One entry of a session's journal.

    A call has `tool`, `service`, `status` (`ok`, `error`, `cancelled`, or the code of a SessionError), times, generation,
    request and result; one with an operation id is `started` until it ends. A transition has `tool=None`, its table code
    and cause in `request`. A message has `role` and its content in `request`. A change of control has the lease in
    `request`, the entry of a link its person and its rights. A run is `running`, and its entry is written again when it
    ends. Sizes are capped by the writer.
    """

    session_id: str
    seq: int
    """Position in the session, from 1, without gaps as long as entries are not compacted."""
    kind: JournalKind
    epoch: int
    service: str | None = None
    tool: str | None = None
    status: str | None = None
    run: str | None = None
    role: str | None = None
    operation_id: str | None = None
    started_at: float
    ended_at: float | None = None
    generation: int = 0
    request: Any = None
    result: Any = None
    error: str | None = None
    facts: Any = None
    """Facts of the step of a call; see journal/facts.py."""


NEVER: Final = 1e11
"""The end of a receipt that does not expire: that of a call that was handed over under an id of its caller's."""


class ReceiptRecord(Record):
    """The outcome of a call with an operation id. Secret: the result is kept unredacted, to be returned again.

    `status` is `started`, `input_required`, a status of a journal entry, or `outcome_unknown` when the outcome is lost.
    """

    session_id: str
    operation_id: str
    digest: str
    """Digest of the request, so that the id cannot be used for another one."""
    status: str
    seq: int
    """Position of its entry in the journal; 0 for the call of an own tool, which has no such entry."""
    epoch: int
    started_at: float
    ended_at: float | None = None
    bytes: int = 0
    """Size of the result in bytes."""
    result: JsonValue = None
    """The result; None when it was too large to be kept, or there was none."""
    error: JsonValue = None
    """The error the call raised: code, message, recovery."""
    upstream: str | None = None
    """The id of the upstream's task that runs the call, until it ends. Secret."""
    expires_at: float | None = None
    """When it is deleted, if its id is one of ours; a call with the id of its caller may be repeated for ever."""


class SummaryRecord(Record):
    """A summary of a session, written by a host."""

    session_id: str
    text: str
    topics: list[str] = Field(default_factory=list[str])
    updated_at: float
    through_seq: int
    """Position of the last journal entry when the summary was written."""


class HistoryFilter(Record):
    """Selection of journal entries; `limit` keeps the newest. Fields that are None do not filter."""

    before: int | None = None
    """Only entries before this position."""
    kinds: list[JournalKind] | None = None
    tools: list[str] | None = None
    skip_tools: list[str] | None = None
    statuses: list[str] | None = None
    runs: list[str] | None = None
    last_runs: int | None = None
    """Only entries of this many last runs."""
    skip_run_statuses: list[str] | None = None
    """No entries of runs with these statuses. `last_runs` does not count such runs."""
    roles: list[str] | None = None
    skip_roles: list[str] | None = None
    since: float | None = None
    until: float | None = None
    failed: bool = False
    """Only calls that did not end well."""
    limit: int = Field(default=50, ge=0, le=1001)


class CredentialKind(StrEnum):
    CODE = "code"
    """The code of `statehold console`."""
    LINK = "link"
    """The code of a link for a guest."""
    LOGIN = "login"
    """The cookie that a code or a token was exchanged for."""
    ATTEMPT = "attempt"
    """The answer of an issuer to a login, which counts once."""


class CredentialRecord(Record):
    """A secret that opens the console, until it expires or is deleted. Only its digest is kept."""

    id: str
    kind: CredentialKind
    digest: str
    """SHA-256 of the secret, in hexadecimal digits."""
    name: str = ""
    """The person who uses it, in words."""
    principal: str | None = None
    """The key of the principal whose sessions exist for the person. None: a guest, or the user of the machine."""
    rights: str = "control"
    session_id: str | None = None
    """The one session that exists for a guest."""
    link: str | None = None
    """The id of the link by which a guest logged in."""
    created_by: str | None = None
    """The person who made a link, in words; of a login with a bearer token, the digest of the token."""
    created_at: float
    expires_at: float
    used_at: float | None = None
    """When the code of a link was exchanged."""
    role: str = "user"
    groups: tuple[str, ...] = ()
    """The groups of a person at its issuer."""


class ShareRights(StrEnum):
    """The rights that a share gives: USE includes VIEW."""

    VIEW = "view"
    USE = "use"


class GranteeKind(StrEnum):
    PRINCIPAL = "principal"
    GROUP = "group"


class Grantee(BaseModel):
    """A principal or a group of an issuer, with which a session is shared."""

    model_config = ConfigDict(frozen=True)

    kind: GranteeKind
    issuer: str = ""
    name: str
    """The subject, or the name of the group."""

    @cached_property
    def digest(self) -> str:
        """The key of the store."""
        text = f"{self.kind.value}\n{len(self.issuer)}\n{self.issuer}{self.name}"
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def principal(cls, principal: Principal) -> Grantee:
        return cls(kind=GranteeKind.PRINCIPAL, issuer=principal.issuer, name=principal.subject)


class ShareRecord(Record):
    """The share of a session with one grantee."""

    session_id: str
    grantee: Grantee
    rights: ShareRights
    created_by: str
    """The key of the principal that shared the session."""
    created_at: float
    expires_at: float


class NodeState(StrEnum):
    UP = "up"
    DRAINING = "draining"
    DEAD = "dead"
    """Final: a node that was declared dead never comes back under its id."""


class NodeRecord(Record):
    """One incarnation of one Statehold process."""

    id: str
    proof_key: str
    """Identifies the boot and the folder of its lock file; see LockFolder.proof_key."""
    address: str = ""
    """The process as shown to a caller whose session is open there: `stdio, pid 1` or `http://127.0.0.1:8931, pid 1`."""
    state: NodeState = NodeState.UP
    started_at: float
    pid: int = 0
    peer: str = ""
    """`host:port` at which nodes on other machines reach it; empty when they cannot."""
    sessions: int = 0
    """Number of sessions that it owned at its last heartbeat."""
    capacity: int = 0
    """Number of sessions that it takes on."""
    version: str = ""
    """The version of its program."""
    lease_seconds: float = 0.0
    """How long it lives without a heartbeat, in the eyes of nodes that cannot see its lock; 0 for a node without a lease."""


class SessionOrder(StrEnum):
    """The order of a list of sessions."""

    USED = "used"
    """Newest use first."""
    CREATED = "created"
    """Newest first."""
    NAME = "name"


class SessionFilter(Record):
    """Selection of sessions to list. Fields that are None do not filter."""

    owner: str | None = None
    namespace: str | None = None
    name_prefix: str | None = None
    statuses: list[Status] | None = None
    updated_since: float | None = None
    """Only those used at this time or later."""
    labels: dict[str, str] | None = None
    """Only those with these values of LABELS."""
    parent: str | None = None
    """Only those that were forked from this session."""
    driver: SessionDriver | None = None
    """Only those with this driver; a person, or an agent that asks for one."""
    metadata: dict[str, JsonValue] | None = None
    """Only those whose metadata has these values under these keys."""
    query: str | None = None
    """Only those with this text in their name, labels, metadata or summary, whatever its case."""
    order: SessionOrder = SessionOrder.USED
    reverse: bool = False
    """The other way round."""
    limit: int = Field(default=100, ge=1, le=1000)
    cursor: str | None = None
    """The value `list_sessions` returned with the page before."""


@dataclass(frozen=True, slots=True)
class JournalCounts:
    """Counts of the entries of a journal, compacted ones included. `calls` counts by tool, then by status."""

    calls: dict[str, dict[str, int]]
    messages: dict[str, int]
    """By role."""
    transitions: int
    runs: int
    entries: int
    """All entries ever written."""
    first_at: float | None
    last_at: float | None
    last_seq: int
