"""The name that a caller came by, checked where no token is asked for.

A page of another site can let its own name point to this machine (DNS rebinding). Its requests are then of the same origin
to the browser, and only the name in `Host` tells them from ours. A request that a proxy forwards comes from anywhere, so
it is not taken for a call of this machine, whatever its name says.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from noonbell.api.proxies import is_forwarded
from noonbell.errors import Forbidden, NoonbellError
from noonbell.settings import Settings

ANY_NAME: Final = "*"
_ASK: Final = "auth.enabled: true asks for tokens"
_OPEN: Final = re.compile(r"/api/v1/(?:healthz|livez|readyz|callbacks/[^/]+)")
"""Need no token on any server: a probe has none, and a callback brings its own."""


class HostNames:
    """Which requests are taken without a token."""

    def __init__(self, names: Iterable[str] = (), *, forwarded: bool = False) -> None:
        """`names`: taken besides `localhost` and addresses. `forwarded`: whether a proxy may pass requests on."""
        self._names = frozenset(names)
        self._forwarded = forwarded

    @classmethod
    def of(cls, settings: Settings) -> HostNames:
        """A written `auth.enabled: false` says that a proxy may decide who comes in; no setting at all does not."""
        ours = (settings.server.public_url, settings.callback.base_url)
        names = {urlsplit(address).hostname or "" for address in ours if address is not None}
        return cls({*names, *settings.server.allowed_hosts}, forwarded=settings.auth.enabled is False)

    def problem(self, scope: Scope, headers: Headers) -> NoonbellError | None:
        if _OPEN.fullmatch(scope["path"]):
            return None
        if not self._forwarded and is_forwarded(headers):
            return Forbidden(
                "no token is asked for here, so only this machine may call, and a proxy has forwarded this;"
                f" {_ASK}, and auth.enabled: false, written out, says that the proxy does"
            )
        host = headers.get("host", "")
        name = _name_in(host)
        if not host or self._takes(name):
            return None
        return Forbidden(
            "no token is asked for here, so it can be reached as localhost or by its address alone, not as"
            f" {name[:100]!r}; {_ASK}, and server.allowed_hosts names the hosts that are taken without"
        )

    def _takes(self, name: str) -> bool:
        if ANY_NAME in self._names or name in self._names:
            return True
        return name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _name_in(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or host).rstrip(".")
    except ValueError:  # a bracket that is not closed, and the like
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
