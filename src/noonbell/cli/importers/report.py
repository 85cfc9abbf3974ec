"""What every importer hands over, and the one report of it: translated, translated with a change of meaning, refused, left out.

A task is called translated only after it was written as a file of tasks and read back by the rules of `noonbell validate`:
what those rules refuse is refused here, with their words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import click

from noonbell.cli.options import open_for_writing
from noonbell.cli.output import shown_safely, talk
from noonbell.cli.root import EXIT_FAILED
from noonbell.errors import InvalidArgument, NoonbellError, StoreUnavailable
from noonbell.model.target_kind import KIND_OF, ExecType

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN: Final = 70
_BATCH: Final = 200
"""Tasks in one call of `--apply`."""


class Refused(Exception):
    """The entry becomes no task; the message says why and what to do."""


@dataclass(frozen=True)
class Imported:
    """One entry of a source: a task, or the reason why there is none."""

    where: str
    """Such as `line 12`."""
    source: str
    task: dict[str, Any] | None = None
    refused: str | None = None
    changes: list[str] = field(default_factory=list)
    """What means something else here than it meant there."""
    notes: list[str] = field(default_factory=list)
    """What was left out without an effect on the work, or is to be looked at."""

    @property
    def outcome(self) -> str:
        if self.refused is not None:
            return "refused"
        if self.task is None:
            return "left out"
        return "changed" if self.changes else "translated"


@dataclass
class Findings:
    """What a reader gathers about one entry while it translates it."""

    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say_time_limit(self, task: Mapping[str, Any]) -> None:
        """Where the source names no time limit, that of the target's kind is a change of meaning."""
        if "timeout_seconds" not in task:
            exec_type = ExecType.JOB if "job_type" in task else ExecType.COMMAND if "command" in task else ExecType.SYNC
            limit = KIND_OF[exec_type].timeout_seconds
            self.changes.append(f"names no time limit; here an attempt ends after {limit:g} seconds: timeout_seconds")


def unused(name: str, taken: set[str]) -> str:
    """The name, or the name with a number; from now on it is taken."""
    found, number = name, 2
    while found in taken:
        found = f"{name}-{number}"
        number += 1
    taken.add(found)
    return found


def read_entries(
    entries: Iterable[tuple[str, str, Callable[[Findings], dict[str, Any] | None]]], *, has_names: bool = True
) -> Iterator[Imported]:
    """Each entry by its reader, which raises Refused, or returns None for what is left out. Names are made unique, which is a
    change where the source has names.
    """
    taken: set[str] = set()
    for where, source, read in entries:
        found = Findings()
        try:
            task = read(found)
        except Refused as refusal:
            yield Imported(where, source, refused=str(refusal), notes=found.notes)
            continue
        except NoonbellError as error:
            yield Imported(where, source, refused=error.message, notes=found.notes)
            continue
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            # A value of another type than that system writes: one odd entry does not end the import of the others.
            yield Imported(
                where, source, refused=f"has a value that cannot be read: {error!r}"[:300], notes=found.notes
            )
            continue
        if task is not None:
            wanted = str(task["name"])
            task["name"] = unused(wanted, taken)
            if has_names and task["name"] != wanted:
                found.changes.append(f"the name {wanted!r} is used twice; this one is {task['name']!r}")
        yield Imported(where, source, task, changes=found.changes, notes=found.notes)


def checked(entries: Iterable[Imported]) -> Iterator[Imported]:
    """The same, with those refused that `noonbell validate` refuses."""
    for entry in entries:
        problem = None if entry.task is None else problem_of(entry.task)
        yield entry if problem is None else replace(entry, task=None, refused=problem)


def problem_of(task: dict[str, Any]) -> str | None:
    """Why a file with this task is refused; None if it is not."""
    from noonbell.cli.task_files import as_yaml, check_tasks, tasks_in

    try:
        text = as_yaml([task])
        text.encode()
        read = tasks_in("import", text)
        check_tasks(read)
    except InvalidArgument as error:
        prefix = f"tasks[{task.get('name')}]."
        problems = {key.replace("import: ", "").removeprefix(prefix): text for key, text in error.details.items()}
        return "; ".join(f"{key} {problem}" for key, problem in problems.items()) or error.message
    except (ValueError, TypeError) as error:
        return f"cannot be written into a file of tasks: {error}"
    return None if read == [task] else "cannot be written into a file of tasks as it is"


