"""Whoever has the store without the key has no secret (S6); whoever has the key notices nothing of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration.api.conftest import url_of
from integration.api.serving import Api, serving
from integration.web.asking import signed_in
from noonbell import sealing
from noonbell.cli import main
from noonbell.errors import InvalidState
from noonbell.model.access import Role
from noonbell.model.alert import Channel
from noonbell.model.request import TaskChange
from noonbell.model.task import Task
from noonbell.service.secrets import rotate
from noonbell.settings import AuthSettings, ExecutorSettings, SecretSettings
from noonbell.stores import open_store
from security.planting import Planted, canary, dumped, ended, found_in, parrots
from services.ports import reserved_port

STORES = ["sqlite", "postgres", "mariadb"]


@contextlib.asynccontextmanager
async def working(url: str, key_file: Path | None, planted: Planted | None = None, **more: Any) -> AsyncIterator[Api]:
    """A server whose node works, too."""
    if planted is not None:
        more["executor"] = ExecutorSettings(global_headers={"X-Secret-Everywhere": planted.everywhere})
    keys = SecretSettings(key_file=None if key_file is None else str(key_file))
    async with serving(url, secrets=keys, **more) as api:
        await api.parts.node.start()
        try:
            yield api
        finally:
            await api.parts.node.stop(1)


async def plant(api: Api, planted: Planted, target: str) -> int:
    """A canary everywhere, changed and run, with a failure that alerts tell of."""
    task = int((await api.good("POST", "/tasks", planted.task(target), 201))["id"])
    for other in planted.others():
        await api.good("POST", "/tasks", other, 201)
    for channel in planted.channels(target):
        await api.good("POST", "/alerts/channels", channel, 201)
    await api.good("PATCH", f"/tasks/{task}", {"priority": 3})
    shown = await api.good("GET", f"/tasks/{task}")
    await api.good("PUT", f"/tasks/{task}", {**shown, "priority": 4})
    run = await ended(api, await api.trigger(task))
    assert run["status"] == "SUCCESS", run
    await api.good("POST", "/subscriptions", planted.webhook(target), 201)
    assert (await api.good("POST", "/subscriptions/hook/test"))["delivered"]
    return task


@pytest.mark.parametrize("kind", STORES)
async def test_a_dump_of_every_table_holds_no_secret(kind, request, key_file):
    url, planted = url_of(kind, request), Planted()
    async with parrots() as parrot, working(url, key_file, planted) as api:
        await plant(api, planted, parrot.url())
        heard = parrot.asked[0].headers
        assert heard["authorization"] == f"Bearer {planted.authorization}"
        assert heard["x-secret-everywhere"] == planted.everywhere
        assert "webhook-signature" in heard
        text = await dumped(url)
    assert "sealed:v1:k1:" in text
    assert planted.found_in(text) == []
    assert planted.found_in(await dumped(url)) == []


@pytest.mark.parametrize("kind", STORES)
async def test_a_dump_of_every_table_holds_no_secret_of_a_call(kind, request, tmp_path):
    """One that was made and told, one that failed, one that waits: then with another key than it was sealed with."""
    url, token = url_of(kind, request), canary("call")
    with reserved_port() as nobody:
        await call_and_rotate(url, tmp_path / "keys", token, nobody)


async def call_and_rotate(url: str, key_file: Path, token: str, nobody: int) -> None:
    old, new = sealing.new_key_line("k1"), sealing.new_key_line("k2")
    keys(key_file, old)
    async with parrots() as parrot:
        asked = {"url": parrot.url(), "headers": {"Authorization": f"Bearer {token}"}, "body": "1"}
        async with working(url, key_file) as api:
            told = {"success_url": parrot.url(), "failure_url": parrot.url()}
            done = await api.good("POST", "/calls", {**asked, **told})
            refused = {**asked, "url": f"http://127.0.0.1:{nobody}/", "retry_policy": {"max_retries": 0}}
            batch = {"calls": [refused, {**asked, "delay_seconds": 3_600, "key": "later"}]}
            failed, later = (await api.good("POST", "/calls/batch", batch))["calls"]
            assert (await ended(api, done["run_id"]))["status"] == "SUCCESS"
            assert (await ended(api, failed["run_id"]))["status"] == "FAILED"
            assert parrot.asked[0].headers["authorization"] == f"Bearer {token}"
            text = await dumped(url)
        assert "sealed:v1:k1:" in text
        assert found_in(text, [token]) == []
        keys(key_file, new, old)
        store = open_store(url)
        await store.open()
        try:
            assert (await rotate(store, sealing.from_file(str(key_file)))).calls == 3
        finally:
            await store.close()
        keys(key_file, new)
        async with working(url, key_file) as api:
            parrot.asked.clear()
            await api.good("POST", f"/runs/{later['run_id']}/promote")
            assert (await ended(api, later["run_id"]))["status"] == "SUCCESS"
            assert parrot.asked[-1].headers["authorization"] == f"Bearer {token}"
        assert found_in(await dumped(url), [token]) == []


async def test_a_sealed_text_is_not_taken_from_who_makes_a_call(sqlite_url, key_file):
    """Else somebody with a copy of the store could have it opened by a call of his own."""
    async with working(sqlite_url, key_file) as api:
        stolen = (await api.store.task(await api.create(secret="s" * 20))).spec.secret
        told = await api.call("POST", "/calls", {"url": "http://127.0.0.1:8080/", "headers": {"X-Anything": stolen}})
        assert (told.status, list(told.body["details"])) == (400, ["headers.X-Anything"])


async def test_without_a_key_the_dump_does_hold_them(sqlite_url):
    """The look for canaries finds them where they are."""
    planted = Planted()
    async with parrots() as parrot, working(sqlite_url, None) as api:
        await plant(api, planted, parrot.url())
    assert set(planted.found_in(await dumped(sqlite_url))) == set(planted.all()) - {planted.everywhere}


async def test_a_masked_value_that_is_written_back_changes_nothing(sqlite_url, key_file):
    planted = Planted()
    async with working(sqlite_url, key_file) as api:
        task = await api.create(**planted.task("http://127.0.0.1:9/"))
        before = (await api.store.task(task)).spec
        shown = await api.good("GET", f"/tasks/{task}")
        assert shown["headers"]["Authorization"] == shown["secret"] == "***"
        answer = await api.good("PUT", f"/tasks/{task}", shown)
        assert (await api.store.task(task)).spec == before
        assert answer["version"] == 1
        declared = {"owner": "x", "adopt": True, "tasks": [planted.task("http://127.0.0.1:9/")]}
        assert (await api.good("POST", "/tasks/apply", declared))["changed"] != []  # its owner
        assert (await api.good("POST", "/tasks/apply", declared))["unchanged"] == ["planted"]
        masked = {**declared, "tasks": [planted.task("http://127.0.0.1:9/", headers=shown["headers"], secret="***")]}
        assert (await api.good("POST", "/tasks/apply", masked))["unchanged"] == ["planted"]


@pytest.mark.parametrize("field", ["secret", "headers"])
async def test_a_sealed_text_is_not_taken_from_a_caller(sqlite_url, key_file, field):
    """Else somebody with a copy of the store could have it opened by a task of his own."""
    async with working(sqlite_url, key_file) as api:
        task = await api.create(secret="s" * 20)
        stolen = (await api.store.task(task)).spec.secret
        value = stolen if field == "secret" else {"X-Anything": stolen}
        told = await api.call("POST", "/tasks", {"name": "b", "target_url": "http://127.0.0.1:9/", field: value})
        assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
        channel = {"name": "c", "url": "http://127.0.0.1:9/", field: value}
        assert (await api.bad("POST", "/alerts/channels", channel))[0] == 400
        if field == "secret":
            given = {"name": "s", "url": "http://127.0.0.1:8999/", field: value}
            assert (await api.bad("POST", "/subscriptions", given))[0] == 400


def keys(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("kind", STORES)
async def test_after_a_rotation_the_old_key_is_not_needed_and_does_not_open(kind, request, tmp_path):
    url, planted = url_of(kind, request), Planted()
    old, new = sealing.new_key_line("old"), sealing.new_key_line("new")
    file = tmp_path / "keys"
    async with parrots() as parrot, working(url, keys(file, old)) as api:
        task = await plant(api, planted, parrot.url())
        versions = (await api.good("GET", f"/tasks/{task}"))["version"]

    async with working(url, keys(file, new, old)) as api:
        await api.good("PATCH", f"/tasks/{task}", {"secret": "***", "priority": 9})
        assert (await api.store.task(task)).spec.secret.startswith("sealed:v1:old:"), "an edit alone seals nothing anew"
        done = await rotate(api.store, sealing.from_file(str(file)), batch=2)
        others = len(planted.others())
        assert (done.tasks, done.versions, done.channels) == (1 + others, versions + 1 + others, 2)
        assert (await rotate(api.store, sealing.from_file(str(file)))).all == 0

    text = await dumped(url)
    if kind != "sqlite":  # whose free pages remember
        assert "sealed:v1:old:" not in text
    async with parrots() as parrot, working(url, keys(file, new)) as api:
        await api.store.change_task(task, partial(_moved, parrot.url()))
        assert (await ended(api, await api.trigger(task)))["status"] == "SUCCESS"
        assert parrot.asked[0].headers["authorization"] == f"Bearer {planted.authorization}"
    with pytest.raises(InvalidState, match="'new'"):
        await _opened_channel(url, sealing.from_file(str(keys(file, old))))


@pytest.mark.parametrize("kind", STORES)
async def test_a_rotation_reseals_what_earlier_code_sealed_under_the_same_key(kind, request, tmp_path):
    url, file = url_of(kind, request), keys(tmp_path / "keys", "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
    before = "sealed:v1:old:n4a7tomWby3NHKXjTPYZZJD4j0cceDkYLrKuacK0Wnq+Ql37Xks="  # "Bearer abc", by AES-GCM
    async with parrots() as parrot, working(url, file) as api:
        task = (await api.good("POST", "/tasks", {"name": "a", "target_url": parrot.url()}, 201))["id"]
        await api.store.change_task(task, lambda found: _with_header(found, before))
        assert (await ended(api, await api.trigger(task)))["status"] == "SUCCESS"
        done = await rotate(api.store, sealing.from_file(str(file)))
        assert done.tasks == 1
        kept = (await api.store.task(task)).spec.headers["Authorization"]
        assert kept.startswith("sealed:v1:old:siv.")
        assert (await rotate(api.store, sealing.from_file(str(file)))).all == 0
        assert (await ended(api, await api.trigger(task)))["status"] == "SUCCESS"
        assert [asked.headers["authorization"] for asked in parrot.asked] == ["Bearer abc", "Bearer abc"]


def _with_header(task: Task, value: str) -> TaskChange:
    return TaskChange(spec=msgspec.structs.replace(task.spec, headers={"Authorization": value}), status=task.status)


def _moved(url: str, task: Task) -> TaskChange:
    """A change that the service would refuse: it carries the secrets to another origin."""
    return TaskChange(spec=msgspec.structs.replace(task.spec, target_url=url), status=task.status)


async def _opened_channel(url: str, sealer: sealing.Sealer) -> Channel:
    from noonbell.service.secrets import opened

    store = open_store(url)
    await store.open()
    try:
        return opened((await store.alert_channels())[0], sealer)
    finally:
        await store.close()


async def test_a_store_of_plain_secrets_is_sealed_by_a_rotation(postgres_url, key_file):
    planted = Planted()
    async with parrots() as parrot, working(postgres_url, None) as api:
        await plant(api, planted, parrot.url())
    assert planted.found_in(await dumped(postgres_url)) != []
    store = open_store(postgres_url)
    await store.open()
    try:
        await rotate(store, sealing.from_file(str(key_file)))
    finally:
        await store.close()
    assert planted.found_in(await dumped(postgres_url)) == []


async def test_after_a_vacuum_the_free_pages_of_a_file_remember_nothing(sqlite_url, key_file):
    planted = Planted()
    async with parrots() as parrot, working(sqlite_url, None) as api:
        await plant(api, planted, parrot.url())
    store = open_store(sqlite_url)
    await store.open()
    try:
        await rotate(store, sealing.from_file(str(key_file)))
    finally:
        await store.close()
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("vacuum")
    assert planted.found_in(await dumped(sqlite_url)) == []


async def test_without_the_key_a_run_fails_and_says_which_key_it_wants(sqlite_url, tmp_path):
    file = tmp_path / "keys"
    async with parrots() as parrot:
        async with working(sqlite_url, keys(file, sealing.new_key_line("lost"))) as api:
            task = await api.create(headers={"Authorization": "Bearer x"}, target_url=parrot.url())
        for other in (None, keys(file, sealing.new_key_line("other"))):
            async with working(sqlite_url, other) as api:
                run = await ended(api, await api.trigger(task))
                assert run["status"] == "FAILED"
                assert "key 'lost', which secrets.key_file does not hold" in run["error_message"]
                told = await api.call("PATCH", f"/tasks/{task}", {"priority": 1})
                assert told.status == 400
                assert "headers.Authorization" in told.body["details"]
        assert parrot.asked == []
        async with working(sqlite_url, file) as api:  # a new value is the way out
            await api.good("PATCH", f"/tasks/{task}", {"headers": {"Authorization": "Bearer new"}})
            assert (await ended(api, await api.trigger(task)))["status"] == "SUCCESS"


def test_the_command_makes_keys_and_rotates(tmp_path, sqlite_url, capsys, monkeypatch):
    with contextlib.suppress(SystemExit):
        main(["secrets", "key", "k1"])
    line = capsys.readouterr().out.strip()
    assert line.startswith("k1:")
    config = tmp_path / "noonbell.yaml"
    config.write_text(f"store: {{url: '{sqlite_url}'}}\nsecrets: {{key_file: '{keys(tmp_path / 'keys', line)}'}}\n")
    with contextlib.suppress(SystemExit):
        main(["migrate", "--config", str(config)])
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main(["secrets", "rotate", "--config", str(config)])
    assert "encrypted with key k1: 0 tasks" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["secrets", "rotate", "--store", sqlite_url])
    assert caught.value.code != 0
    assert "secrets.key_file" in capsys.readouterr().err
    (tmp_path / "keys").chmod(0o644)
    with pytest.raises(SystemExit) as caught:
        main(["secrets", "rotate", "--config", str(config)])
    assert caught.value.code != 0
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize("kind", STORES)
async def test_a_dump_of_every_table_holds_no_token(kind, request):
    """S12, S17: API tokens, sessions and callback tokens, used in every way, are in no table; their hashes are."""
    url = url_of(kind, request)
    async with parrots() as parrot, working(url, None, auth=AuthSettings(enabled=True)) as api:
        _, ada = await api.parts.access.create("ada", Role.ADMIN, by="command line")
        admin = {"Authorization": f"Bearer {ada}"}
        made = await api.good("POST", "/tokens", {"name": "ci", "role": "operator"}, 201, headers=admin)
        cookie = await signed_in(api)
        form = {"name": "page", "role": "viewer", "days": "1"}
        page = await api.call("POST", "//settings/tokens", data=form, headers={**cookie, "Origin": api.root})
        shown = re.findall(r"nb_[\w-]{43}", page.text)[0]
        for secret in (made["token"], shown):
            await api.good("GET", "/tasks", headers={"Authorization": f"Bearer {secret}"})
        await api.good("DELETE", "/tokens/page", headers=admin)
        heard = await called_back(api, parrot, admin)
        secrets = [ada, made["token"], shown, cookie["cookie"].partition("=")[2], *heard]
        text = await dumped(url)
    assert found_in(text, secrets) == []
    assert found_in(await dumped(url), secrets) == []
    tokens = [ada, made["token"], shown, *heard]
    assert [each for each in tokens if hashlib.sha256(each.encode()).hexdigest() not in text] == []


async def called_back(api: Api, parrot: Any, admin: dict[str, str]) -> list[str]:
    """The callback tokens that a target has heard of three runs: one calls back, one twice, one never."""
    task = {"name": "back", "target_url": parrot.url(), "exec_type": "ASYNC", "http_method": "POST"}
    task["body_template"] = '{"token": "{{callback_token}}", "url": "{{callback_url}}"}'
    await api.good("POST", "/tasks", {**task, "max_concurrency": None}, 201, headers=admin)
    heard = []
    for times in (1, 2, 0):
        run = int((await api.good("POST", "/tasks/name:back/trigger", headers=admin))["run_id"])
        assert (await ended(api, run, headers=admin))["status"] == "CALLBACK_PENDING"
        token = parrot.asked[-1].headers["x-callback-token"]
        for _ in range(times):
            await api.good("POST", f"/callbacks/{token}", {"status": "SUCCESS", "data": {"rows": 1}})
        heard.append(token)
    assert len(set(heard)) == 3
    return heard


async def test_a_new_sqlite_file_and_its_log_are_for_their_owner_alone(tmp_path: Path):
    before = os.umask(0o022)
    try:
        store = open_store(f"sqlite:///{tmp_path / 'new.db'}")
        await store.open()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.iterdir())}  # noqa: ASYNC240 - a folder of three files
        await store.close()
    finally:
        os.umask(before)
    assert modes == {"new.db": 0o600, "new.db-wal": 0o600, "new.db-shm": 0o600}
