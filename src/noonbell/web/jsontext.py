"""JSON that somebody typed into a field."""

from __future__ import annotations

from typing import Any

from noonbell.service.json_text import decode


def read_json(text: str) -> Any:
    return decode(text.encode("utf-8", "surrogatepass"), what="")