def import_options(function: F) -> F:
    """What every importer takes."""
    for option in reversed(
        (
            click.option(
                "--dry-run", is_flag=True, help="Only report; with --apply, also show what the server would do."
            ),
            click.option("--apply", is_flag=True, help="Send the tasks to the server, instead of writing a file."),
            click.option(
                "--disabled",
                is_flag=True,
                help="Import every task as DISABLED; repeat the import without this to enable them.",
            ),
            click.option(
                "--set",
                "owner",
                metavar="NAME",
                help="With --apply: the name of this set of tasks. Sources of one kind need a name each: in one set, a task"
                " replaces the one with the same name.",
            ),
            click.option("--adopt", is_flag=True, help="With --apply: take over tasks that are managed elsewhere."),
            click.option("--report", metavar="FILE", help="Also write the report as JSON to this file."),
        )
    ):
        function = option(function)
    return function


def finish(
    found: Iterable[Imported],
    kind: str,
    *,
    dry_run: bool,
    apply: bool,
    disabled: bool,
    owner: str | None,
    adopt: bool,
    report: str | None,
    then: Callable[[Sequence[Imported]], Mapping[str, Any]] | None = None,
) -> int:
    """Report, and write or apply what was translated; the exit code is 1 where an entry was refused.

    `then` comes when the tasks are there; what it returns, the file of the report has besides.
    """
    if owner is not None and not apply:
        raise click.UsageError("--set requires --apply")
    if adopt and not apply:
        raise click.UsageError("--adopt requires --apply")
    if report is not None:
        with open_for_writing(report, "--report", "a"):
            pass  # it can be written: better known before anything is applied than after it
    entries = list(checked(found))
    for entry in entries:
        _tell(entry)
    counts = {outcome: sum(each.outcome == outcome for each in entries) for outcome in _MARKS}
    talk(
        f"{counts['translated'] + counts['changed']} translated, {counts['changed']} of them with a change of meaning,"
        f" {counts['refused']} refused, {counts['left out']} left out"
    )
    tasks = [entry.task for entry in entries if entry.task is not None]
    if disabled:
        tasks = [{**task, "status": "DISABLED"} for task in tasks]
    if apply:
        _apply(tasks, {"owner": owner or f"import-{kind}", "adopt": adopt, "dry_run": dry_run})
    elif not dry_run:
        from noonbell.cli.task_files import as_yaml

        click.echo(as_yaml(tasks), nl=False)
    more = {} if then is None else then(entries)
    if report is not None:
        _write_report(report, kind, entries, counts, more)
    return EXIT_FAILED if counts["refused"] else 0


_MARKS: Final = {"translated": "✔", "changed": "≈", "refused": "✖", "left out": "·"}


def _tell(entry: Imported) -> None:
    shown = " ".join(entry.source.split("\t"))
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
    name = f" → {entry.task['name']}" if entry.task else ""
    talk(shown_safely(f"{_MARKS[entry.outcome]} {entry.where}: {shown}{name}"))
    if entry.refused is not None:
        talk(shown_safely(f"    {entry.refused}"))
    for change in entry.changes if entry.task else ():
        talk(shown_safely(f"    changed: {change}"))
    for note in entry.notes:
        talk(shown_safely(f"    {note}"))


def _write_report(
    file: str, kind: str, entries: Sequence[Imported], counts: dict[str, int], more: Mapping[str, Any]
) -> None:
    listed = [
        {
            "where": entry.where,
            "source": entry.source,
            "outcome": entry.outcome,
            "name": entry.task["name"] if entry.task else None,
            "refused": entry.refused,
            "changes": entry.changes,
            "notes": entry.notes,
        }
        for entry in entries
    ]
    made = {"kind": kind, "counts": counts, "entries": listed, **more}
    with open_for_writing(file, "--report") as out:
        out.write(json.dumps(made, ensure_ascii=False, indent=2) + "\n")


def _apply(tasks: Sequence[dict[str, Any]], how: Mapping[str, Any]) -> None:
    """In batches, each in one transaction of the server; what a broken call leaves out, the same command does again."""
    from noonbell.cli.api import Remote
    from noonbell.cli.output import ProgressBar

    remote = Remote.of_environment()
    counts = dict.fromkeys(("created", "changed", "unchanged"), 0)
    with ProgressBar() as bar:
        for start in range(0, len(tasks), _BATCH):
            part = tasks[start : start + _BATCH]
            try:
                done = remote.post("/tasks/apply", {**how, "tasks": part})
            except NoonbellError as error:
                again = "; run the same command again to continue" if isinstance(error, StoreUnavailable) else ""
                if not how["dry_run"]:
                    talk(f"{start} of {len(tasks)} tasks were applied{again}")
                raise
            for name in counts:
                counts[name] += len(done[name])
            bar.move((start + len(part)) / len(tasks))
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    talk(f"{said} (nothing was written)" if how["dry_run"] else f"{said} as file:{how['owner']}")


def say_zone(zone: str, taken_by: str) -> None:
    """Where no --tz was given."""
    talk(f"no time zone was named: {taken_by} without one are in {zone}; --tz names that of the machine they ran on")
