"""Signing in with OpenID Connect: the authorization code flow with PKCE, and what is checked of the ID token.

    begin   ─▶ the provider's page, with `state`, `nonce` and the hash of a verifier that only this browser's cookie has
    finish  ─▶ the code is exchanged together with the verifier; the ID token's signature, issuer, audience, times and nonce
               are checked; a claim of it says the role

Nothing of the provider is kept: who signed in gets a token of its role whose secret is thrown away, and that ends with
the session.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from noonbell.clock import SECOND, Clock, SystemClock
from noonbell.errors import Forbidden, NoonbellError, StoreUnavailable, Unauthorized
from noonbell.model.access import Role
from noonbell.settings import OidcSettings

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Of signatures by a key of the provider. Never `none`, and no shared secret."""
SECONDS: Final = 600
"""That a sign-in may take."""
_LEEWAY: Final = 60
"""Seconds that the clocks of the provider and of this node may differ."""
_FRESH: Final = 600.0
"""Seconds that the provider's configuration is known for."""
_AWAY: Final = 5.0
"""Seconds after which a provider that did not answer is asked again: anybody may begin to sign in."""
_MOST_BYTES: Final = 1024 * 1024
_MOST_USED: Final = 10_000
_ROLES: Final = (Role.ADMIN, Role.OPERATOR, Role.VIEWER)
"""The highest first. A worker is no person."""


class WebAccess(Protocol):
    """Requests of this node, past the guard of addresses. Raises NoonbellError."""

    async def fetch(self, url: str, most_bytes: int) -> bytes: ...

    async def post_form(
        self, url: str, fields: Mapping[str, str], most_bytes: int, authorization: str | None
    ) -> bytes: ...


class SignInAttempt(msgspec.Struct, frozen=True, array_like=True):
    """What the browser keeps, in a signed cookie, until it comes back."""

    state: str
    nonce: str
    verifier: str
    to: str
    """Where in the dashboard to go then."""
    until: int
    """Seconds since 1970."""


class SignedIn(NamedTuple):
    name: str
    """For the token and the audit log: readable, and another for each subject of the provider."""
    role: Role


