"""What keeps a run that is due from starting: a pause, a worker that is missing, a limit. Pure: `explain` reads the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.clock import Instant
from noonbell.model.account import Wait
from noonbell.model.call import CALL_TYPE
from noonbell.model.run import Run
from noonbell.model.target_kind import COMMAND_TYPE, COMMANDS, HTTP, OWN_QUEUES
from noonbell.model.worker import Lack, WorkerInfo, label_pairs
from noonbell.policy.workers import WorkerNeeds, lack, takes_runs
from noonbell.service import scope
from noonbell.service.explain_findings import SlotFinding, of_pause, why_paused

_MOST_NAMED: Final = 20
"""Job types and workers that a sentence names, at most."""

_SENTENCES: Final = {
    Lack.QUEUE: "no_worker",
    Lack.JOB_TYPE: "no_worker_type",
    Lack.VERSION: "no_worker_version",
    Lack.LABELS: "no_worker_labels",
    Lack.NAMED: "no_worker_named",
    Lack.PART: "no_worker_part",
}


def blocked_reason(wait: Wait, run: Run, workers: Sequence[WorkerInfo], now: Instant) -> SlotFinding:
    """A pause first, then a worker that is missing: while these last, no limit matters."""
    if wait.until is not None and wait.is_quiet:
        return SlotFinding("quiet", "quiet_held", since=run.run_at, facts={"until": wait.until})
    if wait.until is not None and wait.rated_until is None:
        return SlotFinding("waiting", "waiting_until", facts={"until": wait.until})
    if wait.all_paused is not None:
        everything = wait.all_paused
        facts = of_pause(everything)
        more = why_paused(everything)
        return SlotFinding("paused", actor=everything.by, since=everything.since, facts=facts, more=more)
    if wait.paused is not None:
        pause = wait.paused
        facts = {"queue": pause.queue, "actor": pause.by, "since": pause.since}
        return SlotFinding("queue_paused", actor=pause.by, since=pause.since, facts=facts)
    missing = lack(workers, _wanted(wait, run.queue))
    if missing is not None:
        return _no_worker(missing, wait, run.queue, workers)
    if wait.key is not None:
        held = {"key": wait.key, "limit": wait.key_limit, "count": wait.key_running, "ahead": wait.key_before}
        sentence = "key_full" if wait.key else "key_full_empty"
        return SlotFinding("key_full", sentence, blocking_run_id=wait.blocking_run_id, facts=held)
    if wait.limit is not None:
        key = "concurrency_wait" if wait.limit else "concurrency_shut"
        if wait.is_of_queue:
            key = "concurrency_queue" if wait.limit else "concurrency_queue_shut"
        taken: dict[str, Any] = {"limit": wait.limit, "blocking": wait.blocking_run_id, "queue": run.queue}
        return SlotFinding("concurrency", key, blocking_run_id=wait.blocking_run_id, facts=taken)
    if wait.rated_until is not None and wait.rated_until > now:
        facts = {"until": wait.rated_until, **({} if wait.rate_key is None else {"key": wait.rate_key})}
        sentence = "rate_limited" if wait.rate_key is None else "rate_limited_key"
        return SlotFinding("rate_limited", sentence, since=None, facts=facts)
    return SlotFinding("waiting")


def _wanted(wait: Wait, queue: str) -> WorkerNeeds:
    return WorkerNeeds(
        queue=queue,
        job_type=wait.job_type,
        min_version=wait.min_version,
        workers=frozenset(wait.workers) if wait.workers else None,
        labels=frozenset(wait.labels),
        had=frozenset(wait.had),
    )


def _no_worker(missing: Lack, wait: Wait, queue: str, workers: Sequence[WorkerInfo]) -> SlotFinding:
    kind = OWN_QUEUES.get(queue)
    facts: dict[str, Any] = {
        "queue": queue,
        "job_type": COMMANDS.name
        if wait.job_type == COMMAND_TYPE
        else wait.job_type or (HTTP if kind is None else kind).name,
        "version": wait.min_version,
        "names": named(wait.workers),
    }
    if wait.job_type == COMMAND_TYPE and missing in (Lack.QUEUE, Lack.JOB_TYPE):
        return SlotFinding("no_worker", "no_worker_commands", facts=facts)
    if missing is Lack.QUEUE and kind is not None and kind.extra is not None:
        facts |= {"kind": kind.name, "install": kind.how_to_install}
        return SlotFinding("no_worker", "no_worker_client", facts=facts)
    found = SlotFinding("no_worker", _SENTENCES[missing], facts=facts)
    if missing is Lack.LABELS:
        found.facts["names"] = named(_missing_labels(wait.labels, queue, workers))
    if missing is Lack.JOB_TYPE and scope.current() is None:  # the names of other jobs are not for a token with a scope
        known = {name for one in workers if takes_runs(one) and queue in one.queues for name in one.job_types or ()}
        known.discard(CALL_TYPE)
        found.more.append(("and_known", {"types": named(sorted(known))}))
    return found


def _missing_labels(wanted: Sequence[str], queue: str, workers: Sequence[WorkerInfo]) -> list[str]:
    """The labels that no worker of the queue has; all of them, where each is there but no worker has them together."""
    there = {pair for one in workers if takes_runs(one) and queue in one.queues for pair in label_pairs(one.labels)}
    return [pair for pair in wanted if pair not in there] or list(wanted)


def named(names: Sequence[str]) -> str | None:
    """The first few names, for a sentence; None where there are none."""
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown}, …" if len(names) > _MOST_NAMED else shown or None
