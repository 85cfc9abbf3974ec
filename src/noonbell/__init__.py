"""Noonbell: a distributed job scheduler that accounts for every slot.

The public names are loaded when they are first used, so that the command line starts without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from noonbell.version import __version__

if TYPE_CHECKING:
    from noonbell.app import App, Job, Published
    from noonbell.client import AsyncClient, Client
    from noonbell.errors import Fail, NoonbellError, RunFailed
    from noonbell.targets.jobs.handler import Context

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "Context",
    "Fail",
    "Job",
    "NoonbellError",
    "Published",
    "RunFailed",
    "__version__",
]

_HOMES = {
    "App": "noonbell.app",
    "AsyncClient": "noonbell.client",
    "Client": "noonbell.client",
    "Context": "noonbell.targets.jobs.handler",
    "Fail": "noonbell.errors",
    "Job": "noonbell.app",
    "NoonbellError": "noonbell.errors",
    "Published": "noonbell.app",
    "RunFailed": "noonbell.errors",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'noonbell' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
