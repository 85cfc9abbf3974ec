"""S13: every route and every page by every role, against a table that is written by hand; and what a session may not do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import Response

from integration.api.serving import Api, serving
from integration.web.asking import signed_in
from noonbell.api.endpoint import Endpoint, call
from noonbell.model.access import Role
from noonbell.settings import AuthSettings, ServerSettings, Settings, StoreSettings
from noonbell.web.routes import PAGES as PAGES_OF_THE_DASHBOARD
from noonbell.wiring import assembled
from noonbell.wiring.application import application
from security.role_table import ADMIN, LEGACY_ROUTES, MAY, OPEN, OPERATOR, PAGES, ROUTES, VIEWER, WORKER
from security.routes import address_of, routes, statuses


def reaches(role: Role | None, needed: Role | None) -> bool:
    return needed in MAY[role]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://", auth=AuthSettings(enabled=True, session_key="k" * 32)) as api:
        yield api


async def bearer(api: Api, role: Role) -> dict[str, str]:
    queues = ["default", "q"] if role is Role.WORKER else []
    _, secret = await api.parts.access.create(f"the {role}", role, queues=queues)
    return {"Authorization": f"Bearer {secret}"}


# The API


async def test_the_table_has_every_route_once(api: Api):
    found = await routes(api, headers=await bearer(api, Role.ADMIN))
    there = {f"{route.method} {route.path}" for route in found} | {"GET /openapi.json", "GET /docs"}
    assert sorted(there - set(ROUTES)) == []
    assert sorted(set(ROUTES) - there) == []
    lines = [line for text in (OPEN, VIEWER, WORKER, OPERATOR, ADMIN) for line in text.split("\n") if line]
    assert len(lines) == len(ROUTES)


WITHOUT_A_ROLE = {"/static/{hash}/{name}", "/{rest:path}"}
"""Scripts, styles and pictures of the dashboard, and the page that says that nothing is at an address."""


async def test_no_address_is_missing_in_the_tables():
    """The description of the API lists what it is told of; the application knows all that it answers."""
    settings = Settings(store=StoreSettings(url="memory://"), auth=AuthSettings(enabled=True))
    async with assembled(settings, 0) as parts, application(parts, settings, lambda: {"ok": True}) as app:
        there = {route.path for route in app.router.routes}  # type: ignore[attr-defined]
    assert there == {line.split(" ")[1] for line in (*ROUTES, *PAGES)} | WITHOUT_A_ROLE


@pytest.mark.parametrize("role", MAY, ids=str)
async def test_the_matrix_of_routes_and_roles_is_the_table(api: Api, role: Role | None):
    headers = {} if role is None else await bearer(api, role)
    refusal = 401 if role is None else 403
    wrong = []
    for line, status in (await statuses(api, headers)).items():
        refused = status in (401, 403)
        if refused is reaches(role, ROUTES[line]) or (refused and status != refusal):
            wrong.append((line, status))
    assert wrong == []


# Under /legacy, where the settings ask for it


@pytest.fixture
async def legacy_api() -> AsyncIterator[Api]:
    auth = AuthSettings(enabled=True, session_key="k" * 32)
    async with serving("memory://", auth=auth, server=ServerSettings(legacy_api=True)) as api:
        yield api


async def test_the_table_has_every_legacy_route_and_they_are_there_only_where_they_are_asked_for(
    legacy_api: Api, api: Api
):
    found = await routes(legacy_api, headers=await bearer(legacy_api, Role.ADMIN))
    there = {f"{route.method} {route.path}" for route in found if route.path.startswith("/legacy")}
    assert sorted(there) == sorted(LEGACY_ROUTES)
    known = await statuses(api, await bearer(api, Role.ADMIN), LEGACY_ROUTES)
    assert set(known.values()) <= {404, 405}


@pytest.mark.parametrize("role", MAY, ids=str)
async def test_the_matrix_of_legacy_routes_and_roles_is_the_table(legacy_api: Api, role: Role | None):
    headers = {} if role is None else await bearer(legacy_api, role)
    wrong = []
    for line, status in (await statuses(legacy_api, headers, LEGACY_ROUTES)).items():
        refused = status in (401, 403)
        if refused is reaches(role, LEGACY_ROUTES[line]) or (refused and status != (401 if role is None else 403)):
            wrong.append((line, status))
    assert wrong == []


async def test_a_token_with_a_scope_has_none_of_the_legacy_routes(legacy_api: Api):
    _, secret = await legacy_api.parts.access.create("narrow", Role.OPERATOR, labels={"team": "a"})
    told = await statuses(legacy_api, {"Authorization": f"Bearer {secret}"}, LEGACY_ROUTES)
    assert {line for line, status in told.items() if status != 403} == {
        line for line, needed in LEGACY_ROUTES.items() if needed is None
    }


async def test_the_cookie_of_a_session_changes_nothing_under_legacy(legacy_api: Api):
    cookie = await signed_in(legacy_api, "admin")
    assert await legacy_api.good("GET", "//legacy/api/v1/tasks", headers=cookie) == []
    changes = [line for line, needed in LEGACY_ROUTES.items() if not line.startswith("GET ") and needed is not None]
    told = await statuses(legacy_api, cookie, changes)
    assert set(told.values()) == {401}


def test_an_endpoint_names_its_role_and_one_without_is_for_admins():
    with pytest.raises(TypeError, match="role"):
        call("GET", "/tasks", "list_tasks", "List tasks")  # type: ignore[call-arg]
    assert Endpoint(("GET",), "/tasks", _never, "list_tasks", "List tasks", "tasks").role is Role.ADMIN


async def _never(request: Request) -> Response:
    raise AssertionError(request)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.WORKER, Role.OPERATOR])
async def test_only_admins_make_tokens(api: Api, role: Role):
    headers, cookie = await bearer(api, role), await signed_in(api, role)
    for wanted in Role:
        told = await api.call("POST", "/tokens", {"name": f"x {wanted}", "role": wanted}, headers=headers)
        assert told.status == 403
        form = {"name": f"x {wanted}", "role": wanted, "days": "1"}
        told = await api.call("POST", "//settings/tokens", data=form, headers={**cookie, "Origin": api.root})
        assert told.status == 403
    assert [token["name"] for token in await api.parts.access.tokens()] == [f"the {role}", f"a {role}"]


# Sessions


async def test_the_cookie_of_a_session_changes_nothing_over_the_api(api: Api):
    """A browser sends it along by itself; changes need the header. An admin's session, and no Origin to refuse."""
    cookie = await signed_in(api, "admin")
    assert (await api.good("GET", "/tasks", headers=cookie))["total"] == 0
    taken = []
    for line, needed in ROUTES.items():
        method, path = line.split(" ")
        if method == "GET" or needed is None:
            continue
        told = await api.call(method, f"/{address_of(path)}", {}, headers=cookie)
        if told.status != 401:
            taken.append((line, told.status))
    assert taken == []