class _Provider(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class SignIn:
    def __init__(
        self,
        settings: OidcSettings,
        web: WebAccess,
        *,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._web, self._clock, self._monotonic = settings, web, clock or SystemClock(), monotonic
        self._known: tuple[float, _Provider] | None = None
        self._away_until = 0.0
        self._asking = asyncio.Lock()
        self._used: dict[str, int] = {}
        """States that came back, and until when they would have been good; the oldest first."""

    def _now(self) -> int:
        """Seconds since 1970, as the provider's token has its times."""
        return self._clock.now() // SECOND

    async def begin(self, redirect_uri: str, to: str) -> tuple[str, SignInAttempt]:
        """The address of the provider's page, and what the browser has to bring back."""
        provider = await self._provider()
        attempt = SignInAttempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            to=to,
            until=self._now() + SECONDS,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        parted = "&" if "?" in provider.authorization_endpoint else "?"
        return f"{provider.authorization_endpoint}{parted}{urlencode(query)}", attempt

    async def finish(self, attempt: SignInAttempt | None, query: Mapping[str, str], redirect_uri: str) -> SignedIn:
        """Who came back. Unauthorized for what is not the answer to this attempt, Forbidden without a role."""
        self._check_answer(attempt, query)
        assert attempt is not None  # noqa: S101 - it was just checked
        provider = await self._provider()
        told = await self._exchange(provider, query["code"], attempt.verifier, redirect_uri)
        keys = await self._get(provider.jwks_uri)
        claims = self._checked(provider, str(told.get("id_token") or ""), keys, attempt.nonce)
        return SignedIn(_name_of(self._settings, claims), self._role_of(claims))

    def _check_answer(self, attempt: SignInAttempt | None, query: Mapping[str, str]) -> None:
        state = query.get("state", "")
        if (
            attempt is None
            or attempt.until <= self._now()
            or not hmac.compare_digest(state.encode(), attempt.state.encode())
        ):
            raise Unauthorized("this sign-in was not started in this browser, or it took too long; start again")
        if state in self._used:
            raise Unauthorized("this sign-in has already ended; start again")
        self._used = {known: until for known, until in self._used.items() if until > self._now()}
        while len(self._used) >= _MOST_USED:
            del self._used[next(iter(self._used))]
        self._used[state] = attempt.until
        if query.get("iss", str(self._settings.issuer)).rstrip("/") != self._settings.issuer:
            raise Unauthorized("a different provider responded than the one that was asked")
        if "error" in query or not query.get("code"):
            said = re.sub(r"[^\w .,:'-]", " ", query.get("error_description") or query.get("error", ""))[:200].strip()
            raise Unauthorized(f"the provider did not sign you in{f': {said}' if said else ''}")

    async def _provider(self) -> _Provider:
        """Those who come while it is asked wait for the same answer."""
        async with self._asking:
            if self._known is not None and self._monotonic() - self._known[0] < _FRESH:
                return self._known[1]
            if self._monotonic() < self._away_until:
                raise StoreUnavailable("the provider did not respond a moment ago")
            try:
                found = await self._configuration(str(self._settings.issuer))
            except StoreUnavailable:
                self._away_until = self._monotonic() + _AWAY
                raise
            self._known = (self._monotonic(), found)
            return found

    async def _configuration(self, issuer: str) -> _Provider:
        body = await self._fetched(f"{issuer}/.well-known/openid-configuration")
        try:
            found = msgspec.json.decode(body, type=_Provider)
        except msgspec.MsgspecError:
            raise StoreUnavailable("the provider's configuration cannot be read") from None
        if found.issuer.rstrip("/") != issuer:  # the setting has no slash at its end
            raise StoreUnavailable(
                f"the provider's issuer is {found.issuer[:200]!r}, and auth.oidc.issuer is {issuer!r}"
            )
        endpoints = (found.authorization_endpoint, found.token_endpoint, found.jwks_uri)
        if urlsplit(issuer).scheme == "https" and any(urlsplit(each).scheme != "https" for each in endpoints):
            raise StoreUnavailable("the provider names an address without TLS")
        return found

    async def _exchange(self, provider: _Provider, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        client_id, secret = str(self._settings.client_id), self._settings.client_secret
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        authorization = None
        if secret is None:
            fields["client_id"] = client_id
        elif "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
            # Each part is form-encoded first (RFC 6749, 2.3.1).
            pair = ":".join(urlencode({"": part})[1:] for part in (client_id, secret))
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields |= {"client_id": client_id, "client_secret": secret}
        try:
            body = await self._web.post_form(provider.token_endpoint, fields, _MOST_BYTES, authorization)
        except NoonbellError as error:
            raise Unauthorized(f"the provider rejected the code: {error.message[:200]}") from None
        return _object(body)

    async def _get(self, url: str) -> dict[str, Any]:
        return _object(await self._fetched(url))

    async def _fetched(self, url: str) -> bytes:
        try:
            return await self._web.fetch(url, _MOST_BYTES)
        except NoonbellError as error:
            raise StoreUnavailable(f"the provider is not responding: {error.message[:200]}") from None

    def _checked(self, provider: _Provider, token: str, keys: dict[str, Any], nonce: str) -> dict[str, Any]:
        """The claims of an ID token that this provider signed for us, now, for this attempt."""
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        client_id = str(self._settings.client_id)
        rules = jwt.JWTClaimsRegistry(
            now=self._now(),
            leeway=_LEEWAY,
            iss={"essential": True, "value": provider.issuer},
            aud={"essential": True, "value": client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS)).claims  # type: ignore[arg-type]
            rules.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            said = re.sub(r"[^\w .,:'-]", " ", str(error))[:200]
            raise Unauthorized(f"the provider's token is not valid: {said or type(error).__name__}") from None
        if isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1 and claims.get("azp") != client_id:
            raise Unauthorized("the provider's token is not valid: it was issued for another client")
        if claims.get("azp", client_id) != client_id:
            raise Unauthorized("the provider's token is not valid: it was issued for another client")
        return dict(claims)

    def _role_of(self, claims: Mapping[str, Any]) -> Role:
        """The highest role that the claim leads to."""
        value: Any = claims
        for part in self._settings.role_claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        given = {each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)}
        found = {str(self._settings.roles[each]) for each in given if each in self._settings.roles}
        for role in _ROLES:
            if role in found:
                return role
        raise Forbidden("you are signed in, but have no role here")


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise Unauthorized("the provider's response cannot be read") from None


def _name_of(settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    """Names can be changed and given to another person; the subject cannot. Its hash is what tells two people apart."""
    chosen = next((claims[name] for name in (settings.name_claim, "sub") if isinstance(claims.get(name), str)), "")
    mark = hashlib.sha256(f"{settings.issuer} {claims['sub']}".encode()).hexdigest()[:10]
    return f"oidc {re.sub(r'[^A-Za-z0-9_.@ -]', '_', chosen)[:60]} {mark}"
