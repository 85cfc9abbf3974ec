"""What is allowed in the settings, but probably not what was meant."""

from __future__ import annotations

import logging

from noonbell.settings import Settings
from noonbell.wiring.listening import is_loopback

log = logging.getLogger("noonbell")


def warn(settings: Settings) -> None:
    """Of what is allowed, but probably not what was meant."""
    if settings.callback.base_url is None and not is_loopback(settings.server.host):
        log.warning("callback.base_url is not set: targets on other machines cannot call back")
