"""`noonbell apply -f FILE` and `noonbell diff -f FILE`: bring a server to what files say, and see first what that does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from noonbell.cli import files as task_files
from noonbell.cli.exits import EXIT_FAILED
from noonbell.cli.output import ago, output_option, show_one, talk
from noonbell.cli.remote import Remote


def _options(function: Any) -> Any:
    for option in reversed(
        (
            task_files.file_option,
            task_files.env_option,
            click.option(
                "--set", "owner", metavar="NAME", help="The name of this set of tasks [the file's or folder's]."
            ),
            click.option("--prune", is_flag=True, help="Delete tasks of this set that the files no longer name."),
            click.option("--adopt", is_flag=True, help="Take over tasks that others manage."),
        )
    ):
        function = option(function)
    return function


@click.command("apply")
@_options
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting.")
@output_option
def command(
    files: tuple[str, ...],
    env: tuple[str, ...],
    owner: str | None,
    prune: bool,
    adopt: bool,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Make the tasks on the server as the files say.

    What somebody else has changed in the meantime is not overwritten: then nothing is done, with exit code 5.
    """
    tasks = task_files.read(files, env)
    remote, asked = Remote.of_environment(), _asked(files, owner, tasks, prune=prune, adopt=adopt)
    if prune and not dry_run and not yes:
        _confirm(remote.post("/tasks/apply", {**asked, "dry_run": True})["pruned"], tasks)
    done = remote.post("/tasks/apply", {**asked, "dry_run": dry_run})
    show_one(done, output, name="dry_run", lines=_lines)


@click.command("diff")
@_options
@output_option
def diff(files: tuple[str, ...], env: tuple[str, ...], owner: str | None, prune: bool, adopt: bool, output: str) -> int:
    """Show what `apply` would change, and what that does to the next slots; exit code 1 if there is something."""
    tasks = task_files.read(files, env)
    asked = _asked(files, owner, tasks, prune=prune, adopt=adopt)
    found = Remote.of_environment().post("/tasks/apply", {**asked, "dry_run": True})
    differs = bool(found["created"] or found["changed"] or found["pruned"])
    if differs or output != "table":
        show_one(found, output, name="dry_run", lines=_lines)
    return EXIT_FAILED if differs else 0


def _asked(
    files: tuple[str, ...], owner: str | None, tasks: list[dict[str, Any]], *, prune: bool, adopt: bool
) -> dict[str, Any]:
    """The set is named by what was given first, so that the same command finds its tasks again."""
    name = owner or ("stdin" if files[0] == "-" else Path(files[0]).resolve().stem)
    return {"owner": name, "tasks": tasks, "prune": prune, "adopt": adopt}


def _confirm(pruned: list[str], tasks: list[dict[str, Any]]) -> None:
    if not pruned:
        return
    everything = " The files name no task at all." if not tasks else ""
    click.confirm(f"Delete {', '.join(pruned)}?{everything}", abort=True, err=True)


def _lines(done: dict[str, Any]) -> Iterator[str]:
    for name in done["created"]:
        yield f"+ {name}"
    for change in done["changed"]:
        yield f"~ {change['name']}"
        for field, (before, after) in change["fields"].items():
            yield f"    {field}: {_short(before)} → {_short(after)}"
        if change["next_before"] != change["next_after"]:
            yield f"    next fire moves from {ago(change['next_before'])} to {ago(change['next_after'])}"
        if change["running"]:
            yield f"    {change['running']} run(s) in flight are not affected"
    for name in done["pruned"]:
        yield f"- {name}"
    talk(f"{len(done['unchanged'])} unchanged" + (" (nothing was written)" if done["dry_run"] else ""))


def _short(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:99] + "…"
