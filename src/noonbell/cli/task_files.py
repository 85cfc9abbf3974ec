"""Tasks as files, YAML or JSON with `tasks:`: `noonbell validate`, `diff`, `apply` and `export`.

A file may have `calendars:` too. They are saved before the tasks, each by itself; what is not named stays.

`${NAME}` in a file is filled from the environment, for the names that `--env` allows and no others: a file that came from
elsewhere must not carry the tokens of the person who applies it to a server of its author. `$${NAME}` is the text `${NAME}`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from noonbell.cli.api import Remote
from noonbell.cli.options import confirm, open_for_writing, text_of
from noonbell.cli.output import FORMATS, ago, cut, output_option, show_one, talk
from noonbell.cli.root import EXIT_FAILED, EXIT_USAGE, exit_code, say_problems
from noonbell.cli.task import schedule_words
from noonbell.errors import Forbidden, InvalidArgument, NoonbellError
from noonbell.fields import counted

F = TypeVar("F", bound=Callable[..., Any])

SUFFIXES: Final = (".yaml", ".yml", ".json")

file_option: Callable[[F], F] = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="A file, a folder of files, or - (stdin); may be given without -f.",
)
_file_argument: Callable[[F], F] = click.argument("more_files", nargs=-1, metavar="[FILE]...")
env_option: Callable[[F], F] = click.option(
    "--env",
    "env",
    multiple=True,
    metavar="NAME",
    envvar="NOONBELL_FILE_ENV",
    help="A variable that files may use as ${NAME}, or a pattern such as 'BILLING_*'; also NOONBELL_FILE_ENV.",
)


def tasks_by_file(files: tuple[str, ...], env: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    """Every task of these files, in order, by the file that it is in. InvalidArgument names file and place of each problem.

    `env`: names or patterns of the variables that the files may use.
    """
    problems: dict[str, str] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    allowed = {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in env)}
    for name in files:
        for path, text in _texts(name):
            found.setdefault(path, []).extend(_tasks(path, text, allowed, problems))
    if problems:
        raise InvalidArgument.fields(problems)
    return found


def tasks_in(path: str, text: str) -> list[dict[str, Any]]:
    """Every task of a text, in which no variable is allowed. InvalidArgument names each problem."""
    problems: dict[str, str] = {}
    found = _tasks(path, text, {}, problems)
    if problems:
        raise InvalidArgument.fields(problems)
    return found


def calendars_by_file(files: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """Every calendar of these files, in order, by name."""
    from noonbell import yaml_text
    from noonbell.cli.calendar import calendars_in

    found: list[tuple[str, dict[str, Any]]] = []
    for name in files:
        for path, text in _texts(name):
            if any(isinstance(one, dict) and "calendars" in one for one in yaml_text.read_all(text)):
                found += calendars_in(path, text)
    return found


def check_calendars(calendars: list[tuple[str, dict[str, Any]]]) -> None:
    """Raises InvalidArgument with every problem of every calendar."""
    from noonbell.fields import read_into
    from noonbell.fields.problems import Problems, ReadContext
    from noonbell.service.calendars import CalendarWrite, check_days

    problems: dict[str, str] = {}
    times = Counter(name for name, _ in calendars)
    for name, body in calendars:
        at = ReadContext(Problems())
        check_days(read_into(CalendarWrite, body, at), at)
        problems.update({f"calendars[{name}].{key}": problem for key, problem in at.problems.found.items()})
        if times[name] > 1:
            problems[f"calendars[{name}]"] = "is there twice; a name belongs to one calendar"
    if problems:
        raise InvalidArgument.fields(problems)


def named_by_file(error: InvalidArgument, tasks: Mapping[str, list[dict[str, Any]]]) -> InvalidArgument:
    """Each problem with the file of its task before it, and numbers counted in that file; those of other things stay."""
    places = {f"tasks[{task.get('name')}]": (path, "") for path, listed in tasks.items() for task in listed}
    in_order = [(path, f"tasks[{number}]") for path, listed in tasks.items() for number in range(len(listed))]
    places |= {f"tasks[{number}]": place for number, place in enumerate(in_order)}
    problems: dict[str, str] = {}
    for key, problem in error.details.items():
        place = re.match(r"tasks\[.*?\]", key)
        path, in_file = places.get(place[0], ("", "")) if place else ("", "")
        own = f"{in_file or place[0]}{key[place.end() :]}" if place else key
        problems[f"{path}: {own}" if path else own] = str(problem)
    return InvalidArgument.fields(problems) if problems else error


def _texts(name: str) -> list[tuple[str, str]]:
    if name == "-":
        return [("stdin", text_of(name))]
    place = Path(name)
    paths = sorted(each for each in place.rglob("*") if each.suffix in SUFFIXES) if place.is_dir() else [place]
    return [(str(path), text_of(str(path))) for path in paths]


def _tasks(path: str, text: str, env: Mapping[str, str], problems: dict[str, str]) -> list[dict[str, Any]]:
    from noonbell import yaml_text
    from noonbell.service.task_files import filled

    def variable(name: str, place: str) -> str:
        return _variable(name, env, place, problems)

    try:
        documents = yaml_text.read_all(text)
    except ValueError as error:
        problems[path] = str(error)
        return []
    found: list[dict[str, Any]] = []
    if not documents:
        problems[path] = "is empty: write `tasks: []` if it is to have no tasks"
    for document in documents:
        if isinstance(document, dict) and set(document) == {"calendars"}:
            continue
        known = isinstance(document, dict) and {"tasks"} <= set(document) <= {"tasks", "calendars"}
        listed = document.get("tasks") if known else None
        if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
            problems[path] = _not_a_list(path, document)
            continue
        for number, task in enumerate(listed):
            place = f"{path}: tasks[{task.get('name', number)}]"
            found.append(filled(task, variable, place))
    return found


def _not_a_list(path: str, document: Any) -> str:
    if isinstance(document, dict) and "name" in document:
        given = "-" if path == "stdin" else shlex.quote(path)
        return f"has one task; put it in a list under `tasks:`, or create it with noonbell task create -f {given}"
    return "does not have `tasks:` with a list of tasks"


def _variable(name: str, env: Mapping[str, str], place: str, problems: dict[str, str]) -> str:
    """How secrets stay out of files."""
    found = env.get(name)
    if found is None and name in os.environ:
        problems[place] = f"uses ${{{name}}}; allow it with --env {name}"
    elif found is None:
        problems[place] = (
            f"uses ${{{name}}}, which is not set in the environment; set it, and allow it with --env {name}"
        )
    return found or ""


def as_yaml(tasks: list[dict[str, Any]], calendars: Sequence[dict[str, Any]] = ()) -> str:
    """The tasks as a file."""
    from noonbell import yaml_text

    return yaml_text.write(_content(tasks, calendars), width=120)


def _as_json(tasks: list[dict[str, Any]], calendars: Sequence[dict[str, Any]]) -> str:
    return json.dumps(_content(tasks, calendars), ensure_ascii=False, indent=2) + "\n"


def _content(tasks: list[dict[str, Any]], calendars: Sequence[dict[str, Any]]) -> dict[str, Any]:
    from noonbell.service.task_files import escaped

    return {**({"calendars": list(calendars)} if calendars else {}), "tasks": escaped(tasks)}


def task_schema() -> dict[str, Any]:
    from noonbell.fields import REF, component_of, reached, schema
    from noonbell.service.calendars import CalendarInFile
    from noonbell.service.task_files import TaskInFile

    reachable = dict.fromkeys((*reached(TaskInFile), *reached(CalendarInFile)))
    made = {component_of(each): schema(each, is_body=True) for each in reachable}
    definitions = json.loads(json.dumps(dict(sorted(made.items()))).replace(REF, "#/$defs/"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tasks of Noonbell",
        "type": "object",
        "properties": {
            name: {"type": "array", "items": {"$ref": f"#/$defs/{component_of(each)}"}}
            for name, each in (("tasks", TaskInFile), ("calendars", CalendarInFile))
        },
        "minProperties": 1,
        "additionalProperties": False,
        "$defs": definitions,
    }


@click.command("validate")
@_file_argument
@file_option
@env_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of such files, for editors.")
def validate_command(more_files: tuple[str, ...], files: tuple[str, ...], env: tuple[str, ...], schema: bool) -> None:
    """Check tasks in files, and print a line for each problem; needs no server."""
    if schema:
        import json

        click.echo(json.dumps(task_schema(), indent=2))
        return
    by_file = tasks_by_file(_all_files(files, more_files), env)
    if not by_file:
        raise click.UsageError(f"there is no file of tasks in {', '.join(_all_files(files, more_files))}")
    tasks = [task for listed in by_file.values() for task in listed]
    calendars = calendars_by_file(_all_files(files, more_files))
    problems: dict[str, str] = {}
    try:
        check_calendars(calendars)
    except InvalidArgument as error:
        problems |= error.details
    try:
        check_tasks(tasks)
    except InvalidArgument as error:
        problems |= named_by_file(error, by_file).details
    if problems:
        raise InvalidArgument.fields(problems)
    more = f", {counted(len(calendars), 'calendar')} too" if calendars else ""
    talk(f"{counted(len(tasks), 'task is', 'tasks are')} valid{more}")


def _all_files(files: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    if not files + more:
        context = click.get_current_context()
        raise click.UsageError(
            f"Missing argument 'FILE': {context.command_path} FILE, or -f FILE; a folder works too", context
        )
    return files + more


def check_tasks(tasks: list[dict[str, Any]]) -> None:
    """Raises InvalidArgument with every problem of every task."""
    from noonbell.clock import SystemClock
    from noonbell.errors import InvalidArgument
    from noonbell.service.task_fields import Rules, read_task
    from noonbell.service.task_files import declared_cycle, places_of
    from noonbell.targets.http import template

    problems: dict[str, str] = {}
    now, rules = SystemClock().now(), Rules(check_template=template.check)
    times = Counter(name for task in tasks if isinstance(name := task.get("name"), str))
    for place, task in zip(places_of(tasks), tasks, strict=True):
        fields = {key: value for key, value in task.items() if key != "version"}
        try:
            read_task(fields, now, rules)
        except InvalidArgument as error:
            problems.update({f"{place}.{key}": str(problem) for key, problem in error.details.items()})
        if times[str(task.get("name"))] > 1:
            problems[f"{place}.name"] = "is listed twice; names must be unique"
    cycle = declared_cycle(tasks)
    if cycle:
        problems[f"tasks[{cycle[0]}].after"] = f"makes a cycle: {' → '.join(cycle)}"
    if problems:
        raise InvalidArgument.fields(problems)


def _options(function: Any) -> Any:
    for option in reversed(
        (
            _file_argument,
            file_option,
            env_option,
            click.option(
                "--set", "owner", metavar="NAME", help="The name of this set of tasks [the file's or folder's]."
            ),
            click.option("--prune", is_flag=True, help="Delete tasks of this set that the files no longer have."),
            click.option("--adopt", is_flag=True, help="Take over tasks that are managed elsewhere."),
        )
    ):
        function = option(function)
    return function


@click.command("apply")
@_options
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting.")
@output_option
def apply_command(dry_run: bool, yes: bool, output: str, **given: Any) -> None:
    """Create and change tasks on the server as files declare them; with --prune, also delete.

    If a task was changed elsewhere in the meantime, nothing is applied, and the exit code is 5.
    """
    apply = _Apply(**given)
    if apply.prune and not dry_run and not yes:
        _confirm(apply.post(dry_run=True)["pruned"], apply.names_no_task)
    apply.calendars(dry_run=dry_run)
    done = apply.post(dry_run=dry_run)
    show_one(done, output, name="dry_run", lines=_lines)


@click.command("diff")
@_options
@output_option
def diff_command(output: str, **given: Any) -> int:
    """Show what `apply` would change, and how that moves the next slots.

    Exit code 1 means only that there are differences. 2: the files cannot be read or are not valid, or the server
    failed.
    """
    try:
        apply = _Apply(**given)
        moves = apply.calendars(dry_run=True)
        found = apply.post(dry_run=True)
    except NoonbellError as error:
        say_problems(error)
        code = exit_code(error)
        return EXIT_USAGE if code == EXIT_FAILED else code
    differs = moves or bool(found["created"] or found["changed"] or found["pruned"])
    if differs or output != "table":
        show_one(found, output, name="dry_run", lines=_lines)
    return EXIT_FAILED if differs else 0


class _Apply:
    """The call, from the options of `_options`.

    The set is named by what was given first, so that the same command finds its tasks again.
    """

    def __init__(
        self,
        *,
        more_files: tuple[str, ...],
        files: tuple[str, ...],
        env: tuple[str, ...],
        owner: str | None,
        prune: bool,
        adopt: bool,
    ) -> None:
        files = _all_files(files, more_files)
        self._tasks = tasks_by_file(files, env)
        self._calendars = calendars_by_file(files)
        check_calendars(self._calendars)
        self._remote = Remote.of_environment()
        name = owner or ("stdin" if files[0] == "-" else Path(files[0]).resolve().stem)
        self.prune = prune
        self._body = {
            "owner": name,
            "tasks": [task for tasks in self._tasks.values() for task in tasks],
            "prune": prune,
            "adopt": adopt,
        }

    @property
    def names_no_task(self) -> bool:
        return not self._body["tasks"]

    def calendars(self, *, dry_run: bool) -> bool:
        """Save those of the files, or say which slots they would move; whether any of them differs."""
        from noonbell.cli.api import segment
        from noonbell.cli.calendar import moves_of

        changed: list[tuple[str, dict[str, Any]]] = []
        for name, body in self._calendars:
            path = f"/calendars/{segment(name)}"
            found = self._remote.post(f"{path}/preview", body)
            if not found["changes"]:
                continue
            changed.append((path, body))
            talk(f"calendar {name}:")
            for line in moves_of(found):
                talk(f"    {line}")
        if changed and not dry_run:
            self.post(dry_run=True)  # tasks that are refused leave the calendars as they are
            for path, body in changed:
                self._remote.call("PUT", path, body)
        return bool(changed)

    def post(self, *, dry_run: bool) -> dict[str, Any]:
        """InvalidArgument names the file of each problem."""
        try:
            return dict(self._remote.post("/tasks/apply", {**self._body, "dry_run": dry_run}))
        except InvalidArgument as error:
            raise named_by_file(error, self._tasks) from None


def _confirm(pruned: list[str], names_no_task: bool) -> None:
    if not pruned:
        return
    everything = " The files have no tasks at all." if names_no_task else ""
    confirm(f"Delete {', '.join(pruned)}?{everything}", refused="nothing applied")


def _lines(done: dict[str, Any]) -> Iterator[str]:
    for name in done["created"]:
        yield f"+ {name}"
    for change in done["changed"]:
        yield f"~ {change['name']}"
        for field, (before, after) in change["fields"].items():
            yield from (f"    {line}" for line in _difference(field, before, after))
        if change["next_before"] != change["next_after"]:
            yield f"    next fire moves from {ago(change['next_before'])} to {ago(change['next_after'])}"
        if change["running"]:
            yield f"    {change['running']} run(s) in flight are not affected"
    for name in done["pruned"]:
        yield f"- {name}"
    deleted = f"{len(done['pruned'])} deleted, " if done["pruned"] else ""
    counts = (
        f"{len(done['created'])} created, {len(done['changed'])} changed, {deleted}{len(done['unchanged'])} unchanged"
    )
    talk(counts + (" (nothing was written)" if done["dry_run"] else ""))


def _difference(field: str, before: Any, after: Any) -> Iterator[str]:
    """A schedule in its short words, an object by what differs in it, anything else as it is."""
    if field == "schedule" and isinstance(before, dict) and isinstance(after, dict):
        was, will = schedule_words(before, "UTC"), schedule_words(after, "UTC")
        if was != will:
            yield f"{field}: {was} → {will}"
            return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield from _difference(f"{field}.{name}", before.get(name), after.get(name))
        return
    yield f"{field}: {_short(before)} → {_short(after)}"


def _short(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return cut(json.dumps(value, ensure_ascii=False), 100)


@click.command("export")
@click.option("--owner", metavar="OWNER", help="Only what this owner manages, such as file:billing.")
@click.option("--label", metavar="NAME=VALUE", help="Only tasks with this label.")
@click.option(
    "--versions",
    is_flag=True,
    help="Include the version of each, so that applying the file later does not overwrite newer changes.",
)
@click.option(
    "-f",
    "-o",
    "--file",
    "--out",
    "file",
    metavar="FILE",
    help="Write to this file instead of stdout; json: JSON to stdout.",
)
def export_command(owner: str | None, label: str | None, versions: bool, file: str | None) -> None:
    """Write tasks, and the calendars that they use, to a file that `noonbell apply` accepts.

    Secrets are masked; applying a masked value to the same server keeps the secret.
    """
    if file in FORMATS and file not in ("json", "yaml"):
        raise click.UsageError(f"tasks are written as yaml or json, not as {file}; a file of that name is ./{file}")
    query, remote = {"managed_by": owner, "label": label}, Remote.of_environment()
    found = [task_as_written(task, versions=versions) for task in remote.pages("/tasks", query, None)]
    calendars = _calendars_of(found, remote)
    text = _as_json(found, calendars) if file == "json" else as_yaml(found, calendars)
    if file is None or file in FORMATS:
        click.echo(text, nl=False)
        return
    with open_for_writing(file, "-f") as out:
        out.write(text)
    more = f" and {counted(len(calendars), 'calendar')}" if calendars else ""
    talk(f"{counted(len(found), 'task')}{more} written to {file}")


def _calendars_of(tasks: list[dict[str, Any]], remote: Remote) -> list[dict[str, Any]]:
    used = {task["calendar"]["name"] for task in tasks if task.get("calendar")}
    try:
        listed = remote.get("/calendars")["items"] if used else []
    except Forbidden:
        talk("note: this token may not read calendars; the file has tasks only")
        return []
    return [calendar_as_written(calendar) for calendar in listed if calendar["name"] in used]


def calendar_as_written(calendar: dict[str, Any]) -> dict[str, Any]:
    """The fields to write into a file to get this calendar. Days that its source tells are fetched from there again."""
    from noonbell.cli.calendar import WRITTEN

    fields = (*WRITTEN, *(() if calendar["ical"] else ("ical_days",)))
    return {"name": calendar["name"], **{field: calendar[field] for field in fields if calendar[field]}}


def task_as_written(task: dict[str, Any], *, versions: bool = False) -> dict[str, Any]:
    """The fields to write into a file to get this task."""
    from noonbell.service.task_files import written as as_written

    return as_written(task, versions=versions)
