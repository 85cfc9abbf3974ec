"""What an installation adds to the checks of a task: the defaults of its settings, and the knowledge of placeholders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from noonbell import sealing
from noonbell.model.task import OnLost, RetryPolicy
from noonbell.sealing import Sealer
from noonbell.settings import Settings
from noonbell.when.cron_fields import Dialect

HTTP_RETRY: Final = RetryPolicy(max_retries=0)
JOB_RETRY: Final = RetryPolicy(max_retries=3)


def _any_text(text: str) -> None:
    del text


@dataclass(frozen=True, slots=True)
class Rules:
    seconds_field: bool = True
    """False refuses cron expressions of six fields."""
    cron_dialect: Dialect = Dialect.STANDARD
    """Of a cron schedule that names none, where it is saved."""
    check_template: Callable[[str], None] = _any_text
    """Raises InvalidArgument for a text with a placeholder that nobody knows. Targets know them; wiring hands it in."""
    http_timeout: float = 10
    job_timeout: float = 300
    http_retry: RetryPolicy = HTTP_RETRY
    job_retry: RetryPolicy = JOB_RETRY
    job_retry_delay: float = 60
    """Of jobs that speak the words of `/api/jobs`; a task's own `retry_policy` has its own default."""
    plan_timeout: float = 300
    on_lost: OnLost = OnLost.RETRY
    allow_id_mode: bool = True
    """Whether a callback may name task and run instead of a token."""
    sealer: Sealer = Sealer()  # noqa: RUF009 - it has no key, and so no state
    """Seals the secrets of a task where it is saved."""

    @classmethod
    def of(cls, settings: Settings, check_template: Callable[[str], None] = _any_text) -> Rules:
        return cls(
            seconds_field=settings.scheduler.enable_seconds_field,
            cron_dialect=Dialect(settings.scheduler.cron_dialect),
            check_template=check_template,
            http_timeout=settings.executor.request_timeout or 10,
            job_timeout=settings.jobs.job_timeout,
            http_retry=msgspec.convert({"max_retries": 0, **settings.executor.default_retry.given()}, RetryPolicy),
            job_retry=RetryPolicy(max_retries=settings.jobs.max_retries),
            job_retry_delay=settings.jobs.retry_delay,
            plan_timeout=settings.plans.exec_timeout,
            on_lost=OnLost(settings.recovery.orphaned_runs.upper()),
            allow_id_mode=settings.callback.allow_id_mode,
            sealer=sealing.from_file(settings.secrets.key_file),
        )
