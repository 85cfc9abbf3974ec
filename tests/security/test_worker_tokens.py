"""S14: a worker's token is bound to queues. What it may call is in the table of roles; what it may touch is here.

And tokens that were made before the role existed do what they did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration.api.conftest import url_of
from integration.api.serving import JOB, Api, serving
from integration.support import execute
from integration.web.asking import get, post, signed_in
from noonbell.cli import main
from noonbell.model.access import Role, hash_of, new_secret
from noonbell.settings import AuthSettings
from noonbell.stores import open_store
from noonbell.stores.migrations import STEPS
from security.role_table import MAY, OPEN, PAGES, ROUTES, WORKER
from security.routes import address_of, statuses

MORE = {
    "settle": {"outcome": "success"},
    "progress": {"current": 1},
    "log": {"message": "x", "level": "info"},
    "extend": {"seconds": 60},
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://", auth=AuthSettings(enabled=True, session_key="k" * 32)) as api:
        yield api


async def bearer(api: Api, role: Role, *queues: str) -> dict[str, str]:
    _, secret = await api.parts.access.create(f"{role} {' '.join(queues)}", role, queues=queues)
    return {"Authorization": f"Bearer {secret}"}


async def waiting(api: Api, operator: dict[str, str], *queues: str) -> None:
    """One run in each queue."""
    for queue in queues:
        task = {**JOB, "name": queue, "queue": queue, "payload": {"of": queue}}
        await api.good("POST", "/tasks", task, 201, headers=operator)
        await api.good("POST", f"/tasks/name:{queue}/trigger", headers=operator)


async def claimed(api: Api, headers: dict[str, str], worker: str, *queues: str) -> Any:
    asked = {"queues": list(queues), "max": 10, "wait_seconds": 0}
    (run,) = (await api.good("POST", f"/workers/{worker}/claim", asked, headers=headers))["runs"]
    return run


def held(run: Any, worker: str, verb: str) -> dict[str, Any]:
    return {"worker_id": worker, "token": run["token"], **MORE[verb]}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "mariadb"])
async def test_a_token_of_one_queue_does_all_of_a_workers_work_there(kind, request):
    async with serving(url_of(kind, request), auth=AuthSettings(enabled=True)) as api:
        operator, image = await bearer(api, Role.OPERATOR), await bearer(api, Role.WORKER, "image")
        await waiting(api, operator, "image", "finance")
        # without a queue it is the token's own
        (run,) = (await api.good("POST", "/workers/w/claim", {"max": 10, "wait_seconds": 0}, headers=image))["runs"]
        assert (run["queue"], run["payload"]) == ("image", {"of": "image"})
        beats = {"runs": [{"run_id": run["run_id"], "token": run["token"]}]}
        told = await api.good("POST", "/workers/w/heartbeat", beats, headers=image)
        assert told["runs"][0]["lease_expires_at"] is not None
        for verb in ("progress", "log", "extend", "settle"):
            await api.good("POST", f"/runs/{run['run_id']}/{verb}", held(run, "w", verb), headers=image)
        shown = await api.good("GET", f"/runs/{run['run_id']}", headers=operator)
        assert shown["status"] == "SUCCESS"


async def test_it_does_not_claim_from_another_queue(api: Api):
    operator, image = await bearer(api, Role.OPERATOR), await bearer(api, Role.WORKER, "image")
    await waiting(api, operator, "image", "finance")
    for queues in (["finance"], ["image", "finance"], ["default"]):
        told = await api.call("POST", "/workers/w/claim", {"queues": queues, "wait_seconds": 0}, headers=image)
        assert (told.status, told.code) == (403, "FORBIDDEN")
    for queues in ([], ["http"], [["finance"]], "finance", {"finance": 1}, [None]):
        told = await api.call("POST", "/workers/w/claim", {"queues": queues, "wait_seconds": 0}, headers=image)
        assert told.status in (400, 403), queues
    assert (await claimed(api, operator, "o", "finance"))["payload"] == {"of": "finance"}


@pytest.mark.parametrize("verb", MORE)
async def test_it_does_not_touch_a_run_of_another_queue_with_all_that_its_worker_knows(api: Api, verb):
    """The worker's name and the fencing token are right; the queue is not."""
    operator, image = await bearer(api, Role.OPERATOR), await bearer(api, Role.WORKER, "image")
    await waiting(api, operator, "finance")
    run = await claimed(api, operator, "theirs", "finance")
    for worker in ("theirs", "mine"):
        told = await api.call("POST", f"/runs/{run['run_id']}/{verb}", held(run, worker, verb), headers=image)
        assert (told.status, told.code) == (403, "FORBIDDEN")
    shown = await api.good("GET", f"/runs/{run['run_id']}", headers=operator)
    assert (shown["status"], shown["progress"]) == ("RUNNING", None)
    await api.good("POST", f"/runs/{run['run_id']}/{verb}", held(run, "theirs", verb), headers=operator)


async def test_it_does_not_speak_for_a_worker_of_other_queues(api: Api):
    operator, image = await bearer(api, Role.OPERATOR), await bearer(api, Role.WORKER, "image")
    await waiting(api, operator, "finance")
    run = await claimed(api, operator, "theirs", "finance")
    beats = {"runs": [{"run_id": run["run_id"], "token": run["token"]}]}
    assert await api.bad("POST", "/workers/theirs/heartbeat", beats, headers=image) == (403, "FORBIDDEN")
    asked = {"queues": ["image"], "wait_seconds": 0}
    assert await api.bad("POST", "/workers/theirs/claim", asked, headers=image) == (403, "FORBIDDEN")
    (worker,) = (await api.good("GET", "/workers", headers=operator))["items"]
    assert worker["queues"] == ["finance"]


