"""A failing history made short: steps and tasks are left out as long as the same law is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from noonbell.testing.simulation.history import EXTRA, History
from noonbell.testing.simulation.play import Played, play

T = TypeVar("T")


def shrink(played: Played, most: int = 400, tell: Callable[[str], None] | None = None) -> Played:
    """The shortest history that was found, after at most that many trials, in which the law of `played` is broken."""
    if played.violation is None:
        raise ValueError("no law was broken")
    law, best, left = played.violation.law, played, most

    def fails(history: History) -> bool:
        nonlocal best, left
        if left <= 0 or (history.is_filled_up and EXTRA not in {task["name"] for task in history.tasks}):
            return False
        left -= 1
        tried = play(history)
        if tried.violation is None or tried.violation.law != law:
            return False
        best = tried
        if tell is not None:
            tell(f"{len(history.steps)} steps, {len(history.tasks)} tasks")
        return True

    def fails_without(tasks: Sequence[dict[str, Any]]) -> bool:
        return fails(replace(best.history, tasks=_closed(tasks)))

    fails(replace(best.history, is_filled_up=False))
    while True:
        before = (len(best.history.steps), len(best.history.tasks))
        _without(best.history.steps, lambda steps: fails(replace(best.history, steps=tuple(steps))))
        _without(best.history.tasks, fails_without)
        if left <= 0 or (len(best.history.steps), len(best.history.tasks)) == before:
            return best


def _without(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> None:
    """Leave out runs of items, half of them first, then smaller ones."""
    kept, size = list(items), max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if len(fewer) < len(kept) and fails(fewer):
                kept = fewer
            else:
                at += size
        if size == 1:
            return
        size = max(1, size // 2)


def _closed(tasks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Without those that follow, or spawn, a task that is left out."""
    names = {task["name"] for task in tasks}
    kept = [
        task
        for task in tasks
        if not ("after" in task and not {"free-a", "free-b"} <= names)
        and not (task.get("job_type") == "parent" and "child" not in names)
    ]
    return tuple(kept)
