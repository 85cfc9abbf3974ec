"""Secrets sealed anew, on every store."""

from __future__ import annotations

import msgspec
import pytest

from conformance.store.builders import every, http
from noonbell.model.alert import Channel
from noonbell.model.request import TaskChange


def marked(fields):
    """`reseal` that can be seen: a mark on the header and on the secret, once."""
    found = dict(fields)
    found["headers"] = {name: f"new {value.removeprefix('new ')}" for name, value in fields["headers"].items()}
    if fields.get("secret"):
        found["secret"] = f"new {fields['secret'].removeprefix('new ')}"
    return found


async def task(store, name, **fields):
    return await store.create_task(http(name, headers={"Authorization": "a"}, secret="s", **fields))


async def test_the_secrets_of_a_task_are_written_and_nothing_else_of_it(store, clock):
    made = await task(store, "a", schedule=every(60))
    clock.advance(5)
    assert await store.reseal_tasks(-1, 10, marked) == (None, 1)
    found = await store.task(made.id)
    spec = msgspec.structs.replace(made.spec, headers={"Authorization": "new a"}, secret="new s")
    assert found == msgspec.structs.replace(made, spec=spec)
    assert await store.reseal_tasks(-1, 10, marked) == (None, 0)


async def test_a_walk_in_batches_meets_every_task_once_and_the_deleted_ones_too(store):
    made = [await task(store, str(number)) for number in range(5)]
    await store.delete_task(made[2].id)
    seen = []

    def reseal(fields):
        seen.append(fields)
        return fields

    after = -1
    sizes = []
    while after is not None:
        before = len(seen)
        after, written = await store.reseal_tasks(after, 2, reseal)
        assert written == 0
        sizes.append(len(seen) - before)
    assert sizes == [2, 2, 1]
    assert all(fields == {"headers": {"Authorization": "a"}, "secret": "s"} for fields in seen)


async def test_every_kept_version_is_written(store):
    made = await task(store, "a")
    for priority in (1, 2, 3):
        await store.change_task(
            made.id,
            lambda task, priority=priority: TaskChange(
                spec=msgspec.structs.replace(task.spec, priority=priority), status=task.status
            ),
        )
    place, written = (-1, 0), 0
    while place is not None:
        place, some = await store.reseal_versions(place, 3, marked)
        written += some
    versions = await store.task_versions(made.id)
    assert written == len(versions) == 4
    assert [version.spec.priority for version in versions] == [0, 1, 2, 3]
    assert {version.spec.secret for version in versions} == {"new s"}


async def test_channels_are_written_with_the_time_of_their_last_change_kept(store, clock):
    kept = await store.put_alert_channel(Channel(name="c", url="http://c.test/", headers={"X-Token": "t"}, secret="s"))
    clock.advance(60)
    assert await store.reseal_channels(marked) == 1
    (found,) = await store.alert_channels()
    assert found == msgspec.structs.replace(kept, headers={"X-Token": "new t"}, secret="new s")
    assert await store.reseal_channels(marked) == 0


async def test_what_cannot_be_opened_leaves_its_batch_as_it_was(store):
    first, _ = await task(store, "a"), await task(store, "b")
    count = 0

    def refuse_the_second(fields):
        nonlocal count
        count += 1
        if count % 2 == 0:
            raise ValueError("its key is lost")
        return marked(fields)

    with pytest.raises(ValueError, match="its key is lost"):
        await store.reseal_tasks(-1, 10, refuse_the_second)
    assert (await store.task(first.id)).spec.secret == "s"
