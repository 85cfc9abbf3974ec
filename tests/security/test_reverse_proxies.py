"""Names, proxies and wrong tokens: who is taken for whom, before any role is asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from integration.api.serving import Api, serving
from noonbell.model.access import Role
from noonbell.settings import AuthSettings, CallbackSettings, ServerSettings, Settings, StoreSettings
from noonbell.wiring import Listening, Stop, assembled, listen
from noonbell.wiring.application import application

STRANGER = "198.51.100.9"
FORWARDED = [
    {"X-Forwarded-For": STRANGER},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-Proto": "https"},
    {"X-Forwarded-Host": "cron.example.com"},
    {"Forwarded": f"for={STRANGER}"},
    {"Via": "1.1 proxy"},
    {"X-Real-IP": STRANGER},
]
EVIL = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"}


@contextlib.asynccontextmanager
async def node(**sections: Any) -> AsyncIterator[Api]:
    """As `noonbell serve` listens, with the settings that a file would have."""
    server = sections.pop("server", {})
    settings = Settings(
        store=StoreSettings(url="memory://"), server=ServerSettings(**{"port": 0, **server}), **sections
    )
    async with contextlib.AsyncExitStack() as going:
        listener = going.enter_context(contextlib.closing(listen(settings)))
        port = listener.getsockname()[1]
        parts = await going.enter_async_context(assembled(settings, port))
        app = await going.enter_async_context(application(parts, settings, lambda: {"ok": True}))
        session = await going.enter_async_context(aiohttp.ClientSession())
        await going.enter_async_context(Listening(app).listening(listener, Stop()))
        going.push_async_callback(parts.hub.close)
        yield Api(session, parts, port)


async def bearer(api: Api, role: Role, name: str | None = None) -> dict[str, str]:
    _, secret = await api.parts.access.create(name or role, role)
    return {"Authorization": f"Bearer {secret}"}


# Host names, where no token is asked for


@pytest.mark.parametrize("auth", [AuthSettings(), AuthSettings(enabled=False)], ids=["auto", "off"])
async def test_without_tokens_a_name_of_another_site_is_no_way_in(auth):
    """S10: a written `auth.enabled: false` does not switch the check off."""
    async with node(auth=auth) as api:
        await api.create()
        for method, path, body in (
            ("GET", "/tasks", None),
            ("POST", "/tasks/1/trigger", None),
            ("POST", "/tokens", {"name": "x", "role": "admin"}),
            ("GET", "//metrics", None),
            ("GET", "//", None),
            ("GET", "//static/app.js", None),
        ):
            told = await api.call(method, path, body, headers=EVIL)
            assert (told.status, told.code) == (403, "FORBIDDEN"), path
        assert "server.allowed_hosts" in (await api.call("GET", "/tasks", headers=EVIL)).body["message"]


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "app.localhost", "192.168.1.7:80"])
async def test_with_auth_written_off_addresses_and_localhost_are_taken(host):
    async with node(auth=AuthSettings(enabled=False)) as api:
        assert (await api.good("GET", "/tasks", headers={"Host": host}))["total"] == 0


async def test_the_names_of_the_settings_are_taken_and_no_others():
    server = {"allowed_hosts": ("cron.internal",), "public_url": "https://bell.example.com/x"}
    callback = CallbackSettings(base_url="http://back.example.com:8080")
    async with node(auth=AuthSettings(enabled=False), server=server, callback=callback) as api:
        for host in ("cron.internal", "CRON.internal.:8080", "bell.example.com", "back.example.com:8080"):
            await api.good("GET", "/tasks", headers={"Host": host})
        for host in ("x.cron.internal", "cron.internal.evil.example", "example.com", ".", ":8080", "@", "*"):
            assert await api.bad("GET", "/tasks", headers={"Host": host}) == (403, "FORBIDDEN"), host


async def test_any_name_is_taken_where_a_star_is_written():
    async with node(auth=AuthSettings(enabled=False), server={"allowed_hosts": ("*",)}) as api:
        await api.good("GET", "/tasks", headers={"Host": "any.example"})


async def test_where_tokens_are_asked_for_any_name_will_do():
    async with node(auth=AuthSettings(enabled=True)) as api:
        headers = await bearer(api, Role.VIEWER)
        await api.good("GET", "/tasks", headers={**headers, "Host": "any.example", "X-Forwarded-For": STRANGER})


async def test_probes_and_callbacks_come_by_any_name():
    """They need no token on any server; the second finds no run and is not refused for its name."""
    async with node() as api:
        for headers in ({"Host": "node-1.internal"}, {"Via": "1.1 balancer"}):
            for path in ("/livez", "/readyz", "/healthz"):
                assert (await api.call("GET", path, headers=headers)).status == 200
            told = await api.call("POST", f"/callbacks/{'x' * 43}", {"status": "SUCCESS"}, headers=headers)
            assert told.status == 404
            for path in ("/callbacks", "/callbacks/x%2F..%2F..%2Ftasks", "/livez/x", "/tasks"):
                url = f"{api.root}/api/v1{path}"
                async with api.session.get(aiohttp.client.URL(url, encoded=True), headers=headers) as response:
                    assert response.status == 403, path


# No token is made by a caller who has shown none


@pytest.mark.parametrize("auth", [AuthSettings(), AuthSettings(enabled=False)], ids=["auto", "off"])
async def test_no_token_is_minted_while_none_is_asked_for(auth):
    async with node(auth=auth) as api:
        told = await api.call("POST", "/tokens", {"name": "x", "role": "admin"})
        assert (told.status, told.code) == (403, "FORBIDDEN")
        assert "noonbell token create" in told.body["message"]
        form = {"name": "x", "role": "admin", "days": "1"}
        told = await api.call("POST", "//settings/tokens", data=form, headers={"Origin": api.root})
        assert told.status == 403
        page = await api.call("GET", "//settings/tokens", headers={"Accept": "text/html"})
        assert "noonbell token create" in page.text
        assert 'name="role"' not in page.text
        assert await api.parts.access.tokens() == []


# Proxies


@pytest.mark.parametrize("headers", FORWARDED, ids=" ".join)
async def test_in_auto_mode_a_forwarded_request_is_not_local(headers):
    """A stock nginx on this machine rewrites Host to the address it dials, so the name tells nothing."""
    async with node() as api:
        for method, path in (("GET", "/tasks"), ("POST", "/tokens"), ("GET", "//"), ("GET", "//openapi.json")):
            told = await api.call(method, path, headers={**headers, "Host": "127.0.0.1:8080"})
            assert (told.status, told.code) == (403, "FORBIDDEN"), path
            assert "auth.enabled: true" in told.body["message"]


async def test_in_auto_mode_a_trusted_proxy_is_not_local_either():
    async with node(server={"trusted_proxies": ("127.0.0.1",)}) as api:
        assert await api.bad("GET", "/tasks", headers={"X-Forwarded-For": "127.0.0.1"}) == (403, "FORBIDDEN")


async def test_a_proxy_that_decides_who_comes_in_may_forward():
    """`auth.enabled: false`, written out, and the name that the proxy uses."""
    async with node(auth=AuthSettings(enabled=False), server={"allowed_hosts": ("cron.example.com",)}) as api:
        headers = {"Host": "cron.example.com", "X-Forwarded-For": STRANGER, "Via": "1.1 nginx"}
        await api.good("GET", "/tasks", headers=headers)


async def peers(api: Api, **headers: str) -> str:
    """What the audit log has as the peer of a call."""
    admin = await bearer(api, Role.ADMIN)
    fields = {"name": "a", "target_url": "http://127.0.0.1:9/x"}
    await api.good("POST", "/tasks", fields, 201, headers={**admin, **headers})
    (entry,) = (await api.good("GET", "/audit", headers=admin))["items"]
    return str(entry["peer"])


async def test_a_made_up_address_is_not_believed():
    async with node(auth=AuthSettings(enabled=True)) as api:
        assert await peers(api, **{"X-Forwarded-For": "203.0.113.99", "Forwarded": "for=203.0.113.99"}) == "127.0.0.1"


@pytest.mark.parametrize(
    ("said", "peer"),
    [
        (STRANGER, STRANGER),
        (f"{STRANGER}:51000", STRANGER),
        ("[2001:db8::1]:51000", "2001:db8::1"),
        ("::ffff:198.51.100.9", STRANGER),
        (f"203.0.113.99, {STRANGER}", STRANGER),
        (f"203.0.113.99, {STRANGER}, 10.1.2.3", STRANGER),
        ("10.1.2.3", "10.1.2.3"),
        ("unknown", "127.0.0.1"),
        (f"{STRANGER}, <b>, 10.1.2.3", "10.1.2.3"),
        ("", "127.0.0.1"),
    ],
)
async def test_of_a_trusted_proxy_the_last_untrusted_address_is_the_caller(said, peer):
    async with node(auth=AuthSettings(enabled=True), server={"trusted_proxies": ("127.0.0.0/8", "10.0.0.0/8")}) as api:
        assert await peers(api, **{"X-Forwarded-For": said}) == peer


async def test_the_dashboard_works_behind_a_trusted_proxy():
    """As nginx forwards it with its Host: sign in, change something, and the log has the caller's own address."""
    async with node(auth=AuthSettings(enabled=True), server={"trusted_proxies": ("127.0.0.1",)}) as api:
        _, secret = await api.parts.access.create("ada", Role.ADMIN)
        headers = {
            "Host": "cron.example.com",
            "Origin": "https://cron.example.com",
            "X-Forwarded-For": STRANGER,
            "X-Forwarded-Proto": "https",
            "Accept": "text/html",
        }
        told = await api.call("POST", "//login", data={"token": secret}, headers=headers, allow_redirects=False)
        assert told.status == 303
        cookie = told.headers["set-cookie"]
        assert "Secure" in cookie
        headers["Cookie"] = cookie.partition(";")[0]
        form = {"name": "ci", "role": "viewer", "days": "1"}
        made = await api.call("POST", "//settings/tokens", data=form, headers=headers)
        assert re.search(r'class="secret">nb_', made.text)
        log = await api.parts.access.log(None, 10)
        assert [(entry["actor"], entry["action"], entry["peer"]) for entry in log] == [
            ("ada", "create_token", STRANGER)
        ]


