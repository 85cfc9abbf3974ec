"""JSON that somebody typed into a field."""

from __future__ import annotations

from typing import Any

import msgspec

from noonbell.errors import InvalidJson
from noonbell.service.reader import DEEPEST, depth


def read_json(text: str) -> Any:
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidJson(f"is not JSON: {error}") from None
    except RecursionError:
        raise InvalidJson(f"is nested deeper than {DEEPEST} levels") from None
    if depth(value) > DEEPEST:
        raise InvalidJson(f"is nested deeper than {DEEPEST} levels")
    return value
