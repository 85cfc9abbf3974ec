"""Why a callback was ignored: codes, and the English text of each, which its record keeps.

What is said is always made here, so that pages know the code of a record by its text (`refused.CODE` of the catalogues).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

RefusalCode = Literal[
    "signature",
    "unsigned",
    "not_signed",
    "unchecked",
    "clock",
    "stale",
    "over",
    "not_async",
    "not_open",
    "unknown",
    "no_run",
    "elsewhere",
]

REFUSALS: Final[Mapping[RefusalCode, str]] = {
    "signature": "its signature does not match: it was not made of this body with the task's secret",
    "unsigned": "it is signed, but without a {id} and a {timestamp} in seconds",
    "not_signed": "it is not signed, but callback.require_signature requires it",
    "unchecked": "its signature cannot be checked: {error}",
    "clock": "its signature is {seconds} s {side}; {allowed} are allowed",
    "stale": "the token is of an earlier attempt and older than callback.token_ttl",
    "over": "the run is {status} already",
    "not_async": "the run awaits no callback: its task is not ASYNC",
    "not_open": "the run is {status} and {verb} no callback",
    "unknown": "unknown token",
    "no_run": "unknown run",
    "elsewhere": "the run is not of this task",
}


def refused(code: RefusalCode, **facts: Any) -> str:
    return REFUSALS[code].format(**facts)