async def test_the_cookie_is_for_https_alone_where_the_browser_came_by_it():
    """Also behind a proxy that is not trusted."""
    async with node(auth=AuthSettings(enabled=True)) as api:
        _, secret = await api.parts.access.create("ada", Role.ADMIN)
        for more, secure in (({}, False), ({"X-Forwarded-Proto": "https"}, True)):
            told = await api.call(
                "POST", "//login", data={"token": secret}, headers={"Origin": api.root, **more}, allow_redirects=False
            )
            assert ("Secure" in told.headers["set-cookie"]) is secure


# Wrong tokens


async def guessed(api: Api, times: int, **headers: str) -> list[int]:
    return [
        (await api.call("GET", "/tasks", headers={"Authorization": f"Bearer nb_{guess}", **headers})).status
        for guess in range(times)
    ]


async def test_wrong_tokens_do_not_lock_out_good_ones_behind_the_same_address():
    """S15. Behind a load balancer all callers are one address, workers that must heartbeat among them."""
    async with node(auth=AuthSettings(enabled=True)) as api:
        known, new = await bearer(api, Role.OPERATOR, "known"), await bearer(api, Role.ADMIN, "new")
        await api.good("GET", "/tasks", headers=known)
        statuses = await guessed(api, 30)
        assert (statuses[:10], set(statuses[10:])) == ([401] * 10, {429})
        for headers in (known, new):
            for _ in range(20):
                await api.good("GET", "/tasks", headers=headers)
        secret = new["Authorization"].removeprefix("Bearer ")
        told = await api.call(
            "POST", "//login", data={"token": secret}, headers={"Origin": api.root}, allow_redirects=False
        )
        assert told.status == 303
        assert set(await guessed(api, 1)) == {429}


