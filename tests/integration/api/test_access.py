"""Who may call what, and who did what, afterwards. Every route by every role is in tests/security/test_roles.py."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from integration.api.conftest import url_of
from integration.api.serving import HTTP, Api, serving
from noonbell.model.access import Role
from noonbell.settings import AuthSettings

AUTH = {"auth": AuthSettings(enabled=True)}
VALUES = {"id": "1", "run_id": "1", "plan_id": "ab", "callback_token": "x" * 43, "name": "q", "worker_id": "w"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://", **AUTH) as api:
        yield api


async def token(api: Api, role: Role, name: str | None = None) -> dict[str, str]:
    _, secret = await api.parts.access.create(name or role, role)
    return {"Authorization": f"Bearer {secret}"}


async def operations(api: Api) -> list[tuple[str, str, str]]:
    """Method, address and name of every route there is."""
    admin = await token(api, Role.ADMIN, "reader of the description")
    document = await api.good("GET", "//openapi.json", headers=admin)
    found = [("GET", "/openapi.json", "description"), ("GET", "/docs", "docs")]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            name = re.sub(rf"_{method}$", "", operation["operationId"])
            address = re.sub(r"\{(\w+)\}", lambda part: VALUES.get(part[1], "x"), path)
            found.append((method.upper(), address, name))
    return found


async def test_without_a_token_every_route_is_401_but_four(api: Api):
    answers = {}
    for method, address, name in await operations(api):
        async with api.session.request(method, api.root + address) as answer:  # whose body may have no end
            answers[name] = answer.status
    assert {name for name, status in answers.items() if status != 401} == {"healthz", "livez", "readyz", "callback"}


async def test_a_wrong_or_revoked_token_is_401(api: Api):
    assert (await api.bad("GET", "/tasks", headers={"Authorization": "Bearer nb_nonsense"})) == (401, "UNAUTHORIZED")
    assert (await api.bad("GET", "/tasks", headers={"Authorization": "Basic bmI6eA=="})) == (401, "UNAUTHORIZED")
    headers = await token(api, Role.VIEWER)
    await api.good("GET", "/tasks", headers=headers)
    await api.parts.access.revoke("viewer")
    assert (await api.bad("GET", "/tasks", headers=headers)) == (401, "UNAUTHORIZED")


async def test_guessing_tokens_is_slowed_down_and_good_ones_are_not(api: Api):
    good = await token(api, Role.VIEWER)
    statuses = [
        (await api.call("GET", "/tasks", headers={"Authorization": f"Bearer nb_{guess}"})).status
        for guess in range(1_000)
    ]
    assert statuses.count(429) >= 950
    told = await api.call("GET", "/tasks", headers={"Authorization": "Bearer nb_x"})
    assert int(told.headers["retry-after"]) > 0
    await api.good("GET", "/tasks", headers=good)


async def test_a_token_has_256_bits_and_no_two_are_the_same(api: Api):
    """S12: 43 letters of base64 after the prefix."""
    admin = await token(api, Role.ADMIN)
    made = [
        await api.good("POST", "/tokens", {"name": f"t{n}", "role": "viewer"}, 201, headers=admin) for n in range(5)
    ]
    secrets = {each["token"] for each in made}
    assert len(secrets) == 5
    assert all(re.fullmatch(r"nb_[A-Za-z0-9_-]{43}", secret) for secret in secrets)


async def test_tokens_are_made_listed_and_revoked_over_the_api(api: Api):
    admin = await token(api, Role.ADMIN)
    made = await api.good("POST", "/tokens", {"name": "ci", "role": "operator"}, 201, headers=admin)
    assert made["token"].startswith("nb_")
    listed = await api.call("GET", "/tokens", headers=admin)
    assert made["token"] not in listed.text
    assert [item["name"] for item in listed.body["items"]] == ["admin", "ci"]
    await api.good("POST", "/tasks", HTTP, 201, headers={"Authorization": f"Bearer {made['token']}"})
    assert (await api.bad("POST", "/tokens", {"name": "ci", "role": "viewer"}, headers=admin))[0] == 409
    assert (await api.good("DELETE", "/tokens/ci", headers=admin)) == {"name": "ci", "revoked": True}
    assert (await api.bad("DELETE", "/tokens/ci", headers=admin))[0] == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "", "role": "viewer"}, "name"),
        ({"name": "a\nb", "role": "viewer"}, "name"),
        ({"name": "a", "role": "root"}, "role"),
        ({"name": "a", "role": "viewer", "expires_in": -1}, "expires_in"),
        ({"name": "a", "role": "viewer", "expires_in": "soon"}, "expires_in"),
        ({"name": "a", "role": "viewer", "scope": "all"}, "scope"),
    ],
)
async def test_a_bad_token_is_refused_by_its_field(api: Api, body, field):
    admin = await token(api, Role.ADMIN)
    told = await api.call("POST", "/tokens", body, headers=admin)
    assert told.status == 400
    assert field in told.body["details"]


async def test_every_change_leaves_one_line_with_who_did_it(api: Api):
    admin, ada = await token(api, Role.ADMIN), await token(api, Role.OPERATOR, "ada")
    await api.good("POST", "/tasks", HTTP, 201, headers=ada)
    await api.good("PATCH", "/tasks/1", {"priority": 3}, headers=ada)
    await api.bad("PATCH", "/tasks/1", {"nonsense": 3}, headers=ada)
    await api.good("GET", "/tasks/1", headers=ada)
    await api.good("DELETE", "/tasks/1?purge=true", headers=ada)
    log = await api.good("GET", "/audit?actor=ada", headers=admin)
    assert [(entry["action"], entry["subject"]) for entry in log["items"]] == [
        ("delete_task", "/api/v1/tasks/1"),
        ("patch_task", "/api/v1/tasks/1"),
        ("create_task", "/api/v1/tasks/1"),
    ]
    assert log["items"][0]["details"] == {"query": "purge=true"}
    assert {entry["peer"] for entry in log["items"]} == {"127.0.0.1"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
async def test_the_log_is_kept_where_auth_is_off_and_on_every_store(kind, request):
    async with serving(url_of(kind, request)) as api:
        await api.create(name="x")
        log = await api.good("GET", "/audit")
        assert [(entry["actor"], entry["action"]) for entry in log["items"]] == [(None, "create_task")]
        state = await api.good("GET", "/audit/check")
        assert (state["is_sound"], state["head"]) == (True, f"1:{log['items'][0]['hash']}")


async def test_the_actor_is_kept_with_what_they_changed(api: Api):
    ada = await token(api, Role.OPERATOR, "ada")
    await api.good("POST", "/tasks", HTTP, 201, headers=ada)
    assert (await api.good("GET", "/tasks/1", headers=ada))["created_by"] == "ada"
