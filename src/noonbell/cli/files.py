"""Tasks as files: YAML or JSON with `tasks:`, one file or a folder of them.

`${NAME}` in a file is filled from the environment, for the names that `--env` allows and no others: a file that came from
elsewhere must not carry the tokens of the person who applies it to a server of its author.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from noonbell.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

SUFFIXES: Final = (".yaml", ".yml", ".json")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")

file_option: Callable[[F], F] = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A file, a folder of files, or - (stdin).",
)
env_option: Callable[[F], F] = click.option(
    "--env",
    "env",
    multiple=True,
    metavar="NAME",
    envvar="NOONBELL_FILE_ENV",
    help="A variable that files may use as ${NAME}, or a pattern such as 'BILLING_*'; also NOONBELL_FILE_ENV.",
)


def read(files: tuple[str, ...], env: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Every task of these files, in order. InvalidArgument names file and place of each problem.

    `env`: names or patterns of the variables that the files may use.
    """
    problems: dict[str, str] = {}
    tasks: list[dict[str, Any]] = []
    allowed = {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in env)}
    for name in files:
        for path, text in _texts(name):
            tasks += _tasks(path, text, allowed, problems)
    if problems:
        raise InvalidArgument.fields(problems)
    return tasks


def _texts(name: str) -> list[tuple[str, str]]:
    if name == "-":
        import sys

        return [("stdin", sys.stdin.read())]
    place = Path(name)
    paths = sorted(each for each in place.rglob("*") if each.suffix in SUFFIXES) if place.is_dir() else [place]
    try:
        return [(str(path), path.read_text(encoding="utf-8")) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise click.BadParameter(f"cannot read {name}: {said}", param_hint="-f") from None


def _tasks(path: str, text: str, env: Mapping[str, str], problems: dict[str, str]) -> list[dict[str, Any]]:
    import yaml

    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        problems[path] = f"is neither YAML nor JSON: {' '.join(str(error).split())}"
        return []
    found: list[dict[str, Any]] = []
    for document in documents:
        listed = document.get("tasks") if isinstance(document, dict) and set(document) == {"tasks"} else None
        if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
            problems[path] = "holds something else than `tasks:` with a list of tasks"
            continue
        for number, task in enumerate(listed):
            place = f"{path}: tasks[{task.get('name', number)}]"
            found.append({key: _filled(value, env, f"{place}.{key}", problems) for key, value in task.items()})
    return found


def _filled(value: Any, env: Mapping[str, str], place: str, problems: dict[str, str]) -> Any:
    """`${NAME}` stands for a variable of the environment: how secrets stay out of files."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found[1], env, place, problems), value)
    if isinstance(value, Mapping):
        return {key: _filled(each, env, f"{place}.{key}", problems) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, env, place, problems) for each in value]
    return value


def _variable(name: str, env: Mapping[str, str], place: str, problems: dict[str, str]) -> str:
    found = env.get(name)
    if found is None and name in os.environ:
        problems[place] = f"uses ${{{name}}}; allow that with --env {name}"
    elif found is None:
        problems[place] = f"uses ${{{name}}}, which the environment does not have"
    return found or ""


def written(tasks: list[dict[str, Any]]) -> str:
    """The tasks as a file."""
    import yaml

    text: str = yaml.safe_dump({"tasks": tasks}, sort_keys=False, allow_unicode=True, width=120)
    return text