async def test_a_made_up_address_does_not_get_around_the_limit():
    async with node(auth=AuthSettings(enabled=True)) as api:
        statuses = []
        for number in range(30):
            statuses += await guessed(api, 1, **{"X-Forwarded-For": f"203.0.113.{number}"})
        assert statuses.count(429) == 20


async def test_behind_a_trusted_proxy_each_caller_is_counted_alone_and_ipv6_by_its_network():
    async with node(auth=AuthSettings(enabled=True), server={"trusted_proxies": ("127.0.0.1",)}) as api:
        assert set(await guessed(api, 20, **{"X-Forwarded-For": STRANGER})) == {401, 429}
        assert await guessed(api, 1, **{"X-Forwarded-For": "203.0.113.1"}) == [401]
        for number in range(10):
            assert await guessed(api, 1, **{"X-Forwarded-For": f"2001:db8:0:1::{number:x}"}) == [401]
        assert await guessed(api, 1, **{"X-Forwarded-For": "2001:db8:0:1:ffff::1"}) == [429]
        assert await guessed(api, 1, **{"X-Forwarded-For": "2001:db8:0:2::1"}) == [401]


async def test_an_expired_or_revoked_token_counts_as_a_wrong_one():
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
        headers = await bearer(api, Role.VIEWER)
        await api.parts.access.revoke("viewer")
        statuses = [(await api.call("GET", "/tasks", headers=headers)).status for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2


@pytest.mark.parametrize(
    ("public_url", "host", "secure"),
    [
        ("https://cron.example.com", "cron.example.com", True),
        ("https://cron.example.com:8443/x", "CRON.example.com:8443", True),
        ("https://cron.example.com", "10.1.2.3:8080", False),
        ("http://cron.example.com", "cron.example.com", False),
        (None, "cron.example.com", False),
    ],
)
async def test_the_cookie_is_for_https_alone_where_the_public_url_says_so(public_url, host, secure):
    """Behind a proxy that says nothing of https. Who comes by another name came by plain HTTP, and could not sign in else."""
    async with node(auth=AuthSettings(enabled=True), server={"public_url": public_url}) as api:
        _, secret = await api.parts.access.create("ada", Role.ADMIN)
        sent = {"Host": host, "Origin": f"https://{host}"}
        told = await api.call("POST", "//login", data={"token": secret}, headers=sent, allow_redirects=False)
        assert told.status == 303
        assert ("Secure" in told.headers["set-cookie"]) is secure


# Addresses that may call


async def test_a_caller_from_another_address_is_refused_everywhere_also_with_a_good_token():
    async with node(auth=AuthSettings(enabled=True), server={"allowed_callers": ("192.0.2.0/24", "::1")}) as api:
        admin = await bearer(api, Role.ADMIN)
        for path in ("/tasks", "/livez", "//", "//login", "//metrics"):
            told = await api.call("GET", path, headers={**admin, "X-Forwarded-For": "192.0.2.7"}, allow_redirects=False)
            assert told.status == 403, path
    async with node(auth=AuthSettings(enabled=True), server={"allowed_callers": ("127.0.0.0/8",)}) as api:
        assert (await api.call("GET", "/tasks", headers=await bearer(api, Role.VIEWER))).status == 200


async def test_behind_a_trusted_proxy_the_address_of_its_caller_counts():
    server = {"trusted_proxies": ("127.0.0.1",), "allowed_callers": ("192.0.2.0/24",)}
    async with node(auth=AuthSettings(enabled=True), server=server) as api:
        viewer = await bearer(api, Role.VIEWER)
        said = {"192.0.2.7": 200, STRANGER: 403, f"192.0.2.7, {STRANGER}": 403, f"{STRANGER}, 192.0.2.7": 200}
        found = {
            text: (await api.call("GET", "/tasks", headers={**viewer, "X-Forwarded-For": text})).status for text in said
        }
        assert found == said
        assert (await api.call("GET", "/tasks", headers=viewer)).status == 403
