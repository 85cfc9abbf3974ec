"""Tokens and the audit log, on every store."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.errors import AlreadyExists, NotFound
from noonbell.model.access import AuditAction, Head, Role, hash_of, new_secret
from noonbell.sealing import Sealer, new_key_line, read_keys
from noonbell.service.audit_log import AuditLog
from noonbell.stores.sql.statement import Execute


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


def deed(number: int, actor: str | None = "ada") -> AuditAction:
    return AuditAction(
        actor=actor, action="create_task", subject=f"/tasks/{number}", details={"name": f"任务 {number}"}
    )


async def test_the_audit_log_is_without_a_gap_whoever_writes_at_the_same_time(store):
    await asyncio.gather(*(store.write_audit([deed(number), deed(number, "bob")]) for number in range(8)))
    entries = await store.audit_log(limit=100)
    assert [entry.id for entry in entries] == list(range(16, 0, -1))
    assert await flaws(store) == []
    assert await store.audit_end() == (entries[0], 16)
    assert {entry.deed.actor for entry in await store.audit_log(actor="bob")} == {"bob"}
    assert [entry.id for entry in await store.audit_log(before=3)] == [2, 1]


async def test_the_audit_log_is_narrowed_by_who_what_about_what_and_when(store):
    first, second, third, fourth = await store.write_audit(
        [
            AuditAction(actor="ada", action="create_task", subject="/api/v1/tasks/1"),
            AuditAction(
                actor="bob", action="trigger_task", subject="/tasks/1/trigger", details={"reason": '100% "sure" ü'}
            ),
            AuditAction(actor="ada", action="create_task", subject="/api/v1/tasks/12"),
            AuditAction(actor=None, action="pause_queue", subject="/queues/a", request_id="Abc"),
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


async def flaws(store, sealer=None, *expected: Head) -> list[tuple[str, int, int]]:
    state = await AuditLog(store, sealer).check(expected)
    return [(str(flaw.wrong), flaw.first, flaw.last) for flaw in state.flaws]


async def meddle(store, *statements: str) -> None:
    def work(_):
        for statement in statements:
            yield Execute(statement)

    await store._write(work)


async def test_an_entry_that_was_changed_or_taken_out_is_noticed(store):
    await store.write_audit([deed(number) for number in range(5)])
    await meddle(store, "update audit set deed = replace(deed, 'ada', 'eve') where id = 3")
    assert await flaws(store) == [("changed", 3, 3)]
    await meddle(store, "delete from audit where id = 3")
    assert await flaws(store) == [("changed", 4, 4)]


@pytest.mark.parametrize("column, value", [("actor", "eve"), ("action", "delete_task"), ("deed", "{")])
async def test_a_column_that_filters_look_at_is_part_of_the_entry(store, column, value):
    await store.write_audit([deed(number) for number in range(3)])
    await meddle(store, f"update audit set {column} = '{value}' where id = 2")
    assert await flaws(store) == [("changed", 2, 2)]


async def test_entries_are_read_from_a_number_on_oldest_first(store):
    written = await store.write_audit([deed(number) for number in range(5)])
    assert await store.audit_entries(1, 2) == written[:2]
    assert await store.audit_entries(4, 10) == written[3:]
    assert await store.audit_entries(6, 10) == []


async def test_a_log_without_entries_ends_nowhere(store):
    assert await store.audit_end() == (None, 0)
    assert await flaws(store) == []


async def test_each_entry_is_kept_with_the_signature_of_its_hash(store):
    written = await store.write_audit([deed(1), deed(2)], lambda text: f"k:{text[:4]}")
    assert [entry.signature for entry in written] == [f"k:{entry.hash[:4]}" for entry in written]
    assert await store.audit_entries(1, 10) == written
    assert (await store.audit_end()).entry == written[-1]
    assert await store.audit_log() == written[::-1]


async def test_nodes_with_and_without_a_key_append_to_one_chain(store, another_node):
    """While a key is given to one node after the other; the check lists what the others write meanwhile."""
    keyed, plain = Sealer(read_keys(new_key_line("k1").encode())), await another_node()
    await store.write_audit([deed(0)], keyed.sign)
    await asyncio.gather(
        *(store.write_audit([deed(number)], keyed.sign) for number in range(6)),
        *(plain.write_audit([deed(number)]) for number in range(6)),
    )
    entries = await store.audit_entries(1, 100)
    assert [entry.id for entry in entries] == list(range(1, 14))
    unsigned = {entry.id for entry in entries if entry.signature is None}
    told = {number for _, first, last in await flaws(store, keyed) for number in range(first, last + 1)}
    assert (len(unsigned), told) == (6, unsigned)
    assert {kind for kind, _, _ in await flaws(store, keyed)} == {"unsigned"}
    assert await flaws(store) == []
    assert await flaws(store, keyed, Head(13, entries[-1].hash)) == []


async def test_a_node_appends_to_what_is_there_and_not_to_what_it_wrote_itself(store, another_node):
    """The store went back to an earlier state, and another node was first to write."""
    other = await another_node()
    await store.write_audit([deed(number) for number in range(3)])
    await meddle(store, "delete from audit where id > 2", "update counters set value = 2 where name = 'audit'")
    await other.write_audit([deed(7, "bob")])
    await store.write_audit([deed(8)])
    assert [entry.deed.actor for entry in await store.audit_entries(1, 10)] == ["ada", "ada", "bob", "ada"]
    assert await flaws(store) == []


async def test_what_was_cut_off_is_missed_by_the_counter_and_by_an_expected_head(store):
    written = await store.write_audit([deed(number) for number in range(5)])
    head = Head(5, written[-1].hash)
    await meddle(store, "delete from audit where id > 3")
    assert await flaws(store) == [("cut", 4, 5)]
    await meddle(store, "update counters set value = 3 where name = 'audit'")
    assert await flaws(store) == []
    assert await flaws(store, None, head) == [("cut", 4, 5)]
    await store.write_audit([deed(number) for number in range(9)])
    assert await flaws(store) == []
    assert await flaws(store, None, head) == [("replaced", 5, 5)]
    assert await flaws(store, None, Head(3, written[2].hash)) == []
