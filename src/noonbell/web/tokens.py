"""The language of the filter bar: `status:failed label:team=billing night`. From text to the parameters of a list, and back.

A word that no key stands before is looked for in names. Each list has its keys; what is no key is text, so a name with a
colon in it can be looked for. The parameters are those of the API, and they alone are in the address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.service.reader import read_moment

_WORD: Final = re.compile(r'(?:(?P<key>[a-z_]+):)?(?P<value>"[^"]*"|[^\s"]*"[^"]*"|\S+)', re.IGNORECASE)
_SPAN: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SOME: Final = frozenset({"status"})
"""May be named more than once; any other key's last value wins."""


@dataclass(frozen=True, slots=True)
class Grammar:
    keys: Mapping[str, str]
    """What may be written before a colon, and the parameter it stands for."""
    rest: str
    """The parameter of words without a key."""

    def read(self, text: str, meaning: Callable[[str, str], str]) -> dict[str, str]:
        """The parameters that the text asks for. `meaning` says what a value of a parameter stands for."""
        found: dict[str, str] = {}
        words: list[str] = []
        for match in _WORD.finditer(text):
            key, value = (match["key"] or "").lower(), match["value"].replace('"', "")
            parameter = self.keys.get(key)
            if parameter is None:
                words.append(match[0].replace('"', ""))
            elif value:
                value = meaning(parameter, value)
                both = parameter in _SOME and parameter in found
                found[parameter] = f"{found[parameter]},{value}" if both else value
        if words:
            found[self.rest] = " ".join(words)
        return found

    def token(self, parameter: str, value: str) -> str:
        """As somebody would write it."""
        quoted = f'"{value}"' if re.search(r"\s", value) else value
        if parameter == self.rest:
            return quoted
        key = next(key for key, each in self.keys.items() if each == parameter)
        return f"{key}:{quoted}"


TASKS: Final = Grammar(
    {"status": "status", "label": "label", "queue": "queue", "by": "managed_by", "name": "name"}, rest="name"
)
RUNS: Final = Grammar(
    {
        **{key: key for key in ("status", "task", "label", "queue", "worker", "origin", "key", "text")},
        "after": "from",
        "before": "to",
        "parent": "parent_id",
    },
    rest="text",
)


def moment(text: str, now: Instant, zone: str) -> str:
    """`24h` ago, a day or a time on the visitor's clock, or RFC 3339: the instant; as it is where it is none of these."""
    if span := _SPAN.fullmatch(text):
        return rfc3339(now - int(span[1]) * _UNITS[span[2]] * SECOND)
    whole = f"{text}T00:00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text
    whole = f"{whole}:00" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", whole) else whole
    try:
        return rfc3339(read_moment(whole, zone))
    except ValueError:
        return text
