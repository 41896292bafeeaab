"""Codes, links and logins of the console in the store."""

from __future__ import annotations

from typing import Any

import anyio
from store_making import MakeStore

from statehold.sessions.records import CredentialKind, CredentialRecord
from statehold.sessions.store.sql import SQLStore

CODE, LINK, LOGIN, ATTEMPT = CredentialKind


def credential(kind: CredentialKind, digest: str, **values: Any) -> CredentialRecord:
    defaults: dict[str, Any] = {"name": "ada", "created_at": 10.0, "expires_at": 100.0}
    return CredentialRecord(
        id=f"id of {digest}", kind=kind, digest=digest, **{**defaults, **values}
    )


async def add(store: SQLStore, *records: CredentialRecord, most: int = 1000) -> None:
    for record in records:
        await store.access.add_credential(record, most=most)


async def test_a_login_keeps_the_role_and_the_groups_of_its_person(store: SQLStore) -> None:
    groups = ("staff", "fu\u0308r alle")
    record = credential(LOGIN, "cookie", principal=":ada", role="operator", groups=groups)
    await add(store, record)
    assert await store.access.credential("cookie") == record


async def test_an_answer_of_an_issuer_is_used_once(store: SQLStore) -> None:
    record = credential(ATTEMPT, "answer")
    used: list[bool] = []

    async def use() -> None:
        used.append(await store.access.add_credential_once(record, most=1000))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
    assert sorted(used) == [False, False, False, False, True]
    assert await store.access.add_credential_once(credential(ATTEMPT, "other"), most=1000)


async def test_all_logins_of_one_user_end_and_those_of_others_stay(store: SQLStore) -> None:
    logins = {
        "machine": {},
        "machine again": {},
        "alice": {"principal": "7.0:issuer:alice"},
        "Alice": {"principal": "7.0:issuer:Alice"},
        "guest": {"session_id": "sh_a", "link": "a"},
        "other guest": {"session_id": "sh_a", "link": "b"},
    }
    await add(store, *(credential(LOGIN, digest, **values) for digest, values in logins.items()))
    await add(store, credential(CODE, "code"))
    await store.access.delete_logins(None, None)
    await store.access.delete_logins("7.0:issuer:alice", None)
    await store.access.delete_logins(None, "b")
    await store.access.delete_login("code")
    assert await store.access.open_credentials([*logins, "code"]) == {"Alice", "guest", "code"}
    await store.access.delete_login("guest")
    assert await store.access.open_credentials(list(logins)) == {"Alice"}


async def test_the_oldest_of_a_principal_or_a_session_goes_and_none_of_others(
    store: SQLStore,
) -> None:
    """A link goes with its login, and no number of logins or links ends those of another."""
    alice, bob, mallory = (f"3.0:issuer:{name}" for name in ("alice", "bob", "Alice"))
    await add(store, credential(LOGIN, "alice", principal=alice, created_at=1.0), most=2)
    await add(store, credential(LOGIN, "alice's guest", session_id="sh_a", link="x"), most=2)
    await add(store, credential(LINK, "alice's link", session_id="sh_a", created_at=1.0), most=2)
    await add(store, credential(ATTEMPT, "alice's answer", principal=alice), most=2)
    await add(store, credential(CODE, "code of the machine", created_at=1.0), most=2)
    await add(store, credential(LINK, "link", session_id="sh_b", created_at=1.0), most=2)
    await store.access.exchange_credential(
        "link", credential(LOGIN, "cookie", created_at=2.0), most=2
    )
    for n in range(4):
        for kind, values in (
            (LOGIN, {"principal": bob}),
            (LOGIN, {"principal": mallory}),
            (LOGIN, {}),
            (LINK, {"session_id": "sh_b"}),
            (ATTEMPT, {"principal": bob}),
        ):
            digest = f"{kind.value} {values} {n}"
            record = credential(kind, digest, created_at=10.0 + n, **values)
            await add(store, record, most=2)
    others = ["alice", "alice's guest", "alice's link", "alice's answer", "code of the machine"]
    links = [f"link {{'session_id': 'sh_b'}} {n}" for n in range(4)]
    open_ones = await store.access.open_credentials([*others, "link", "cookie", *links])
    assert open_ones == {*others, *links[2:]}


async def exchange(
    store: SQLStore, code: str, digest: str, won: list[CredentialRecord | None]
) -> None:
    login = credential(LOGIN, digest, created_at=20.0)
    won.append(await store.access.exchange_credential(code, login, most=1000))


async def test_one_of_two_processes_exchanges_a_code(make_store: MakeStore) -> None:
    if make_store == SQLStore.memory:
        # It has one process.
        return
    async with make_store() as first, make_store() as second:
        for number in range(10):
            await add(first, credential(LINK if number % 2 else CODE, f"code {number}"))
            outcomes: list[CredentialRecord | None] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(exchange, first, f"code {number}", f"a{number}", outcomes)
                tasks.start_soon(exchange, second, f"code {number}", f"b{number}", outcomes)
            assert sum(login is not None for login in outcomes) == 1
