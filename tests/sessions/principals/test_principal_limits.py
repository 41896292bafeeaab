"""The limits that policies set for principals, groups, roles and everybody: how they are chosen, and where they hold."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support.engine import Build, Engine, failing
from support.waiting import until

from statehold.sessions.actions.document import json_text, read_document
from statehold.sessions.errors import NotAllowed, SessionLimit, StoreUnavailable
from statehold.sessions.policy import Policy
from statehold.sessions.principals import policy_watch
from statehold.sessions.principals.limits import PrincipalLimits
from statehold.sessions.principals.rules import (
    EVERYBODY,
    Membership,
    PolicyLimits,
    PolicyRule,
    PolicySubject,
    PolicyTarget,
    Rate,
    RevocationRecord,
)
from statehold.sessions.records import Principal

ISSUER = "https://idp.example"
ADA, BEN = Principal(subject="ada"), Principal(subject="ben")
OF_ADA = PolicyTarget.principal(ADA)


def target(kind: str, name: str, issuer: str = "") -> PolicyTarget:
    return PolicyTarget(kind=PolicySubject(kind), issuer=issuer, name=name)


def policy(*rules: tuple[PolicyTarget, dict[str, Any]], **settings: Any) -> Policy:
    return Policy(
        principal_policies=tuple(
            PolicyRule(subject, PolicyLimits.model_validate(limits)) for subject, limits in rules
        ),
        **settings,
    )


def test_the_most_specific_policy_wins_for_each_limit() -> None:
    limits = PrincipalLimits(
        policy(
            (EVERYBODY, {"sessions": 1, "calls_in_flight": 1, "idle": 1, "stored_bytes": 1}),
            (target("role", "operator"), {"sessions": 2, "calls_in_flight": 2, "idle": 2}),
            (target("group", "crew"), {"sessions": 3, "calls_in_flight": 3}),
            (target("principal", "ada", ISSUER), {"sessions": 4}),
            sessions_per_principal=9,
        )
    )
    ada = Principal(issuer=ISSUER, subject="ada")
    limits.learn(ada.key, Membership(("crew",), "operator"))
    found = limits.of(ada.key)
    assert (found.sessions, found.calls_in_flight, found.idle, found.stored_bytes) == (4, 3, 2, 1)
    assert found.sources["sessions"] == f"principal ada of {ISSUER}"
    assert found.sources["calls_in_flight"] == "group crew"
    assert found.sources["idle"] == "role operator"
    assert found.sources["stored_bytes"] == "everybody"
    assert (found.services, found.sources["services"]) == (None, "default")
    # The same subject of another issuer, or of none, is another principal.
    for other in (Principal(subject="ada"), Principal(issuer="https://other", subject="ada")):
        assert limits.of(other.key).sessions == 1


def test_the_most_generous_of_several_groups_holds_and_zero_is_no_limit() -> None:
    limits = PrincipalLimits(
        policy(
            (target("group", "a"), {"sessions": 5, "services": ["x"], "idle": 5}),
            (target("group", "b"), {"sessions": 2, "services": ["y"], "idle": 0}),
            (target("group", "c", ISSUER), {"rate": {"calls_per_minute": 1}}),
            (target("group", "d"), {"rate": {"calls_per_minute": 0}}),
        )
    )
    member = Principal(issuer=ISSUER, subject="ada").key
    limits.learn(member, Membership(("a", "b", "c")))
    found = limits.of(member)
    assert (found.sessions, found.services, found.idle) == (5, ("x", "y"), 0)
    assert found.rate == Rate(calls_per_minute=1)
    limits.learn(member, Membership(("c", "d")))
    assert limits.of(member).rate == Rate(calls_per_minute=0)
    # A group of one issuer is no group of another.
    stranger = Principal(issuer="https://other", subject="ada").key
    limits.learn(stranger, Membership(("c",)))
    assert limits.of(stranger).rate is None


def test_new_policies_take_the_place_of_the_former_ones() -> None:
    limits = PrincipalLimits(policy((OF_ADA, {"sessions": 1, "idle": 7})))
    limits.configure(policy((OF_ADA, {"sessions": 2})).principal_policies)
    assert (limits.of(ADA.key).sessions, limits.of(ADA.key).idle) == (2, 0)
    limits.configure(())
    assert (limits.of(ADA.key).sessions, limits.is_active) == (10_000, False)


async def test_sessions_of_a_principal_are_limited_by_its_policy(build: Build) -> None:
    limited = policy((OF_ADA, {"sessions": 1}), sessions_per_principal=2)
    async with build(policy=limited) as engine:
        session = await engine.create(ADA)
        with pytest.raises(SessionLimit, match="sessions of the policy of principal ada"):
            await engine.create(ADA)
        for _ in range(2):
            await engine.create(BEN)
        with pytest.raises(SessionLimit, match=r"limits\.sessions_per_principal"):
            await engine.create(BEN)
        with pytest.raises(SessionLimit):
            await engine.registry.branches.fork(ADA, session.id)


async def test_stored_bytes_of_a_principal_are_limited_by_its_policy(build: Build) -> None:
    async with build(policy=policy((OF_ADA, {"stored_bytes": 20_000}))) as engine:
        with pytest.raises(SessionLimit, match="stored_bytes of the policy of principal ada"):
            await engine.create(ADA, state={"text": "x" * 20_000})
        await engine.create(BEN, state={"text": "x" * 20_000})
        assert engine.registry.quota.usage(ADA.key)["limit"] == 20_000


async def test_a_bucket_refuses_calls_until_it_has_tokens_again(build: Build) -> None:
    rate = {"rate": {"calls_per_minute": 60, "burst": 2}}
    async with build(policy=policy((OF_ADA, rate))) as engine:
        session = await engine.create(ADA)
        for _ in range(2):
            await engine.call(session.id, principal=ADA)
        with pytest.raises(SessionLimit, match="60 calls a minute, 2 at once") as caught:
            await engine.call(session.id, principal=ADA)
        assert caught.value.retry_after == 1
        assert caught.value.code == "session_limit"
        # A second session of the principal has the same bucket; another principal has its own.
        second = await engine.create(ADA)
        with pytest.raises(SessionLimit):
            await engine.call(second.id, principal=ADA)
        other = await engine.create(BEN)
        for _ in range(5):
            await engine.call(other.id, principal=BEN)
        engine.clock.advance(1)
        await engine.call(second.id, principal=ADA)
        with pytest.raises(SessionLimit):
            await engine.call(session.id, principal=ADA)
        assert engine.counter.calls.count((session.id, "inc")) == 2


async def test_a_tool_has_a_bucket_of_its_own(build: Build) -> None:
    rates = {
        "tool_rates": {"counter/i*": {"calls_per_minute": 1}, "other": {"calls_per_minute": 1}}
    }
    async with build(policy=policy((EVERYBODY, rates))) as engine:
        session = await engine.create(ADA)
        await engine.call(session.id, principal=ADA)
        with pytest.raises(SessionLimit, match=r"tool_rates, counter/i\*"):
            await engine.call(session.id, principal=ADA)
        await engine.call(session.id, "get", principal=ADA)


async def test_calls_in_flight_are_counted_over_all_sessions_of_a_principal(build: Build) -> None:
    async with build(policy=policy((OF_ADA, {"calls_in_flight": 1}))) as engine:
        first, second = await engine.create(ADA), await engine.create(ADA)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: engine.call(first.id, "hold", principal=ADA))
            await engine.counter.holding.wait()
            with pytest.raises(SessionLimit, match="calls_in_flight of the policy") as caught:
                await engine.call(second.id, principal=ADA)
            assert caught.value.retry_after == 1
            engine.counter.let_go.set()
        await engine.call(second.id, principal=ADA)
        assert engine.registry.admission.in_flight(ADA.key) == 0


async def test_processes_share_the_limits_of_calls(build: Build) -> None:
    limits = {"calls_in_flight": 5, "rate": {"calls_per_minute": 60, "burst": 4}}
    async with build(policy=policy((OF_ADA, limits))) as engine:
        engine.registry.core.limits.nodes = 2
        session = await engine.create(ADA)
        for _ in range(2):
            await engine.call(session.id, principal=ADA)
        with pytest.raises(SessionLimit, match="shared by 2 processes") as caught:
            await engine.call(session.id, principal=ADA)
        assert caught.value.retry_after == 2
        assert engine.registry.core.limits.share(5) == 2
        assert engine.registry.core.limits.share(1) == 1


async def test_a_service_that_is_not_allowed_is_neither_bound_nor_called(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(ADA)
        await engine.call(session.id, principal=ADA)
        _, document = await engine.registry.porting.export_session(
            ADA, session.id, secrets=False, namespace=None, limit=1 << 20
        )
        exported = read_document(json_text(document.model_dump()))
        await limit(engine, OF_ADA, services=[])
        for work in (
            engine.create(ADA, services=["counter"]),
            engine.registry.bind(ADA, session.id, "counter"),
            engine.call(session.id, principal=ADA),
            engine.registry.porting.import_session(ADA, exported),
        ):
            with pytest.raises(NotAllowed, match="services of the policy of principal ada"):
                await work
        assert (await engine.create(ADA)).bindings == {}
        await limit(engine, OF_ADA, services=["c*"])
        await engine.call(session.id, principal=ADA)


async def test_times_are_shortened_at_creation_fork_import_and_extension(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(ADA, idle=5000.0, lifetime=0.0)
        ending = await engine.create(ADA, lifetime=500.0)
        _, document = await engine.registry.porting.export_session(
            ADA, session.id, secrets=False, namespace=None, limit=1 << 20
        )
        await limit(engine, OF_ADA, idle=60.0, lifetime=1000.0)
        [fork] = (await engine.registry.branches.fork(ADA, session.id)).children
        imported = await engine.registry.porting.import_session(
            ADA, read_document(json_text(document.model_dump()))
        )
        longer = await engine.create(ADA, idle=61.0, lifetime=1001.0)
        for found in (
            fork.record,
            imported.record,
            longer.record,
            (await engine.create(ADA)).record,
        ):
            assert (found.timeouts.idle, found.timeouts.lifetime) == (60, 1000)
            assert found.lifetime_ends_at == engine.clock.now() + 1000
        shorter = await engine.create(ADA, idle=30.0, lifetime=30.0)
        assert (shorter.record.timeouts.idle, shorter.record.timeouts.lifetime) == (30, 30)
        engine.clock.advance(100)
        await engine.registry.extend(ADA, ending.id, 5000.0)
        assert ending.record.lifetime_ends_at == engine.clock.now() + 1000


async def test_a_process_without_use_and_sessions_reads_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a request comes, which waits for what other processes wrote."""
    # A process that looks again and again is never blocked then.
    monkeypatch.setattr(policy_watch, "LOOK_SECONDS", 0.0)
    async with build(policy=Policy(shared=True)) as engine:
        policies, reads = engine.registry.policies, 0
        revocations = engine.store.access.revocations

        async def counted() -> list[RevocationRecord]:
            nonlocal reads
            reads += 1
            return await revocations()

        engine.store.access.revocations = counted
        with anyio.fail_after(10):
            await anyio.wait_all_tasks_blocked()
        assert reads == 0
        revocation = RevocationRecord(owner=ADA.key, revoked_at=1.0, revoked_by="root")
        await engine.store.access.revoke(revocation)
        assert ADA.key not in engine.registry.core.revoked
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(policies.be_current)
        assert ADA.key in engine.registry.core.revoked
        await engine.store.access.restore(ADA.key)
        await until(lambda: ADA.key not in engine.registry.core.revoked)


