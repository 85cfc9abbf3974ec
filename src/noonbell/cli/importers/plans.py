"""Plans in Redis: the messages `plan:msg:STATION:ID` and their places in `plan:time:set`, read and never written.

A plan that is not in that set never runs there, nor does one whose state says so; both come over disabled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import click

from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import json_from, whole_number
from noonbell.clock import SystemClock
from noonbell.dialects import plans
from noonbell.errors import StoreUnavailable
from noonbell.model.target_kind import REDIS
from noonbell.model.task import TaskStatus
from noonbell.service.task_fields import Rules
from noonbell.service.tasks import written as whole
from noonbell.when.interval import UNITS

QUEUE: Final = "plan:time:set"
MESSAGES: Final = "plan:msg:*"
_KEPT: Final = (
    *("request_id", "station", "caller", "description", "plan_type", "plan_value", "plan_repet", "no_keep"),
    *("plan_time", "messages"),
)
_NOT_CARRIED: Final = {"plan_id", "real_repet", "last_state", "exec_time", "plan_state", "skip_set", "skip_num"}
_STATES: Final = ("none", "queue", "execute", "retry", "skip", "pause", "error", "close")
"""By their numbers."""
_AT_REST: Final = {"pause", "error", "close", "remove"}


def read_plans(messages: Mapping[str, Any], queued: Mapping[str, float] | None) -> Iterator[Imported]:
    """Messages by their keys, and the scores of the set; None: the set is not known."""
    return read_entries((key, key, partial(_task, key, value, queued)) for key, value in sorted(messages.items()))


def _task(key: str, message: Any, queued: Mapping[str, float] | None, found: Findings) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise Refused("is not a JSON object")
    plan = {name: message[name] for name in _KEPT if message.get(name) is not None}
    for name in sorted(message.keys() - set(_KEPT) - _NOT_CARRIED):
        found.notes.append(f"{name} is unknown and was left out")
    plan["plan_id"] = key.rpartition(":")[2]
    plan.setdefault("station", key.split(":")[2] if key.count(":") > 2 else "")
    kind = plan.get("plan_type")
    if isinstance(kind, int) and 0 <= kind < len(plans.PlanType):
        plan["plan_type"] = str(list(plans.PlanType)[kind])
    if isinstance(plan.get("no_keep"), int):
        plan["no_keep"] = bool(plan["no_keep"])
    _go_on_from_there(plan, message, (queued or {}).get(key), found)
    draft = plans.read_plan(plan, SystemClock().now(), Rules())
    task = _as_task(draft.spec, found)
    if draft.status is TaskStatus.COMPLETED:
        raise Refused("names no slot any more: all that it asked for have passed")
    if queued is not None and key not in queued:
        task["status"] = "DISABLED"
        found.changes.append(f"is not in {QUEUE}, and so never ran there: it is disabled")
    elif (state := _state_of(message)) in _AT_REST:
        task["status"] = "DISABLED"
        found.changes.append(f"its plan_state is {state}: it is disabled")
    if message.get("skip_set"):
        found.changes.append(f"skip_set {message['skip_set']} is left out: skip as many of the task's next slots")
    return task


def _state_of(message: Mapping[str, Any]) -> str:
    given = message.get("plan_state")
    if isinstance(given, int) and 0 <= given < len(_STATES):
        return _STATES[given]
    return str(given or "").lower()


def _go_on_from_there(plan: dict[str, Any], message: Mapping[str, Any], next_at: float | None, found: Findings) -> None:
    """The same next moment, and as many slots as were left. An interval that counts from a moment has used up what lies
    behind it.
    """
    counts_from_a_moment = str(plan.get("plan_type")) in plans.INTERVALS and not plan.get("no_keep")
    step = UNITS.get(str(plan.get("plan_type")), 0) * whole_number(plan, "plan_value")
    if step and next_at is not None and not plan.get("plan_time"):
        plan["plan_time"] = max(0, int(next_at) - step)
        found.notes.append("counts on from its next moment there")
        counts_from_a_moment = False
    repeat, done = whole_number(plan, "plan_repet"), whole_number(message, "real_repet")
    if repeat > 0 and done > 0 and not counts_from_a_moment:
        if done >= repeat:
            raise Refused(f"has been carried out {done} times of {repeat}")
        plan["plan_repet"] = repeat - done
        found.changes.append(f"{done} of {repeat} were carried out there: {repeat - done} are left")


def _as_task(spec: Any, found: Findings) -> dict[str, Any]:
    """The plan as a task of a file: what a plan asks for, without what only `/plans` writes."""
    fields = json.loads(json.dumps(whole(spec), default=str))
    kept = ("name", "description", "labels", "external_id", "meta", "schedule", "job_type", "payload", "queue")
    policy = ("timeout_seconds", "retry_policy", "overlap_action", "misfire_policy", "misfire_grace_seconds", "fanout")
    task = {name: fields[name] for name in (*kept, *policy, "on_exhausted") if fields.get(name) not in (None, "", {})}
    found.notes.append(f"workers of the queue {spec.queue!r} carry it out, as job type {spec.job_type!r}")
    return task


def _of_redis(url: str) -> tuple[dict[str, Any], dict[str, float]]:
    try:
        import redis
    except ModuleNotFoundError:
        raise click.UsageError(f"redis is not installed: {REDIS.how_to_install}") from None
    try:
        with redis.Redis.from_url(url, socket_timeout=10) as link:
            queued = {bytes(name): float(score) for name, score in link.zrange(QUEUE, 0, -1, withscores=True)}
            keys = sorted({*link.scan_iter(MESSAGES, count=_PAGE), *queued})
            texts = [text for at in range(0, len(keys), _PAGE) for text in link.mget(keys[at : at + _PAGE])]
    except redis.RedisError as error:
        raise StoreUnavailable(f"cannot read the plans: {error}") from None
    messages = {_name(key): _decoded(text) for key, text in zip(keys, texts, strict=True)}
    return messages, {_name(key): score for key, score in queued.items()}


_PAGE: Final = 1_000


def _name(key: bytes) -> str:
    return key.decode(errors="replace")


def _decoded(text: bytes | None) -> Any:
    """None for what is no JSON, and for a key that holds another kind of value than a text."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


@click.command("plans")
@click.argument("source")
@import_options
def plans_command(source: str, **given: Any) -> int:
    """Plans in Redis: redis://HOST:6379/DB, or a JSON file with an object of messages by their keys."""
    if source.startswith(("redis:", "rediss:", "unix:")):
        messages, queued = _of_redis(source)
        return finish(read_plans(messages, queued), "plans", **given)
    found = json_from(source)
    if not isinstance(found, dict):
        raise click.BadParameter(f"{source} has no object of messages by their keys", param_hint="SOURCE")
    return finish(read_plans(found, None), "plans", **given)
