"""Tokens and the audit log, on every store."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.errors import AlreadyExists, NotFound
from noonbell.model.access import Deed, Role, hash_of, new_secret


async def make(store, name="ci", role=Role.OPERATOR, secret=None, **more):
    secret = secret or new_secret()
    return await store.create_token(name, role, hash_of(secret), shown=secret[:10], **more), secret


async def test_a_token_is_found_by_its_hash_alone(store):
    made, secret = await make(store, by="ada")
    assert await store.token_of(hash_of(secret)) == made
    assert await store.token_of(hash_of(secret + "x")) is None
    assert (made.name, made.role, made.created_by, made.shown) == ("ci", Role.OPERATOR, "ada", secret[:10])
    assert made.is_good(await store.now())


async def test_two_good_tokens_never_have_one_name(store):
    await make(store)
    with pytest.raises(AlreadyExists):
        await make(store)
    made = await asyncio.gather(*(make(store, "race") for _ in range(5)), return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in made) == 1
    assert all(isinstance(each, AlreadyExists) for each in made if isinstance(each, BaseException))


async def test_a_revoked_token_is_good_for_nothing_and_its_name_is_free(store):
    _, secret = await make(store)
    revoked = await store.revoke_token("ci")
    assert revoked.revoked_at is not None
    kept = await store.token_of(hash_of(secret))
    assert not kept.is_good(await store.now())
    await make(store)
    assert [token.revoked_at is None for token in await store.tokens()] == [False, True]
    with pytest.raises(NotFound):
        await store.revoke_token("nobody")


async def test_a_token_is_good_until_its_time_is_up(store):
    made, _ = await make(store, seconds=60)
    assert made.is_good(made.created_at + 59_999_999)
    assert not made.is_good(made.created_at + 60_000_000)


async def test_the_use_of_a_token_is_noted(store):
    made, secret = await make(store)
    assert made.used_at is None
    await store.note_token_use(made.id)
    first = (await store.token_of(hash_of(secret))).used_at
    assert first is not None
    await store.note_token_use(made.id)
    assert (await store.token_of(hash_of(secret))).used_at == first


def deed(number: int, actor: str | None = "ada") -> Deed:
    return Deed(actor=actor, action="create_task", subject=f"/tasks/{number}", details={"name": f"任务 {number}"})


async def test_the_audit_log_is_without_a_gap_whoever_writes_at_the_same_time(store):
    await asyncio.gather(*(store.write_audit([deed(number), deed(number, "bob")]) for number in range(8)))
    entries = await store.audit_log(limit=100)
    assert [entry.id for entry in entries] == list(range(16, 0, -1))
    assert await store.broken_audit() == (None, 16)
    assert {entry.deed.actor for entry in await store.audit_log(actor="bob")} == {"bob"}
    assert [entry.id for entry in await store.audit_log(before=3)] == [2, 1]


async def test_the_audit_log_is_narrowed_by_who_what_about_what_and_when(store):
    first, second, third, fourth = await store.write_audit(
        [
            Deed(actor="ada", action="create_task", subject="/api/v1/tasks/1"),
            Deed(actor="bob", action="trigger_task", subject="/tasks/1/trigger", details={"reason": '100% "sure" ü'}),
            Deed(actor="ada", action="create_task", subject="/api/v1/tasks/12"),
            Deed(actor=None, action="pause_queue", subject="/queues/a", request_id="Abc"),
        ]
    )

    async def found(**which) -> list[int]:
        return [entry.id for entry in await store.audit_log(**which)]

    assert await found(actions=("create_task", "pause_queue")) == [fourth.id, third.id, first.id]
    assert await found(about=["/tasks/1"]) == [second.id, first.id]
    assert await found(about=["/tasks/12", "/tasks/name:x"]) == [third.id]
    assert await found(about=["/tasks/1"], actor="ada") == [first.id]
    assert await found(text='100% "SURE" ü') == [second.id]
    assert await found(text="100_") == []
    assert await found(text="abc", actions=("pause_queue",)) == [fourth.id]
    assert await found(since=first.at, until=fourth.at) == [fourth.id, third.id, second.id, first.id]
    assert await found(since=fourth.at + 1) == []
    assert await found(until=first.at - 1) == []


async def test_an_entry_that_was_changed_or_taken_out_is_noticed(store):
    from noonbell.stores.sql.statement import Execute

    await store.write_audit([deed(number) for number in range(5)])

    def meddle(_):
        yield Execute("update audit set deed = replace(deed, 'ada', 'eve') where id = 3")

    await store._write(meddle)
    assert (await store.broken_audit())[0] == 3
    assert (await store.broken_audit(since=5)) == (None, 5)

    def take_out(_):
        yield Execute("delete from audit where id = 3")

    await store._write(take_out)
    assert (await store.broken_audit())[0] == 4
