"""The log: one line for each record, for people or as JSON, with the same fields. Nothing in it can forge a line.

A record says what it is about by `extra`: `log.info("run ended", extra={"run_id": 7, "status": "SUCCESS"})`. Where its
message repeats its fields for other readers, `event` has the message without them. RunLogger writes a line for each settled
attempt; for programs with handlers of their own, its message alone names task, run, attempt, outcome and error.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TextIO

import msgspec

from noonbell.clock import SystemClock, rfc3339
from noonbell.masking import MASK, mask_addresses
from noonbell.model.run import FAILURES, Lease, RunStatus, Settlement, SettleResult, Transition, trace_id_of
from noonbell.model.task import Task

FIELDS: Final = (
    *("ts", "level", "trace_id", "task_id", "task_name", "run_id", "attempt", "status"),
    *("msg", "err", "latency_ms", "target_url"),
)
"""Every name that a line may have, in the order in which they stand; JSON adds `stack` for unexpected errors."""

_EXTRAS = tuple(name for name in FIELDS if name not in ("ts", "level", "msg"))
_CREDENTIAL = re.compile(r"(?P<scheme>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
_CALLBACK = re.compile(r"(?P<path>/callbacks/)[A-Za-z0-9._-]{16,}")
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def redacted(text: str) -> str:
    """The text without passwords and tokens in addresses, credentials of headers, and callback tokens."""
    text = mask_addresses(text)
    text = _CREDENTIAL.sub(rf"\g<scheme>{MASK}", text)
    return _CALLBACK.sub(rf"\g<path>{MASK}", text)


def escaped(text: str) -> str:
    """The text on one line: control characters, line and direction marks are written out."""
    return _UNFIT.sub(lambda found: _written_out(found.group()), text)


def _written_out(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    return short or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the record has, in order, fit to be shown."""
    values: dict[str, Any] = {
        "ts": rfc3339(int(record.created * 1_000) * 1_000),
        "level": record.levelname.lower(),
        "msg": fit(getattr(record, "event", None) or record.getMessage()),
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


def fit_lines(text: str) -> list[str]:
    return [fit(line) for line in text.splitlines()]


def _stack(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[1] is None:
        return fit_lines(record.exc_text or "")
    return fit_lines("".join(traceback.format_exception(record.exc_info[1])))


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
        head = f"{_even(values.pop('ts'))} {values.pop('level'):<7} {values.pop('msg')}"
        rest = " ".join(f"{name}={quoted(value)}" for name, value in values.items())
        return "\n".join([f"{head} {rest}".rstrip(), *(f"    | {line}" for line in _stack(record))])


def _even(moment: str) -> str:
    """With three digits after the second, so that columns stand below each other."""
    second, _, fraction = moment.removesuffix("Z").partition(".")
    return f"{second}.{fraction:0<3}Z"


def quoted(value: object) -> str:
    text = str(value)
    if text.isalnum():
        return text
    return json.dumps(text, ensure_ascii=False) if not text or re.search(r'[\s"=]', text) else text


class LogHandler(logging.StreamHandler[TextIO]):
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


def only_listener(logger: logging.Logger) -> LogHandler | None:
    """The handler that a logger's records go to, if it is ours and no other handler, filter or factory is involved."""
    if logger.filters or logger.disabled or logging.getLogRecordFactory() is not logging.LogRecord:
        return None
    found: list[logging.Handler] = []
    here: logging.Logger | None = logger
    while here is not None:
        found += here.handlers
        here = here.parent if here.propagate else None
    if len(found) != 1 or not isinstance(found[0], LogHandler) or found[0].filters or found[0].level:
        return None
    return found[0]


def set_up(level: str, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Send every record of this process to `stream` [stderr]. May be called again."""
    handler = LogHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if as_json else HumanLines())
    root = logging.getLogger()
    for old in [known for known in root.handlers if isinstance(known, LogHandler)]:
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


log = logging.getLogger("noonbell.runs")

_SAID: Final = {
    Transition.FINISH: ("run ended", None),
    Transition.RETRY: ("run will be retried", RunStatus.RETRYING),
    Transition.PARK: ("run awaits its callback", RunStatus.CALLBACK_PENDING),
    Transition.GATHER: ("run waits for its children", RunStatus.RUNNING),
    Transition.RELEASE: ("run handed back", RunStatus.SCHEDULED),
    Transition.LOSE: ("run lost its worker", RunStatus.SCHEDULED),
}


class RunLogLine(msgspec.Struct):
    """The fields of a line, in their order; before them its level and the traceback of what a handler raised, by lines."""

    level: int
    stack: list[str] | None
    event: str
    trace_id: str
    task_id: int
    task_name: str | None
    run_id: int
    attempt: int
    status: str | None
    err: str | None
    latency_ms: float | None
    target_url: str | None


def _unknown_task(_: Lease) -> Task | None:
    return None


class RunLogger:
    def __init__(self, task_of: Callable[[Lease], Task | None] = _unknown_task) -> None:
        """`task_of`: the task of a lease, if it is known here. It asks no store, and is asked only for lines with a reader."""
        self._task_of = task_of

    def settled(self, settled: Sequence[tuple[Lease, Settlement, SettleResult, float | None]]) -> None:
        """Write their lines. For a worker's `observe`: the last of each is how many seconds the target took."""
        least = next((level for level in _HEARD if log.isEnabledFor(level)), logging.CRITICAL)
        if least > logging.INFO:
            settled = [one for one in settled if not _is_usual(one[1], one[2])]
        lines = [line for one in settled if (line := self._line(least, *one)) is not None]
        if not lines:
            return
        listener = only_listener(log)
        if listener is None:
            for line in lines:
                _hand_over(line)
            return
        is_json = isinstance(listener.formatter, JsonLines)
        written = _as_json if is_json else _for_people
        now = rfc3339(SystemClock().now() // 1000 * 1000)
        now = now if is_json else _even(now)
        listener.write([written(now, line) for line in lines])

    def _line(
        self, least: int, lease: Lease, settlement: Settlement, answer: SettleResult, seconds: float | None
    ) -> RunLogLine | None:
        """None where it has no reader."""
        event, status = _SAID[settlement.transition]
        status = status or settlement.status
        frames = None if settlement.error_details is None else settlement.error_details.get("traceback")
        level = logging.WARNING if status in FAILURES or frames else logging.INFO
        if answer is SettleResult.LOST:
            event, level = "result came too late and was not written", logging.WARNING
        if level < least:
            return None
        if settlement.transition is Transition.RETRY and least > logging.DEBUG:
            frames = None  # the last attempt's is shown: the others are mostly the same
        task = self._task_of(lease)
        return RunLogLine(
            level,
            None if not frames else [_TRACEBACK, *fit_lines(frames), fit(settlement.error_message or "")],
            event,
            trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id),
            lease.task_id,
            None if task is None else task.name,
            lease.run_id,
            lease.attempt,
            status,
            settlement.error_message,
            None if seconds is None else int(seconds * 10_000 + 0.5) / 10,
            None if task is None else task.spec.target_url,
        )


def _is_usual(settlement: Settlement, answer: SettleResult) -> bool:
    """Whether its line would be for information only, as nearly all are: to find that out must cost next to nothing."""
    return settlement.status is RunStatus.SUCCESS and answer is SettleResult.DONE and settlement.error_details is None


_HEARD: Final = (logging.DEBUG, logging.INFO, logging.WARNING)
_TRACEBACK: Final = "Traceback (most recent call last):"


def _hand_over(line: RunLogLine) -> None:
    """Send a line as a record to handlers that may show nothing but its message."""
    name = f"task {line.task_id}" if line.task_name is None else fit(line.task_name)
    says, values = "%s: %s, run %s, attempt %s, %s", [line.event, name, line.run_id, line.attempt, line.status]
    if line.err is not None:
        says, values = f"{says}: %s", [*values, fit(line.err)]
    extra = {name: getattr(line, name) for name in _RUN_EXTRAS}
    record = log.makeRecord(log.name, line.level, __file__, 0, says, tuple(values), None, "settled", extra)
    if line.stack is not None:
        record.exc_text = "\n".join(line.stack)
    log.handle(record)


_RUN_EXTRAS: Final = RunLogLine.__struct_fields__[2:]


def _for_people(now: str, line: RunLogLine) -> str:
    """As HumanLines has it. `now` has its three digits already."""
    name = "" if line.task_name is None else f" task_name={_quoted(line.task_name)}"
    status = "" if line.status is None else f" status={line.status}"
    err = "" if line.err is None else f" err={quoted(fit(line.err))}"
    latency = "" if line.latency_ms is None else f" latency_ms={line.latency_ms}"
    url = "" if line.target_url is None else f" target_url={_quoted(line.target_url)}"
    text = (
        f"{now} {_PADDED[line.level]} {line.event} trace_id={line.trace_id} task_id={line.task_id}{name}"
        f" run_id={line.run_id} attempt={line.attempt}{status}{err}{latency}{url}"
    )
    return text if line.stack is None else "\n".join([text, *(f"    | {each}" for each in line.stack)])


def _as_json(now: str, line: RunLogLine) -> str:
    """As JsonLines has it."""
    name = "" if line.task_name is None else f',"task_name":{_json(line.task_name)}'
    status = "" if line.status is None else f',"status":"{line.status}"'
    err = "" if line.err is None else f',"err":{json.dumps(fit(line.err), ensure_ascii=False)}'
    latency = "" if line.latency_ms is None else f',"latency_ms":{line.latency_ms}'
    url = "" if line.target_url is None else f',"target_url":{_json(line.target_url)}'
    text = (
        f'{{"ts":"{now}","level":"{_LEVELS[line.level]}","trace_id":"{line.trace_id}","task_id":{line.task_id}{name}'
        f',"run_id":{line.run_id},"attempt":{line.attempt}{status},"msg":"{line.event}"{err}{latency}{url}'
    )
    if line.stack is not None:
        text += f',"stack":{json.dumps(line.stack, ensure_ascii=False, separators=(",", ":"))}'
    return text + "}"


_LEVELS: Final = {logging.INFO: "info", logging.WARNING: "warning"}
_PADDED: Final = {level: f"{name:<7}" for level, name in _LEVELS.items()}


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    """As `quoted`, remembered: names and addresses recur."""
    return quoted(fit(text))


@lru_cache(maxsize=1024)
def _json(text: str) -> str:
    return json.dumps(fit(text), ensure_ascii=False)