def token(*groups: str, end: float) -> Membership:
    return Membership(groups, ends=dict.fromkeys(groups, end))


def test_a_second_token_frees_nobody_from_the_groups_of_the_first() -> None:
    limits = PrincipalLimits(
        policy((target("group", "interns"), {"sessions": 5}), (EVERYBODY, {"sessions": 50}))
    )
    assert limits.learn(ADA.key, token("interns", end=100.0), 0.0)
    for second in (token(end=500.0), Membership(), token("staff", end=300.0)):
        limits.learn(ADA.key, second, 50.0)
        assert limits.of(ADA.key).sessions == 5
    assert not limits.learn(ADA.key, token("interns", end=100.0), 60.0)
    assert limits.learn(ADA.key, token("interns", end=200.0), 99.0)
    limits.learn(ADA.key, token(end=500.0), 199.0)
    assert limits.of(ADA.key).sessions == 5
    limits.learn(ADA.key, token(end=500.0), 200.0)
    assert limits.of(ADA.key).sessions == 50
    assert limits.membership(ADA.key) == token("staff", end=300.0)


async def test_tokens_that_other_processes_verified_count_together(build: Build) -> None:
    interns = policy((target("group", "interns"), {"sessions": 5}))
    async with build(policy=interns) as engine:
        now = engine.clock.now()
        of_other = token("staff", end=now + 100)
        put = engine.store.access.put_membership
        await put(OF_ADA, token("interns", end=now + 100), now)
        # It has not read the row of the first, and another one wrote none of its groups.
        await put(OF_ADA, of_other, now)
        await put(OF_ADA, Membership(("old",)), now + 1)
        limits = PrincipalLimits(interns)
        limits.update(await engine.store.access.changed_principals(0))
        assert limits.of(ADA.key).sessions == 5
        assert set(limits.membership(ADA.key).groups) == {"interns", "staff", "old"}
        await put(OF_ADA, of_other, now + 100)
        limits.update(await engine.store.access.changed_principals(0))
        assert limits.membership(ADA.key).groups == ("staff",)


