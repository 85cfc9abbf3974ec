"""The sections of the settings over real HTTP: what they show to whom, and that they take what the API takes."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from msgspec import convert

from integration.api.serving import serving
from integration.web.asking import field, get, post, signed_in, status_of
from noonbell.model.grpc_call import GrpcCall
from noonbell.model.target_kind import ExecType
from noonbell.model.task import TaskSpec
from noonbell.service import doctor
from noonbell.settings import AuthSettings, ServerSettings
from noonbell.web.settings import SECTIONS

HOOK = {"name": "ops", "kind": "webhook", "url": "http://127.0.0.1:9/hook", "enabled": "on"}


async def test_every_section_answers_on_every_store_in_both_languages(everywhere):
    api = everywhere
    await api.create(name="keeps-less", headers={"Authorization": "Bearer x"}, meta={"retention_days": 3})
    await api.good("POST", "/alerts/channels", {"name": "ops", "url": "http://127.0.0.1:9/x"}, 201)
    await api.good("POST", "/alerts/rules", {"name": "failed"}, 201)
    more = ("/settings/new/channel", "/settings/new/rule", "/settings/channels/ops", "/settings/rules/failed")
    removals = ("/settings/channels/ops/remove", "/settings/rules/failed/remove")
    for path in (*(path for path, _ in SECTIONS.values()), *more, *removals):
        assert "Settings" in await get(api, path)
        assert "设置" in await get(api, path, "zh")
    assert "keeps-less" in await get(api, "/settings/retention")
    assert "Authorization" in await get(api, "/settings/secrets")


async def test_the_secrets_of_a_grpc_call_are_listed(api):
    tls = {"key": "-----BEGIN PRIVATE KEY-----", "cert": "-----BEGIN CERTIFICATE-----"}
    call = {"address": "grpcs://127.0.0.1:1", "method": "a.B/C", "metadata": {"x-token": "t0p", "user-agent": "n"}}
    spec = TaskSpec(name="calls", exec_type=ExecType.GRPC, grpc=convert(call | {"tls": tls}, GrpcCall))
    await api.store.create_task(spec)
    page = (await get(api, "/settings/secrets")).split('id="of-tasks"')[1].partition("</section>")[0]
    assert "grpc.metadata.x-token" in page
    assert "grpc.tls.key" in page
    assert "user-agent" not in page
    assert "t0p" not in page


# Channels


async def test_a_channel_is_made_changed_and_removed_and_its_secrets_are_never_shown(api):
    secret, token = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "s3cret-token"
    made = {**HOOK, "url": f"http://127.0.0.1:9/hook?token={token}", "secret": secret, "headers": "X-Api-Key: k3y"}
    assert (await post(api, "/settings/new/channel", made))[:2] == (303, "/settings/alerts")
    pages = [await get(api, path) for path in ("/settings/alerts", "/settings/channels/ops", "/settings/secrets")]
    assert not [text for text in pages if secret in text or token in text or "k3y" in text]
    shown = {"kind": "webhook", "url": "http://127.0.0.1:9/***", "headers": "X-Api-Key: ***\nX-Team: a"}
    assert (await post(api, "/settings/channels/ops", shown))[:2] == (303, "/settings/alerts")
    (kept,) = await api.store.alert_channels()
    assert (kept.url, kept.secret) == (made["url"], secret)
    assert kept.headers == {"X-Api-Key": "k3y", "X-Team": "a"}
    assert not kept.enabled
    await post(api, "/settings/channels/ops", {**shown, "no_secret": "on"})
    assert (await api.store.alert_channels())[0].secret is None
    status, _, text = await post(api, "/settings/channels/ops/remove", {"typed": "op"})
    assert (status, "That is not ops" in text) == (400, True)
    assert len(await api.store.alert_channels()) == 1
    assert (await post(api, "/settings/channels/ops/remove", {"typed": "ops"}))[:2] == (303, "/settings/alerts")
    assert await api.store.alert_channels() == []
    actions = [entry["action"] for entry in (await api.good("GET", "/audit"))["items"]]
    assert actions[::-1] == ["create_alert_channel", *2 * ["change_alert_channel"], "remove_alert_channel"]


@pytest.mark.parametrize(
    ("changed", "name", "says"),
    [
        ({"url": "ftp://x"}, "url", "expected http://HOST/"),
        ({"name": "no spaces"}, "name", "letters, digits, dots"),
        ({"headers": "nonsense"}, "headers", "Name: value"),
        ({"headers": "Host: x"}, "headers", "headers.Host"),
        ({"kind": "telegram", "url": "", "secret": "x"}, "secret", "expected the bot"),
    ],
)
async def test_what_is_wrong_with_a_channel_is_said_at_its_field_and_nothing_is_lost(api, changed, name, says):
    status, _, text = await post(api, "/settings/new/channel", {**HOOK, **changed})
    assert status == 400
    assert says in field(text, name)
    assert 'aria-invalid="true"' in field(text, name)
    if "secret" not in changed:
        assert ({**HOOK, **changed}[name]) in field(text, name)
    assert await api.store.alert_channels() == []


async def test_a_name_that_is_taken_is_said_at_the_name(api):
    await post(api, "/settings/new/channel", HOOK)
    status, _, text = await post(api, "/settings/new/channel", HOOK)
    assert (status, "already" in field(text, "name")) == (400, True)


async def test_a_test_says_what_the_other_side_said(api):
    await post(api, "/settings/new/channel", HOOK)
    status, _, text = await post(api, "/settings/channels/ops/test")
    assert (status, "not delivered to ops" in text) == (409, True)
    assert "ops" in (await get(api, "/settings/alerts")).split('id="deliveries"')[1]


async def test_what_the_settings_declare_is_shown_and_left_to_them():
    declared = {"channels": {"ops": {"url": "http://127.0.0.1:9/x"}}, "rules": {"failed": {}}}
    async with serving("memory://", alerts=declared) as api:
        await api.parts.alerts.declare(declared)
        assert "It is declared in the settings file" in await get(api, "/settings/channels/ops")
        assert "It is declared in the settings file" in await get(api, "/settings/rules/failed")
        assert (await post(api, "/settings/channels/ops", HOOK))[0] == 409
        assert (await post(api, "/settings/rules/failed/remove", {"typed": "failed"}))[0] == 409


# Rules


async def test_a_rule_is_made_changed_and_removed(api):
    await post(api, "/settings/new/channel", HOOK)
    fields = {"name": "billing", "kind": "failures", "tasks": "billing-*\n\nnightly", "count": "5", "enabled": "on"}
    given = [*fields.items(), ("channels", "ops"), ("factor", "3"), ("repeat_seconds", "3600")]
    assert (await post(api, "/settings/new/rule", given))[:2] == (303, "/settings/alerts")
    rule = await api.good("GET", "/alerts/rules/billing")
    assert (rule["tasks"], rule["channels"], rule["count"]) == (["billing-*", "nightly"], ["ops"], 5)
    assert (rule["repeat_seconds"], rule["after_seconds"]) == (3600, None)
    text = await get(api, "/settings/rules/billing")
    assert 'value="ops" checked' in text
    assert "billing-*\nnightly" in text
    slow = {"kind": "slow", "after_seconds": "90.5", "factor": "2.5"}
    assert (await post(api, "/settings/rules/billing", slow))[:2] == (303, "/settings/alerts")
    rule = await api.good("GET", "/alerts/rules/billing")
    assert (rule["kind"], rule["after_seconds"], rule["factor"], rule["enabled"]) == ("slow", 90.5, 2.5, False)
    assert "billing" in await get(api, "/settings/alerts")
    await post(api, "/settings/rules/billing/remove", {"typed": "billing"})
    assert (await api.good("GET", "/alerts/rules"))["items"] == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"kind": "failures", "count": "many"}, "count"),
        ({"kind": "overdue", "after_seconds": "-5"}, "after_seconds"),
        ({"repeat_seconds": "1"}, "repeat_seconds"),
        ({"kind": "slow", "factor": "0"}, "factor"),
    ],
)
async def test_what_is_wrong_with_a_rule_is_said_at_its_field(api, changed, name):
    status, _, text = await post(api, "/settings/new/rule", {"name": "x", "kind": "failed", **changed})
    assert status == 400
    assert 'aria-invalid="true"' in field(text, name)
    assert 'class="problem"' in field(text, name)
    assert changed[name] in field(text, name)


# Tokens


async def test_a_token_is_shown_once_with_what_is_known_of_it_after(guarded):
    api, admin = guarded, await signed_in(guarded)
    status, _, text = await post(api, "/settings/tokens", {"name": "ci", "role": "operator", "days": "7"}, **admin)
    assert status == 200
    secret = text.split('class="secret">')[1].split("<")[0]
    assert secret.startswith("nb_")
    assert f'data-copy="{secret}"' in text
    assert secret not in await get(api, "/settings/tokens", headers=admin)
    assert "operator" in await get(api, "/settings/tokens", headers=admin)
    _, token = (await api.good("GET", "/tokens", headers=admin))["items"]
    assert (token["role"], token["expires_at"] is not None) == ("operator", True)
    assert (await post(api, "/settings/tokens/ci/revoke", **admin))[:2] == (303, "/settings/tokens")
    assert "revoked" in await get(api, "/settings/tokens", headers=admin)


@pytest.mark.parametrize(
    ("changed", "name"), [({"days": "soon"}, "days"), ({"days": "9999"}, "days"), ({"name": "<b>"}, "name")]
)
async def test_what_is_wrong_with_a_token_is_said_at_its_field(guarded, changed, name):
    api, admin = guarded, await signed_in(guarded)
    form = {"name": "ci", "role": "viewer", "days": "1", **changed}
    status, _, text = await post(api, "/settings/tokens", form, **admin)
    assert status == 400
    assert 'class="problem"' in field(text, name)
    assert len((await api.good("GET", "/tokens", headers=admin))["items"]) == 1


# The rest


async def test_diagnostics_are_in_the_language_of_the_page_and_the_report_is_not(api):
    await api.create(name="job", target_url=None, job_type="resize", queue="pdf")
    await api.trigger("name:job")
    text = await get(api, "/settings/diagnostics", "zh")
    assert "没有工作节点处理队列 pdf（1 个等待中）" in text
    report = text.split('data-copy="Noonbell')[1].split('"')[0]
    assert "[ill] service: no worker serves queue pdf (1 waiting)" in report
    assert "no worker serves queue pdf" in await get(api, "/settings/diagnostics")
    assert "没有工作节点处理队列 pdf" in await get(api, "/", "zh")


async def test_no_password_of_the_store_is_on_a_page(postgres_url):
    parts = urlsplit(postgres_url)
    place = parts.netloc.rpartition("@")[2]
    async with serving(parts._replace(netloc=f"{parts.username}:hunter2-pass@{place}").geturl()) as api:
        texts = [await get(api, path) for path in ("/settings/about", "/queues", "/workers", "/settings/diagnostics")]
    assert "postgresql" in texts[0]
    assert not [text for text in texts if "hunter2" in text]


async def test_others_than_admins_do_not_see_where_the_store_is():
    async with serving("memory://", auth=AuthSettings(enabled=True, session_key="k" * 32)) as api:
        _, secret = await api.parts.access.create("v", "viewer")
        told = await api.call(
            "POST", "//login", data={"token": secret}, headers={"origin": api.root}, allow_redirects=False
        )
        name, _, value = told.headers["set-cookie"].split(";")[0].partition("=")
        text = await get(api, "/settings/about", cookies={name: value})
        assert "Store URL" not in text
        assert "/settings/tokens" not in text
        assert await status_of(api, "/settings/tokens", cookies={name: value}) == 403
        assert await status_of(api, "/settings/channels/x", cookies={name: value}) == 403


async def test_an_open_door_is_told():
    async with serving("memory://", server=ServerSettings(host="0.0.0.0"), auth=AuthSettings(enabled=False)) as api:
        assert "other machines can connect, and no token is required" in await get(api, "/settings/diagnostics")


async def test_who_comes_from_elsewhere_begins_where_they_like_and_the_overview_stays_within_reach(api):
    sent = {"origin": api.root, "accept": "text/html"}
    told = await api.call(
        "POST", "//preferences", data={"landing": "tasks", "next": "/settings"}, headers=sent, allow_redirects=False
    )
    assert "noonbell_landing=tasks" in told.headers["set-cookie"]
    cookies = {"noonbell_landing": "tasks"}
    told = await api.call("GET", "//", headers={"accept": "text/html"}, cookies=cookies, allow_redirects=False)
    assert (told.status, told.headers["location"]) == (303, "./tasks")
    text = await get(api, "/", cookies=cookies, headers={"referer": f"{api.root}/tasks"})
    assert "<h1>Overview</h1>" in text
    assert await status_of(api, "/", cookies={"noonbell_landing": "//evil.example"}) == 200
    assert (await post(api, "/preferences", {"landing": "//evil.example"}))[0] == 400


async def test_failures_that_were_not_looked_at_are_told(api, monkeypatch):
    monkeypatch.setattr(doctor, "_FAILURES_READ", 2)
    tasks = [await api.create(name=name) for name in ("a", "b", "c")]
    for task in tasks:
        await api.trigger(task)
        await api.finish(await api.claim(), "FAILED")
    text = await get(api, "/settings/diagnostics")
    assert "at least 2 tasks fail, among the newest 2 failures: b, c" in text
    for task in tasks[1:]:
        await api.trigger(task)
        await api.finish(await api.claim(), "SUCCESS")
    text = await get(api, "/settings/diagnostics")
    assert "no task is failing" not in text
    assert "earlier failures were not checked" in text
