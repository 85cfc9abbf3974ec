"""Views of a list that everyone finds there: saved by page and API, told in the audit log, and not told to a token with a scope."""

from __future__ import annotations

import re

from integration.web.asking import get, post, signed_in

VIEW = {"list": "runs", "name": "Failed / 失败", "query": "page=3&status=FAILED&label=team%3Db+c", "share": "yes"}
KEPT = "status=FAILED&label=team%3Db+c"


def shared(text: str) -> list[tuple[str, str]]:
    """Query and name of each, as the menu of the page has them."""
    menu = re.search(r"<ul[^>]* data-shared>(.*?)</ul>", text, re.DOTALL)
    return [] if menu is None else re.findall(r'<a href="[^"?]*\?([^"]*)"[^>]*>(.*?)</a>', menu[1])


async def test_a_view_that_was_saved_on_a_page_is_there_for_everyone(guarded):
    api = guarded
    ann, vic = await signed_in(api, "operator"), await signed_in(api, "viewer")
    status, place, _ = await post(api, "/views", VIEW, **ann)
    assert (status, place) == (303, f"/runs?{KEPT}")
    page = await get(api, f"/runs?{KEPT}", headers=vic)
    assert shared(page) == [(KEPT, "Failed / 失败")]
    assert 'aria-current="true">Failed / 失败' in page
    assert ('name="share"' in page, "/views/remove" in page) == (False, False), "a viewer can change nothing"
    assert 'name="share"' in await get(api, "/runs", headers=ann)
    assert shared(await get(api, "/tasks", headers=ann)) == []
    for path in ("/views", "/views/remove"):
        assert (await post(api, path, VIEW, **vic))[0] == 403
    told = await get(api, "/activity", headers=await signed_in(api, "admin"))
    assert "View Failed / 失败" in told
    assert (await post(api, "/views/remove", VIEW, **ann))[:2] == (303, f"/runs?{KEPT}")
    assert shared(await get(api, "/runs", headers=ann)) == []


async def test_a_token_with_a_scope_sees_no_view_of_others(guarded):
    api = guarded
    await post(api, "/views", VIEW, **await signed_in(api, "operator"))
    _, secret = await api.parts.access.create("team b", "operator", labels={"team": "b"})
    told = await api.call(
        "POST", "//login", data={"token": secret}, headers={"origin": api.root}, allow_redirects=False
    )
    page = await get(api, "/runs", headers={"cookie": told.headers["set-cookie"].partition(";")[0]})
    assert (shared(page), 'name="share"' in page) == ([], False)
    asked = await api.call("GET", "/views?list=runs", headers={"authorization": f"Bearer {secret}"})
    assert asked.status == 403


async def test_the_api_saves_reads_and_removes_views(everywhere):
    api = everywhere
    saved = await api.good("PUT", "/views/tasks/ops%2Fnight", {"query": "q=x&cursor=7&status=ERROR"})
    assert (saved["list"], saved["name"], saved["query"]) == ("tasks", "ops/night", "status=ERROR")
    assert (await api.good("GET", "/views?list=tasks"))["items"] == [saved]
    assert (await api.good("GET", "/views?list=runs"))["items"] == []
    assert (await api.good("PUT", "/views/tasks/ops%2Fnight", {"query": ""}))["query"] == ""
    assert await api.good("DELETE", "/views/tasks/ops%2Fnight") == {"deleted": True}
    for method, path, status, body in (
        ("DELETE", "/views/tasks/ops%2Fnight", 404, None),
        ("PUT", "/views/queues/x", 400, {}),
        ("PUT", f"/views/runs/{'x' * 61}", 400, {}),
        ("PUT", "/views/runs/x", 400, {"query": "x" * 2_001}),
        ("GET", "/views?list=queues", 400, None),
    ):
        assert (await api.call(method, path, body)).status == status, (method, path)
