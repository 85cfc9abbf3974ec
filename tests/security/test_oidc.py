"""Signing in with an OpenID provider: with a mock provider from PyPI as it should go, and with a dishonest one as it must not.

The dishonest provider is a server of its own on loopback. It checks PKCE as the standard says, and signs what a test wants signed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from yarl import URL

from integration.api.serving import Api, serving
from noonbell.cli import main
from noonbell.errors import SettingsError, StoreUnavailable
from noonbell.service.oidc import SignIn
from noonbell.settings import AuthSettings, OidcSettings, ServerSettings
from noonbell.targets.http.target import Fetcher
from services.openid import openid_provider
from services.ports import reserved_port

CLIENT, SECRET = "noonbell", "s3cret/with:odd chars"
ROLES = {"ops": "operator", "boss": "admin", "all": "viewer"}


def oidc(issuer: str, **more: Any) -> OidcSettings:
    return OidcSettings(**{"issuer": issuer, "client_id": CLIENT, "client_secret": SECRET, "roles": ROLES, **more})


@contextlib.asynccontextmanager
async def noonbell(issuer: str, **more: Any) -> AsyncIterator[Api]:
    auth = AuthSettings(enabled=True, session_key="k" * 32, oidc=oidc(issuer, **more))
    async with serving("memory://", auth=auth) as api:
        yield api


class Browser:
    """Cookies, and no redirect that is not looked at."""

    def __init__(self, api: Api) -> None:
        self.root = api.root
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, url: str, **more: Any) -> tuple[int, dict[str, str], str]:
        url = self.root + url if url.startswith("/") else url
        more.setdefault("headers", {"Accept": "text/html", "Origin": self.root})
        async with self._session.request(method, url, allow_redirects=False, **more) as answer:
            found = {name.lower(): value for name, value in answer.headers.items()}
            found["cookies"] = "\n".join(answer.headers.getall("Set-Cookie", []))
            return answer.status, found, await answer.text()

    def cookie(self, name: str) -> str:
        return self._session.cookie_jar.filter_cookies(URL(self.root))[name].value

    async def begin(self, to: str = "/tasks") -> str:
        """The address of the provider's page."""
        status, headers, text = await self.ask("GET", f"/oidc?next={to}")
        assert status == 303, text
        return headers["location"]

    async def is_in(self) -> bool:
        return (await self.ask("GET", "/tasks"))[0] == 200


# The way it should go


@pytest.fixture(scope="module")
async def mock_provider() -> AsyncIterator[str]:
    async with openid_provider() as issuer:
        yield issuer


async def signed_in(browser: Browser, who: str) -> tuple[int, dict[str, str], str]:
    """Through the provider's own form; the answer to the way back."""
    address = await browser.begin()
    status, headers, text = await browser.ask("POST", address, data={"sub": who}, headers={})
    assert status == 302, text
    return await browser.ask("GET", headers["location"], headers={"Accept": "text/html"})


async def test_a_person_signs_in_gets_the_highest_role_of_the_claim_and_signs_out(mock_provider: str):
    async with noonbell(mock_provider) as api, Browser(api) as ada, Browser(api) as bob:
        status, _, page = await ada.ask("GET", "/login")
        assert (status, "oidc?next=" in page) == (200, True)
        address = await ada.begin()
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert asked["redirect_uri"] == f"{api.root}/oidc-callback"
        status, headers, page = await signed_in(ada, "ada")
        assert (status, 'http-equiv="refresh"' in page) == (200, True)
        assert "SameSite=strict" in headers["cookies"]
        assert "HttpOnly" in headers["cookies"]
        assert await ada.is_in()
        assert (await ada.ask("GET", "/settings/tokens"))[0] == 200
        await signed_in(bob, "bob")
        assert await bob.is_in()
        assert (await bob.ask("GET", "/tasks/new"))[0] == 403
        tokens = await api.parts.access.tokens()
        assert [(re.sub(r" [0-9a-f]{10}$", "", token["name"]), token["role"]) for token in tokens] == [
            ("oidc ada@example.com", "admin"),
            ("oidc bob@example.com", "viewer"),
        ]
        assert all(token["expires_at"] is not None for token in tokens)
        entries = await api.parts.access.log(None, 10)
        assert [(entry["actor"], entry["action"]) for entry in entries] == [
            (token["name"], "sign_in") for token in reversed(tokens)
        ]
        assert (await ada.ask("POST", "/logout"))[0] == 303
        assert not await ada.is_in()
        assert await bob.is_in()


async def test_a_second_browser_of_the_same_person_shares_the_token_and_revoking_it_ends_both(mock_provider: str):
    async with noonbell(mock_provider) as api, Browser(api) as one, Browser(api) as two:
        await signed_in(one, "ada")
        await signed_in(two, "ada")
        (token,) = await api.parts.access.tokens()
        assert await one.is_in()
        assert await two.is_in()
        await api.parts.access.revoke(token["name"])
        assert not await one.is_in()
        assert not await two.is_in()