# The dashboard


def test_the_table_has_every_page_with_its_role_and_what_the_log_calls_it():
    found = PAGES_OF_THE_DASHBOARD
    there = {f"{page.method} {page.path}": (page.role, page.action) for page in found}
    assert there == {line: tuple(rule) for line, rule in PAGES.items()}
    assert len(found) == len(PAGES)


@pytest.mark.parametrize("role", list(Role))
async def test_the_matrix_of_pages_and_roles_is_the_table(api: Api, role: Role):
    cookie = await signed_in(api, role)
    sent = {**cookie, "Accept": "text/html", "Origin": api.root}
    wrong = []
    for line, rule in PAGES.items():
        method, path = line.split(" ")
        if path in ("/login", "/logout"):
            continue  # one is 401 without a good token, the other would end the session
        told = await api.call(method, f"/{address_of(path)}", headers=sent, allow_redirects=False)
        if (told.status in (401, 403)) is reaches(role, rule.role):
            wrong.append((line, told.status))
    assert wrong == []


async def test_without_a_session_every_page_but_those_for_everyone_leads_to_the_login(api: Api):
    wrong = []
    for line, rule in PAGES.items():
        method, path = line.split(" ")
        told = await api.call(
            method,
            f"/{address_of(path)}",
            headers={"Accept": "text/html", "Origin": api.root},
            allow_redirects=False,
        )
        is_refused = told.status == 401 if method == "POST" else "login?next=" in told.headers.get("location", "")
        if is_refused is (rule.role is None) and line != "POST /login":
            wrong.append((line, told.status))
    assert wrong == []
