"""What is allowed in the settings, but probably not what was meant."""

from __future__ import annotations

import logging

from noonbell.settings import Settings
from noonbell.wiring.listening import asks_for_tokens, is_loopback

log = logging.getLogger("noonbell")


def warn(settings: Settings) -> None:
    """Of what is allowed, but probably not what was meant."""
    if not asks_for_tokens(settings) and not is_loopback(settings.server.host):
        log.warning(
            "auth.enabled is false and server.host is %s: everyone who reaches the port may do anything;"
            " noonbell token create makes one, and auth.enabled: true asks for it",
            settings.server.host,
        )
    if settings.callback.base_url is None and not is_loopback(settings.server.host):
        log.warning("callback.base_url is not set: targets on other machines cannot call back")
