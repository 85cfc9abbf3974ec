"""The dashboard behind a proxy that leaves its prefix on, or does not pass the host on: over real HTTP."""

from __future__ import annotations

import re

import pytest

from integration.api.serving import serving
from integration.web.asking import HTML, get
from noonbell.settings import ServerSettings


@pytest.fixture
async def under_prefix():
    async with serving("memory://", server=ServerSettings(public_url="http://127.0.0.1/cron/bell/")) as api:
        yield api


async def test_the_prefix_of_the_public_url_may_be_left_on(under_prefix):
    api = under_prefix
    task = await api.create(name="a/b")
    for begin in ("//cron/bell", "/"):
        text = (await api.call("GET", f"{begin}/tasks/{task}", headers=HTML)).text
        asset = re.search(r'href="\.\./(static/[^"]+\.css)"', text)[1]
        assert (await api.call("GET", f"{begin}/{asset}")).status == 200
        assert (await api.call("GET", f"{begin}/api/v1/tasks/name:a%2Fb")).body["id"] == task
    sent = {"origin": api.root, **HTML}
    form = {"name": "new", "kind": "http", "target_url": "http://127.0.0.1/x"}
    told = await api.call("POST", "//cron/bell/tasks/new", data=form, headers=sent, allow_redirects=False)
    assert (told.status, told.headers["location"].startswith("../tasks/")) == (303, True)


async def test_the_prefix_alone_leads_to_the_overview_and_what_only_begins_like_it_to_nothing(under_prefix):
    told = await under_prefix.call("GET", "//cron/bell", headers=HTML, allow_redirects=False)
    assert (told.status, told.headers["location"]) == (308, "/cron/bell/")
    assert (await under_prefix.call("GET", "//cron/bellows", headers=HTML)).status == 404
    assert (await under_prefix.call("GET", "//cron/bell/nowhere", headers=HTML)).status == 404


@pytest.mark.parametrize("path", ["//tasks/1/disable", "/tasks/1/disable"])
async def test_a_proxy_that_does_not_pass_the_host_on_is_named_with_what_to_do(api, path):
    await api.create(name="a")
    sent = {"origin": "https://cron.example", "sec-fetch-site": "same-origin", "accept": "application/json"}
    told = await api.call("POST", path, headers=sent)
    assert told.status == 403
    said = told.body.get("message") or told.body["error"]
    assert "https://cron.example" in said
    assert f"127.0.0.1:{api.port}" in said
    assert "proxy_set_header Host $host" in said


async def test_a_page_of_another_site_gets_no_advice_about_proxies(api):
    await api.create(name="a")
    sent = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "accept": "application/json"}
    told = await api.call("POST", "/tasks/1/disable", headers=sent)
    assert (told.status, "proxy" in told.text) == (403, False)


async def test_only_a_run_that_waits_for_its_time_can_be_started_now(api):
    task = await api.create(name="a", max_concurrency=None)
    due, later = await api.trigger(task), await api.trigger(task, delay_seconds=600)
    assert f"/runs/{due}/promote" not in await get(api, f"/runs/{due}")
    assert f"/runs/{later}/promote" in await get(api, f"/runs/{later}")
    lease = await api.claim()
    await api.retry(lease, 600, error_message="no")
    assert f"/runs/{due}/promote" in await get(api, f"/runs/{due}")


async def test_the_configuration_names_a_command_that_exists(api):
    task = await api.create(name="a")
    for lang in ("en", "zh"):
        text = await get(api, f"/tasks/{task}/configuration", lang)
        assert "noonbell apply" in text
        assert "noonbell task apply" not in text
