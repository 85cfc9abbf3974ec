"""The policies of a task that are objects of their own: retry, circuit, rate limit, fan-out."""

from __future__ import annotations

from typing import Any, Final

from noonbell.model.task import RETRY_ON, Circuit, Fanout, RateLimit, RetryPolicy, RetryStrategy
from noonbell.service.reader import Reader
from noonbell.when.schedule import shown

LONGEST_DELAY: Final = 31_536_000.0
MOST_WORKERS: Final = 10_000


def read_retry_policy(reader: Reader, default: RetryPolicy) -> RetryPolicy:
    inner = reader.object("retry_policy")
    if inner is None:
        return default
    policy = RetryPolicy(
        max_retries=inner.integer("max_retries", default.max_retries, 0, 100_000),
        strategy=inner.choice("strategy", RetryStrategy, default.strategy),
        local=inner.flag("local", default.local),
        initial_delay=inner.number("initial_delay", default.initial_delay, 0, LONGEST_DELAY),
        max_delay=inner.number("max_delay", default.max_delay, 0, LONGEST_DELAY),
        jitter=inner.number("jitter", default.jitter, 0, 1),
        retry_on=_read_retry_on(inner, default.retry_on),
    )
    inner.finish("a retry policy")
    return policy


def _read_retry_on(inner: Reader, default: tuple[str, ...]) -> tuple[str, ...]:
    if inner.get("retry_on") is None:
        return default
    words = inner.texts("retry_on", most=len(RETRY_ON) * 2)
    for index, word in enumerate(words):
        if word not in RETRY_ON:
            inner.wrong(f"retry_on[{index}]", f"is {shown(word)}; expected one of {', '.join(RETRY_ON)}")
    return words


def read_circuit(reader: Reader) -> Circuit:
    inner = reader.object("circuit")
    if inner is None:
        return Circuit()
    circuit = Circuit(
        failures=inner.integer("failures", 3, 1, 1_000_000),
        cool_down_seconds=inner.integer("cool_down_seconds", 300, 0, int(LONGEST_DELAY)),
    )
    inner.finish("a circuit")
    return circuit


def read_rate_limit(reader: Reader) -> RateLimit | None:
    inner = reader.object("rate_limit")
    if inner is None:
        return None
    for name, what in (("max", "the number of starts"), ("per_seconds", "the length of the stretch in seconds")):
        if inner.get(name) is None:
            inner.wrong(name, f"is missing; expected {what}")
    limit = RateLimit(
        max=inner.integer("max", 1, 1, 1_000_000),
        per_seconds=inner.number("per_seconds", 1, 0.001, 2_592_000),
        key=inner.text("key", None, least=1),
    )
    inner.finish("a rate limit")
    return limit


def read_fanout(reader: Reader) -> Fanout | None:
    inner = reader.object("fanout")
    if inner is None:
        return None
    if inner.get("workers") is None:
        inner.wrong("workers", 'is missing; expected a number of workers, or "all"')
    workers = _count_or_word(inner, "workers", "all", ("all",))
    success = _count_or_word(inner, "success", "all", ("all", "any"))
    if isinstance(workers, int) and isinstance(success, int) and success > workers:
        inner.wrong("success", f"is {success}; expected at most the {workers} workers")
    inner.finish("a fan-out")
    return Fanout(workers=workers, success=success)


def _count_or_word(inner: Reader, name: str, default: str, words: tuple[str, ...]) -> int | str:
    value: Any = inner.get(name)
    if value is None or (isinstance(value, str) and value in words):
        return default if value is None else str(value)
    said = ", ".join(f'"{word}"' for word in words)
    return inner.integer(name, default, 1, MOST_WORKERS, f"a number from 1 to {MOST_WORKERS}, or {said}")