async def test_the_groups_of_a_caller_reach_other_processes(build: Build) -> None:
    async with build(policy=policy((target("group", "crew"), {"sessions": 1}))) as engine:
        engine.registry.policies.record_caller(ADA, Membership(("crew",), "operator"))
        assert engine.registry.core.limits.of(ADA.key).sessions == 1
        other = PrincipalLimits(policy((target("group", "crew"), {"sessions": 3})))

        async def is_known() -> bool:
            other.update(await engine.store.access.changed_principals(0))
            return other.membership(ADA.key) == Membership(("crew",), "operator")

        await until(is_known)
        assert other.of(ADA.key).sessions == 3
        # The next write of the same principal waits, and the newest groups are written.
        for groups in (("a",), ("b",)):
            engine.registry.policies.record_caller(ADA, Membership(groups))
        await engine.registry.policies.refresh()
        assert engine.registry.core.limits.membership(ADA.key) == Membership(("b",))

        async def is_written() -> bool:
            engine.clock.advance(1)
            other.update(await engine.store.access.changed_principals(0))
            return other.membership(ADA.key) == Membership(("b",))

        await until(is_written)
        engine.clock.advance(10)
        engine.registry.policies.record_caller(ADA, Membership(("crew",), "operator"))
        await until(is_known)


async def test_while_the_store_is_down_no_session_begins_and_running_calls_finish(
    build: Build,
) -> None:
    async with build(policy=policy((OF_ADA, {"sessions": 3, "calls_in_flight": 1}))) as engine:
        paused, session = await engine.create(ADA), await engine.create(ADA)
        await engine.registry.pause(ADA, paused.id)
        results: list[Any] = []

        async def hold() -> None:
            results.append(await engine.call(session.id, "hold", principal=ADA))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await engine.counter.holding.wait()
            with failing(engine, "create"), failing(engine, "write"), failing(engine, "claim"):
                for work in (engine.create(ADA), engine.registry.resume(ADA, paused.id)):
                    with pytest.raises(StoreUnavailable):
                        await work
                # The limit of calls in flight holds on.
                with pytest.raises(SessionLimit):
                    await engine.call(session.id, principal=ADA)
                engine.counter.let_go.set()
                await until(lambda: results)
        await engine.call(session.id, principal=ADA)


async def limit(engine: Engine, subject: PolicyTarget, **changes: Any) -> None:
    engine.registry.policies.configure(policy((subject, changes)).principal_policies)
