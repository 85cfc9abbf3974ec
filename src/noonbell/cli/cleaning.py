"""`noonbell queue clean`, `noonbell task clean`, `noonbell run clean`: remove final runs from history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from noonbell.cli.api import Remote
from noonbell.cli.options import confirm
from noonbell.cli.output import talk
from noonbell.cli.root import EXIT_FAILED

F = TypeVar("F", bound=Callable[..., Any])

_REASONS = {
    "not_found": "there is no such run",
    "not_final": "it is not final; cancel it first",
    "part": "it is part of another run, and goes with that",
    "active_parts": "a part, step or child of it is not final",
}


def cleaning_options(command: F) -> F:
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--keep", type=click.IntRange(0), metavar="N", help="The newest N runs stay."),
        click.option(
            "--older-than", type=float, metavar="DAYS", help="Runs that ended longer ago [30; all, with --keep]."
        ),
    ):
        command = option(command)
    return command


def remove_history(what: str, path: str, older_than: float | None, keep: int | None, *, yes: bool) -> None:
    """POST to PATH/clean until nothing more is left to remove, and print how many runs went."""
    if older_than is None and keep is None:
        older_than = 30.0
    parts = [f"that ended over {older_than:g} days ago"] if older_than is not None else []
    parts += [f"but the newest {keep}"] if keep is not None else []
    if not yes:
        confirm(f"Remove the final runs of {what} {', '.join(parts)}?", refused="nothing removed")
    asked = {"older_than_days": older_than, "keep": keep}
    remote, removed = Remote.of_environment(), 0
    while True:
        answer = remote.post(f"{path}/clean", {name: value for name, value in asked.items() if value is not None})
        removed += answer["removed"]
        if not answer["more"]:
            break
    click.echo(f"{removed} removed")


def remove_runs(run_ids: list[int], *, yes: bool) -> int:
    """By thousands; EXIT_FAILED if one of them is not removed."""
    if not yes:
        confirm(f"Remove {len(run_ids)} run(s) from history for good?", refused="nothing removed")
    remote, removed, kept = Remote.of_environment(), 0, list[dict[str, Any]]()
    for start in range(0, len(run_ids), 1_000):
        answer = remote.post("/runs/clean", {"run_ids": run_ids[start : start + 1_000]})
        removed, kept = removed + answer["removed"], kept + answer["kept"]
    for each in kept:
        talk(f"run {each['run_id']} stays: {_REASONS.get(each['reason'], each['reason'])}")
    click.echo(f"{removed} removed")
    return EXIT_FAILED if kept else 0