@pytest.mark.parametrize("who", ["eve", "mallory"])
async def test_a_person_without_a_role_here_is_not_let_in(mock_provider: str, who: str):
    async with noonbell(mock_provider) as api, Browser(api) as browser:
        status, headers, page = await signed_in(browser, who)
        assert (status, "no role" in page) == (403, True)
        assert "noonbell_session" not in headers["cookies"]
        assert not await browser.is_in()
        assert await api.parts.access.tokens() == []


async def test_who_says_no_at_the_provider_is_told_so(mock_provider: str):
    async with noonbell(mock_provider) as api, Browser(api) as browser:
        address = await browser.begin()
        _, headers, _ = await browser.ask("POST", address, data={"action": "deny"}, headers={})
        back = headers["location"]
        state = parse_qs(urlsplit(address).query)["state"][0]
        back = back if "state=" in back else f"{back}&state={state}"
        assert (await browser.ask("GET", back, headers={"Accept": "text/html"}))[0] == 401
        assert not await browser.is_in()


# The ways it must not


@cache
def _key(whose: str) -> RSAKey:
    """Made once: it takes a good part of a second."""
    del whose
    return RSAKey.generate_key(2048, {"kid": "k1"}, private=True)


class Provider:
    """Answers as it is told to. `claims` and `sign` may be changed by a test; codes are good once."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = _key("ours")
        self.claims: dict[str, Any] = {}
        self.without: tuple[str, ...] = ()
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.asked: dict[str, dict[str, str]] = {}
        self.configuration: dict[str, Any] = {}
        self.exchanged: list[dict[str, str]] = []

    def signed(self, claims: dict[str, Any], key: Any = None, alg: str = "RS256") -> str:
        return jwt.encode({"alg": alg, "kid": "k1"}, claims, key or self.key, algorithms=[alg])

    def approve(self, address: str) -> tuple[str, str]:
        """What the provider's page does: a code, and the state as it came."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self.asked)}"
        self.asked[code] = asked
        return code, asked["state"]

    async def configured(self, request: web.Request) -> web.Response:
        del request
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                **self.configuration,
            }
        )

    async def jwks(self, request: web.Request) -> web.Response:
        del request
        return web.json_response(KeySet([self.key]).as_dict(private=False))

    async def token(self, request: web.Request) -> web.Response:
        given = {name: str(value) for name, value in (await request.post()).items()}
        self.exchanged.append({**given, "authorization": request.headers.get("Authorization", "")})
        asked = self.asked.pop(given.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(given.get("code_verifier", "").encode()).digest())
        if asked is None or asked["code_challenge"] != challenge.rstrip(b"=").decode():
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "u1",
            "email": "ada@example.com",
            "roles": ["ops"],
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if name not in self.without}
        return web.json_response({"access_token": "x", "token_type": "Bearer", "id_token": self.sign(claims)})


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    with reserved_port() as port:
        made = Provider(port)
        app = web.Application()
        app.add_routes(
            [
                web.get("/.well-known/openid-configuration", made.configured),
                web.get("/jwks", made.jwks),
                web.post("/token", made.token),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield made
        await runner.cleanup()


async def came_back(browser: Browser, provider: Provider, **changed: str) -> tuple[int, str]:
    code, state = provider.approve(await browser.begin())
    query = "&".join(f"{name}={value}" for name, value in {"code": code, "state": state, **changed}.items() if value)
    status, headers, _ = await browser.ask("GET", f"/oidc-callback?{query}", headers={"Accept": "text/html"})
    return status, headers["cookies"]


async def test_the_honest_answer_is_taken_and_the_code_goes_with_its_verifier_and_secret(provider: Provider):
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        assert (await came_back(browser, provider))[0] == 200
        assert await browser.is_in()
        (sent,) = provider.exchanged
        assert len(sent["code_verifier"]) >= 43
        pair = base64.b64decode(sent["authorization"].removeprefix("Basic ")).decode()
        assert pair == "noonbell:s3cret%2Fwith%3Aodd+chars"


def _none(claims: dict[str, Any]) -> str:
    def part(value: Any) -> str:
        import json

        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}."


@pytest.mark.parametrize(
    ("changed", "without"),
    [
        ({"nonce": "another"}, ()),
        ({}, ("nonce",)),
        ({"aud": "another-client"}, ()),
        ({"aud": [CLIENT, "another-client"]}, ()),
        ({"aud": [CLIENT, "another-client"], "azp": "another-client"}, ()),
        ({"azp": "another-client"}, ()),
        ({}, ("aud",)),
        ({"iss": "http://127.0.0.1:1"}, ()),
        ({}, ("iss",)),
        ({"exp": int(time.time()) - 3_600}, ()),
        ({}, ("exp",)),
        ({"iat": int(time.time()) + 3_600}, ()),
        ({"nbf": int(time.time()) + 3_600}, ()),
        ({}, ("sub",)),
        ({"sub": ""}, ()),
    ],
)
async def test_a_token_that_is_not_for_us_now_and_here_is_refused(
    provider: Provider, changed: dict[str, Any], without: tuple[str, ...]
):
    provider.claims, provider.without = changed, without
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        status, cookies = await came_back(browser, provider)
        assert (status, "noonbell_session" in cookies) == (401, False)
        assert not await browser.is_in()
        assert await api.parts.access.tokens() == []


@pytest.mark.parametrize("kind", ["none", "another key", "shared secret", "public key as secret", "no token", "cut"])
async def test_a_token_that_the_provider_did_not_sign_is_refused(provider: Provider, kind: str):
    other = _key("another")
    public = provider.key.as_pem(private=False)
    ways: dict[str, Callable[[dict[str, Any]], str]] = {
        "none": _none,
        "another key": lambda claims: provider.signed(claims, other),
        "shared secret": lambda claims: provider.signed(claims, OctKey.import_key(SECRET * 2), "HS256"),
        "public key as secret": lambda claims: _hmac_by(public, claims),
        "no token": lambda _: "",
        "cut": lambda claims: provider.signed(claims)[:-4],
    }
    provider.sign = ways[kind]
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        assert (await came_back(browser, provider))[0] == 401
        assert not await browser.is_in()


def _hmac_by(key: bytes, claims: dict[str, Any]) -> str:
    """Signed with the provider's public key as if it were a shared secret: the old confusion of algorithms."""
    import hmac

    head, body, _ = _none(claims).split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').rstrip(b"=").decode()
    mark = hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


@pytest.mark.parametrize("changed", [{"state": "another"}, {"state": ""}, {"iss": "http://127.0.0.1:1"}, {"code": ""}])
async def test_an_answer_to_another_question_is_refused_before_the_code_is_shown(
    provider: Provider, changed: dict[str, str]
):
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        assert (await came_back(browser, provider, **changed))[0] == 401
        assert provider.exchanged == []
        assert not await browser.is_in()


async def test_a_code_of_another_browser_signs_nobody_in(provider: Provider):
    """The thief has a code and a state of his own, and sends a victim there; and the other way round."""
    async with noonbell(provider.issuer) as api, Browser(api) as thief, Browser(api) as victim:
        code, state = provider.approve(await thief.begin())
        back = f"/oidc-callback?code={code}&state={state}"
        assert (await victim.ask("GET", back, headers={"Accept": "text/html"}))[0] == 401  # no cookie at all
        await victim.begin()
        assert (await victim.ask("GET", back, headers={"Accept": "text/html"}))[0] == 401  # another attempt's cookie
        _, own_state = provider.approve(await victim.begin())
        stolen = f"/oidc-callback?code={code}&state={own_state}"
        assert (await victim.ask("GET", stolen, headers={"Accept": "text/html"}))[0] == 401  # PKCE: another verifier
        assert len(provider.exchanged) == 1
        assert not await victim.is_in()


async def test_a_peer_that_comes_back_wrongly_again_and_again_is_held_up_before_the_provider_is_asked(
    provider: Provider,
):
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        statuses = [(await came_back(browser, provider, code="made-up"))[0] for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        assert len(provider.exchanged) == 10


async def test_a_provider_that_is_away_is_asked_again_only_after_a_while():
    with reserved_port() as port:  # where none listens
        clock, dialled = [100.0], []

        class Counting(Fetcher):
            async def fetch(self, url: str, most_bytes: int) -> bytes:
                dialled.append(url)
                return await super().fetch(url, most_bytes)

        sign_in = SignIn(oidc(f"http://127.0.0.1:{port}"), Counting(), monotonic=lambda: clock[0])
        for seconds, times in ((0, 1), (4.9, 1), (0.2, 2)):
            clock[0] += seconds
            with pytest.raises(StoreUnavailable):
                await sign_in.begin("http://127.0.0.1/oidc-callback", "/")
            assert len(dialled) == times


async def test_a_way_back_works_once(provider: Provider):
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        code, state = provider.approve(await browser.begin())
        cookie = browser.cookie("noonbell_sign_in")
        back = f"/oidc-callback?code={code}&state={state}"
        assert (await browser.ask("GET", back, headers={"Accept": "text/html"}))[0] == 200
        assert (await browser.ask("GET", back, headers={"Accept": "text/html"}))[0] == 401  # the cookie is gone
        kept = {"Accept": "text/html", "Cookie": f"noonbell_sign_in={cookie}"}
        async with aiohttp.ClientSession() as session, session.get(browser.root + back, headers=kept) as answer:
            assert answer.status == 401
        assert len(provider.exchanged) == 1
        for forged in (cookie[:-1] + ("0" if cookie[-1] != "0" else "1"), "x.y", cookie.rpartition(".")[2], ""):
            kept["Cookie"] = f"noonbell_sign_in={forged}"
            async with aiohttp.ClientSession() as session, session.get(browser.root + back, headers=kept) as answer:
                assert answer.status == 401


@pytest.mark.parametrize(
    "configuration",
    [{"issuer": "http://127.0.0.1:1"}, {"token_endpoint": None}, {"jwks_uri": "http://169.254.169.254/keys"}],
    ids=["another issuer", "half", "metadata service"],
)
async def test_a_provider_that_is_not_what_it_says_is_not_followed(provider: Provider, configuration: dict[str, Any]):
    provider.configuration = configuration
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        status, headers, _ = await browser.ask("GET", "/oidc")
        if status == 303:  # the guard stops the dial to the keys
            code, state = provider.approve(headers["location"])
            back = f"/oidc-callback?code={code}&state={state}"
            status = (await browser.ask("GET", back, headers={"Accept": "text/html"}))[0]
        assert status == 503
        assert not await browser.is_in()


async def test_where_to_go_then_is_an_address_of_the_dashboard(provider: Provider):
    async with noonbell(provider.issuer) as api, Browser(api) as browser:
        for to in ("https://evil.example", "//evil.example", "/\\evil.example"):
            code, state = provider.approve(await browser.begin(to))
            back = f"/oidc-callback?code={code}&state={state}"
            status, _, page = await browser.ask("GET", back, headers={"Accept": "text/html"})
            assert (status, "evil.example" in page) == (200, False)


async def test_a_role_that_was_taken_away_at_the_provider_ends_the_other_sessions(provider: Provider):
    async with noonbell(provider.issuer) as api, Browser(api) as one, Browser(api) as two:
        await came_back(one, provider)
        assert await one.is_in()
        provider.claims = {"roles": ["all"]}
        await came_back(two, provider)
        assert not await one.is_in()
        assert await two.is_in()


async def test_two_people_of_one_name_are_two_tokens_and_nested_claims_are_found(provider: Provider):
    more = {"role_claim": "realm_access.roles", "name_claim": "name", "client_secret": None}
    async with noonbell(provider.issuer, **more) as api, Browser(api) as one, Browser(api) as two:
        for browser, subject in ((one, "u1"), (two, "u2")):
            provider.claims = {"sub": subject, "name": "Zoë <b>", "realm_access": {"roles": ["ops", "all"]}}
            assert (await came_back(browser, provider))[0] == 200
        names = [token["name"] for token in await api.parts.access.tokens()]
        assert len(set(names)) == 2
        assert all(name.startswith("oidc Zo_ _b_ ") for name in names)
        assert all(sent["client_id"] == CLIENT and not sent["authorization"] for sent in provider.exchanged)


async def test_without_a_provider_the_pages_are_not_there():
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api, Browser(api) as browser:
        assert "oidc" not in (await browser.ask("GET", "/login"))[2]
        for path in ("/oidc", "/oidc-callback?code=x&state=y"):
            assert (await browser.ask("GET", path))[0] == 404


async def test_behind_a_proxy_the_provider_is_told_the_public_address(provider: Provider):
    auth = AuthSettings(enabled=True, oidc=oidc(provider.issuer))
    server = ServerSettings(public_url="https://cron.example.com/noon/")
    async with serving("memory://", auth=auth, server=server) as api, Browser(api) as browser:
        address = await browser.begin()
        assert parse_qs(urlsplit(address).query)["redirect_uri"] == ["https://cron.example.com/noon/oidc-callback"]


# Settings


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"client_id": None}, "auth.oidc.client_id"),
        ({"roles": {}}, "auth.oidc.roles"),
        ({"roles": {"x": "worker"}}, "auth.oidc.roles"),
        ({"roles": {"x": "root"}}, "auth.oidc.roles"),
        ({"scopes": "email"}, "auth.oidc.scopes"),
    ],
)
def test_settings_that_cannot_work_are_named(changed: dict[str, Any], key: str):
    with pytest.raises(SettingsError) as refused:
        oidc("https://id.example.com", **changed)
    assert list(refused.value.details) == [key]


def test_the_secret_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "noonbell.yaml"
    file.write_text(
        f"auth:\n  session_key: {'hush-hush' * 4}\n  oidc:\n    issuer: https://id.example.com\n    client_id: noonbell\n    client_secret: hush-hush\n"
        "    roles: {admins: admin}\n"
    )
    with pytest.raises(SystemExit):
        main(["config", "show", "--config", str(file)])
    shown = capsys.readouterr().out
    assert "https://id.example.com" in shown
    assert "hush-hush" not in shown