async def test_over_the_whole_table_it_may_call_six_routes_and_those_that_are_open(api: Api):
    """There is something behind the addresses: task 1, a run of it that worker `w` holds, and queue `q`."""
    operator, image = await bearer(api, Role.OPERATOR), await bearer(api, Role.WORKER, "q")
    await waiting(api, operator, "q")
    run = await claimed(api, image, "w", "q")
    assert run["task_id"] == 1
    found = await statuses(api, image, run_id=str(run["run_id"]))
    let_in = {line for line, status in found.items() if status not in (401, 403)}
    assert len(ROUTES) > 90
    assert let_in == {*WORKER.split("\n"), *OPEN.split("\n")} - {""}


@pytest.mark.parametrize("by", ["session", "header"])
async def test_in_the_dashboard_it_opens_what_needs_no_token_and_nothing_else(api: Api, by):
    operator = await bearer(api, Role.OPERATOR)
    await waiting(api, operator, "q")
    headers = await signed_in(api, Role.WORKER) if by == "session" else await bearer(api, Role.WORKER, "q")
    sent = {**headers, "Accept": "text/html", "Origin": api.root}
    let_in = set()
    for line in PAGES:
        method, path = line.split(" ")
        if line in ("POST /login", "POST /logout"):
            continue  # one is 401 without a good token, the other would end the session
        told = await api.call(method, f"/{address_of(path)}", headers=sent, allow_redirects=False)
        leads_to_login = "login?next=" in told.headers.get("location", "")
        if told.status not in (401, 403) and not leads_to_login:
            let_in.add(line)
    assert let_in == {"GET /login", "GET /oidc", "GET /oidc-callback", "POST /preferences"}


# Tokens of before

BEFORE = max(step.number for step in STEPS if step.number < 11)
"""The last step of the schema without the role: step 11 brought it."""


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
async def test_tokens_of_a_store_from_before_the_role_do_what_they_did(kind, request):
    """Written as the code of that schema wrote them, then the store is upgraded."""
    url, roles = url_of(kind, request), (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    secrets = {role: new_secret() for role in roles}
    store = open_store(url)
    await store.open()
    await store.migrate(to=BEFORE)
    for number, (role, secret) in enumerate(secrets.items(), 1):
        values = f"{number}, '{role}', '{role}', '{role}', '{hash_of(secret)}', '{secret[:10]}', 1"
        await execute(
            store, f"insert into tokens (id, name, live_name, role, hash, shown, created_at) values ({values})"
        )
    await execute(store, "update counters set value = 3 where name = 'tokens'")
    await store.close()
    async with serving(url, auth=AuthSettings(enabled=True)) as api:
        headers = {role: {"Authorization": f"Bearer {secret}"} for role, secret in secrets.items()}
        for role in roles:
            found = await statuses(api, headers[role])
            assert {line for line, status in found.items() if status in (401, 403)} == {
                line for line, needed in ROUTES.items() if needed not in MAY[role]
            }
        operator = headers[Role.OPERATOR]
        await waiting(api, operator, "image", "finance")
        for queue in ("image", "finance"):
            run = await claimed(api, operator, "w", queue)
            assert run["payload"] == {"of": queue}
            await api.good("POST", f"/runs/{run['run_id']}/settle", held(run, "w", "settle"), headers=operator)
        body = {"name": "new", "role": "worker", "queues": ["image"]}
        assert (await api.good("POST", "/tokens", body, 201, headers=headers[Role.ADMIN]))["id"] == 4


# How it is made


async def test_it_is_made_with_its_queues_by_the_api_and_in_the_dashboard(api: Api):
    admin = await bearer(api, Role.ADMIN)
    body = {"name": "w1", "role": "worker", "queues": ["image", "pdf"]}
    made = await api.good("POST", "/tokens", body, 201, headers=admin)
    assert (made["role"], made["queues"]) == ("worker", ["image", "pdf"])
    cookie = await signed_in(api)
    form = {"name": "w2", "role": "worker", "queues": "image, pdf", "days": "1"}
    assert (await post(api, "/settings/tokens", form, **cookie))[0] == 200
    assert '<span class="tag">pdf</span>' in await get(api, "/settings/tokens", headers=cookie)
    listed = (await api.good("GET", "/tokens", headers=admin))["items"]
    assert [(each["name"], each["queues"]) for each in listed if each["queues"]] == [
        ("w1", ["image", "pdf"]),
        ("w2", ["image", "pdf"]),
    ]
    status, _, text = await post(api, "/settings/tokens", {**form, "name": "w3", "queues": ""}, **cookie)
    assert (status, 'aria-describedby="p-queues"' in text) == (400, True)


@pytest.mark.parametrize(
    ("role", "queues"),
    [
        ("worker", []),
        ("worker", None),
        ("worker", ["http"]),
        ("worker", ["a\n"]),
        ("worker", "a"),
        ("admin", ["a"]),
    ],
)
async def test_queues_that_make_no_sense_are_refused(api: Api, role, queues):
    admin = await bearer(api, Role.ADMIN)
    told = await api.call("POST", "/tokens", {"name": "x", "role": role, "queues": queues}, headers=admin)
    assert told.status == 400, told.text
    assert any(field.startswith("queues") for field in told.body["details"])


def test_the_command_line_makes_it(sqlite_url, capsys):
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "token",
                "create",
                "--role",
                "worker",
                "--queue",
                "a",
                "--queue",
                "b",
                "--name",
                "w",
                "--store",
                sqlite_url,
            ]
        )
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("nb_")
    with pytest.raises(SystemExit):
        main(["token", "list", "--store", sqlite_url])
    assert "worker (a, b)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["token", "create", "--role", "worker", "--name", "w2", "--store", sqlite_url])
    assert ended.value.code
    assert "queues" in capsys.readouterr().err
