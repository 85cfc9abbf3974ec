"""The form of a task as a page: its fields, what is wrong with them, what they differ in, and who is told of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from noonbell.model.alert import Rule, RuleKind
from noonbell.model.task import ConcurrencyPolicy as Concurrency
from noonbell.model.task import FailureAction, MisfirePolicy, OverlapAction, Task
from noonbell.policy.alerts import concerns
from noonbell.service.http_fields import Method
from noonbell.web.tasks import form as task_form
from noonbell.web.tasks.merge import Choice
from noonbell.web.tasks.preview import previewed
from noonbell.web.visit import Visit
from noonbell.when.cron_fields import Dialect

_CHOICES: Final = {
    "http_method": list(Method),
    "concurrency_policy": list(Concurrency),
    "overlap_action": list(OverlapAction),
    "failure_action": list(FailureAction),
    "misfire_policy": list(MisfirePolicy),
}
_NAMES: Final = (
    *("name", "description", "labels", "kind", "http_method", "target_url", "headers", "body_template", "job_type"),
    *("payload", "queue", "callback_timeout_sec", "when", "cron_expr", *task_form.SCHEDULE, "run_if_late"),
    *(
        "timezone",
        "start_at",
        "end_at",
        "jitter_seconds",
        "timeout_seconds",
        "max_retries",
        "initial_delay",
        "strategy",
    ),
    *("max_concurrency", "concurrency_policy", "overlap_action", "failure_action", "misfire_policy", "catchup_limit"),
    *("priority", "enabled", "version", "rest", "detach"),
)


async def form(
    visit: Visit,
    fields: Mapping[str, str],
    task: Task | None,
    problems: Mapping[str, str] | None = None,
    *,
    status: int | None = None,
    differing: Sequence[Choice] = (),
    changes: Sequence[Choice] | None = None,
    is_jitter_proposed: bool = False,
) -> Response:
    return visit.page(
        "task_form.html",
        status or (400 if problems else 200),
        fields={name: fields.get(name, "") for name in (*_NAMES, *fields)},
        task=task,
        is_managed=task is not None and is_managed(task),
        problems=dict(problems or {}),
        differing=differing,
        changes=changes,
        is_jitter_proposed=is_jitter_proposed,
        choices=_CHOICES,
        kinds=task_form.KINDS,
        whens=task_form.whens_for(fields),
        dialects=list(Dialect),
        units=task_form.UNITS,
        presets=task_form.PRESETS,
        can_try=visit.site.try_call is not None,
        rules=await rules_for(visit, fields.get("name", "")),
        **await previewed(visit, fields, task),
    )


def fields_of(visit: Visit, told: Mapping[str, Any]) -> dict[str, str]:
    """What the form shows of a task; with the dialect of this installation, if the task has no cron yet."""
    return task_form.fields_of(told, default_dialect(visit))


def default_dialect(visit: Visit) -> str:
    return str(visit.site.services.previews.cron_dialect)


async def rules_for(visit: Visit, name: str) -> list[dict[str, Any]] | None:
    """Who is told when something is wrong with a task of that name; None where nobody can be."""
    if visit.site.alerts is None:
        return None
    found = await visit.site.alerts.rules()
    return [
        rule
        for rule in found
        if rule["enabled"]
        and concerns(Rule(name=rule["name"], kind=RuleKind(rule["kind"]), tasks=tuple(rule["tasks"])), name)
    ]


def is_managed(task: Task) -> bool:
    """By a file or by code, which would change it back."""
    return task.spec.managed_by.startswith(("file:", "code:"))
