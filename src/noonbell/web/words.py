"""The dashboard's words: one catalogue per language in `locales/`, each complete; a test compares them and their uses.

`a|b` in a text parts one from many: `n` chooses. What goes into the braces is escaped with the page that shows it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

LANGUAGES: Final = {"en": "English", "zh": "简体中文"}
TAGS: Final = {"en": "en", "zh": "zh-CN"}
"""As the `lang` of a page has them."""


@cache
def catalogue(lang: str) -> dict[str, str]:
    text = files("noonbell.web").joinpath("locales", f"{lang}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str])


class Words:
    """`words("bulk.done_disable", n=3)`. A key that is not there is a mistake in the page, and raised."""

    def __init__(self, lang: str) -> None:
        self.lang = lang if lang in LANGUAGES else "en"
        self._texts = catalogue(self.lang)

    def __call__(self, key: str, /, **facts: Any) -> str:
        text = self._texts[key]
        if "|" in text and "n" in facts:
            one, many = text.split("|", 1)
            text = one if facts["n"] == 1 else many
        return text.format(**facts) if facts else text

    def has(self, key: str) -> bool:
        return key in self._texts
