"""The log: one line for each record, for people or as JSON, with the same fields. Nothing in it can forge a line.

A record says what it is about by `extra`: `log.info("run ended", extra={"run_id": 7, "status": "SUCCESS"})`.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from noonbell.clock import rfc3339
from noonbell.settings.masking import MASK, mask_addresses

FIELDS: Final = (
    *("ts", "level", "trace_id", "task_id", "run_id", "attempt", "status"),
    *("msg", "err", "latency_ms", "target_url"),
)
"""Every name that a line may have, in the order in which they stand; JSON adds `stack` for what nobody expected."""

_EXTRAS = tuple(name for name in FIELDS if name not in ("ts", "level", "msg"))
_CREDENTIAL = re.compile(r"(?P<scheme>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
_CALLBACK = re.compile(r"(?P<path>/callbacks/)[A-Za-z0-9._-]{16,}")
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def redacted(text: str) -> str:
    """Without passwords and tokens in addresses, credentials of headers, and callback tokens."""
    text = mask_addresses(text)
    text = _CREDENTIAL.sub(rf"\g<scheme>{MASK}", text)
    return _CALLBACK.sub(rf"\g<path>{MASK}", text)


def escaped(text: str) -> str:
    """On one line, whatever it holds: control characters, line and direction marks are written out."""
    return _UNFIT.sub(lambda found: _written_out(found.group()), text)


def _written_out(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    return short or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the record has, in order, fit to be shown."""
    values: dict[str, Any] = {
        "ts": rfc3339(int(record.created * 1_000) * 1_000),
        "level": record.levelname.lower(),
        "msg": fit(record.getMessage()),
    }
    for name in _EXTRAS:
        if (value := getattr(record, name, None)) is not None:
            values[name] = value if isinstance(value, int | float) else fit(str(value))
    if record.exc_info and record.exc_info[1] is not None and "err" not in values:
        error = record.exc_info[1]
        values["err"] = fit(f"{type(error).__name__}: {error}")
    return {name: values[name] for name in FIELDS if name in values}


def fit(text: str) -> str:
    """Ready to be shown. A single plain word, as most values are, needs no looking at; others recur."""
    return text if text.isascii() and text.isalnum() else _made_fit(text)


@functools.lru_cache(maxsize=4096)
def _made_fit(text: str) -> str:
    return escaped(redacted(text))


def _stack(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[1] is None:
        return []
    lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
    return [fit(line) for line in lines]


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values = fields_of(record)
        if stack := _stack(record):
            values["stack"] = stack
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


class HumanLines(logging.Formatter):
    """`2026-11-15T12:00:00.123Z info    run ended run_id=7 status=SUCCESS`"""

    def format(self, record: logging.LogRecord) -> str:
        values = fields_of(record)
        head = f"{values.pop('ts'):<24} {values.pop('level'):<7} {values.pop('msg')}"
        rest = " ".join(f"{name}={quoted(value)}" for name, value in values.items())
        return "\n".join([f"{head} {rest}".rstrip(), *(f"    | {line}" for line in _stack(record))])


def quoted(value: object) -> str:
    text = str(value)
    if text.isalnum():
        return text
    return json.dumps(text, ensure_ascii=False) if not text or re.search(r'[\s"=]', text) else text


class Lines(logging.StreamHandler[TextIO]):
    """Where every record of this process goes."""

    def write(self, lines: Sequence[str]) -> None:
        """Lines that are made already, in one piece: what has no listener but this handler needs no records."""
        self.acquire()
        try:
            self.stream.write("\n".join(lines) + "\n")
            self.flush()
        except Exception:
            self.handleError(logging.makeLogRecord({"msg": f"{len(lines)} lines"}))
        finally:
            self.release()


def only_listener(logger: logging.Logger) -> Lines | None:
    """The handler that a logger's records go to, if it is ours and nobody else sees, filters or makes them."""
    if logger.filters or logger.disabled or logging.getLogRecordFactory() is not logging.LogRecord:
        return None
    found: list[logging.Handler] = []
    here: logging.Logger | None = logger
    while here is not None:
        found += here.handlers
        here = here.parent if here.propagate else None
    if len(found) != 1 or not isinstance(found[0], Lines) or found[0].filters or found[0].level:
        return None
    return found[0]


def set_up(level: str, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Send every record of this process to `stream` [stderr]. May be called again."""
    handler = Lines(stream or sys.stderr)
    handler.setFormatter(JsonLines() if as_json else HumanLines())
    root = logging.getLogger()
    for old in [known for known in root.handlers if isinstance(known, Lines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


_QUIET: Mapping[str, int] = {
    "asyncio": logging.WARNING,
    "uvicorn": logging.WARNING,
    "uvicorn.access": logging.CRITICAL,
    "apprise": logging.WARNING,
    "urllib3": logging.WARNING,
}
"""Libraries that talk more than an operator wants to hear; the last two tell the addresses of channels, tokens and all."""
