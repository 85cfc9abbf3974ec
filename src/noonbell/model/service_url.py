"""`service://NAME/PATH`: the URL of a service that the settings know by a name (`executor.services`).

A task and a call keep it as it is written. The address takes the place of the name where a request is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from noonbell.fields import shortened
from noonbell.model.failure_text import FailureText, failure_text
from noonbell.settings.kinds import SERVICE_NAME

SERVICE_FORM: Final = "service://NAME/PATH, the name in lower-case letters and digits, with . _ - inside"
_SCHEME = re.compile(r"service:", re.IGNORECASE)
_SERVICE_URL = re.compile(rf"(?i:service)://({SERVICE_NAME})(?=[/?#]|\Z)")


def is_service_url(url: str) -> bool:
    """Whether it has the scheme. What stands in place of the name may be none."""
    return _SCHEME.match(url) is not None


def service_name(url: str) -> str | None:
    """None where it is no such URL, or no name stands there. A placeholder is no name."""
    found = _SERVICE_URL.match(url)
    return None if found is None else found[1]


def resolve_service(url: str, services: Mapping[str, str]) -> str:
    """With the address in place of the name; any other URL as it is. UnknownService if the name is not known."""
    found = _SERVICE_URL.match(url)
    if found is None:
        return url
    if found[1] not in services:
        raise UnknownService(unknown_service(found[1], services))
    return services[found[1]] + url[found.end() :]


def unknown_service(name: str, services: Mapping[str, str]) -> FailureText:
    """What is said of a name that is not known, with those that are."""
    if not services:
        return failure_text("no_services", name=name)
    return failure_text("unknown_service", name=name, known=shortened(sorted(services)))


class UnknownService(Exception):
    """Its message is a FailureText."""
