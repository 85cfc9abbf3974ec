"""From layers to Settings: defaults, then files, then the environment, then flags; the later wins, key by key.

Files are YAML or TOML, by their ending. ALIASES are the keys of other services that are understood here.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from noonbell.errors import SettingsError
from noonbell.masking import is_secret_name, masked
from noonbell.settings.kinds import UnusableAddress
from noonbell.settings.sections import SECTIONS, DeclaredTask, SettingKey, Settings, keys

_DSN = re.compile(
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?tcp\((?P<host>\[[^]]+\]|[^():]+)(?::(?P<port>\d+))?\)"
    r"/(?P<database>[^?/]+)(?:\?(?P<parameters>.*))?"
)
_TLS_OF_GO = {"": "", "true": "?ssl-mode=VERIFY_IDENTITY", "1": "?ssl-mode=VERIFY_IDENTITY", "false": "", "0": ""}


class UnknownTls(ValueError):
    """A DSN asks for a kind of encryption that an address here cannot say. Without it the connection would have none."""


@dataclass(frozen=True, slots=True)
class Alias:
    path: str | None
    """The key it stands for; None: accepted, without effect."""
    turn: Callable[[Any], Any] = lambda value: value
    takes: str = ""


def url_from_dsn(dsn: Any) -> str:
    """`me:pw@tcp(db:3306)/cron?parseTime=True` → `mysql://me:pw@db:3306/cron`. ValueError if it is no such thing.

    Its parameters speak to the Go driver (character set, time zone) and are settled here, but for `tls`.
    """
    found = _DSN.fullmatch(dsn) if isinstance(dsn, str) else None
    if found is None:
        raise ValueError("no DSN")
    user = quote(found["user"] or "root", safe="")
    asked = dict(parse_qsl(found["parameters"] or "")).get("tls", "")
    if asked.lower() not in _TLS_OF_GO:
        raise UnknownTls(f"asks for tls={asked}; leave it out and write store.url, with ssl-mode and ssl-ca")
    password = f":{quote(found['password'], safe='')}" if found["password"] else ""
    place = f"{found['host']}:{found['port'] or 3306}/{quote(found['database'], safe='')}"
    return f"mysql://{user}{password}@{place}{_TLS_OF_GO[asked.lower()]}"


ALIASES: Mapping[str, Alias] = {
    "mysql.dsn": Alias("store.url", url_from_dsn, "a DSN such as user:password@tcp(127.0.0.1:3306)/cronjob"),
    "mysql.max_open_conns": Alias("store.pool_size"),
    "mysql.max_idle_conns": Alias(None),
    "mysql.conn_max_lifetime": Alias(None),
    "plan_exec_timeout": Alias("plans.exec_timeout"),
    "redis_addr": Alias(None),
    "redis_defdb": Alias(None),
}


def read_file(path: Path) -> dict[str, Any]:
    """Moments stay texts, as in JSON. Raises SettingsError, whose detail names the file."""
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError.field(name, "does not exist; check --config") from None
    except IsADirectoryError:
        raise SettingsError.field(name, "is a folder; --config expects a YAML or TOML file") from None
    except OSError as error:
        raise SettingsError.field(name, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError.field(name, "is not UTF-8 text") from None
    if path.suffix == ".toml":
        found = _read_toml(name, text)
    elif path.suffix in (".yaml", ".yml", ".json"):
        found = _read_yaml(name, text)
    else:
        raise SettingsError.field(name, "has an unknown extension; expected .yaml, .yml, .json or .toml")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError.field(name, "is not a mapping; expected sections such as server: and store:")
    return found


def _read_toml(name: str, text: str) -> Any:
    import tomllib

    try:
        return _with_texts_for_moments(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError.field(name, f"is not TOML: {error}") from None


def _with_texts_for_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_texts_for_moments(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts_for_moments(item) for item in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value


def _read_yaml(name: str, text: str) -> Any:
    from noonbell import yaml_text

    try:
        return yaml_text.read(text)
    except ValueError as error:
        raise SettingsError.field(name, str(error)) from None


PREFIX = "NOONBELL_"

KEYS: Mapping[str, SettingKey] = {key.path: key for key in keys()}
_SECTION_PATHS = frozenset(SECTIONS) | {path.split(".")[0] for path in ALIASES if "." in path}


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, str]
    """For every key: `default`, `file NAME`, the environment variable, or the flag."""


@dataclass(slots=True)
class _Draft:
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    tasks: dict[Any, DeclaredTask] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def load(files: Sequence[str | Path], env: Mapping[str, str], flags: Mapping[str, Any]) -> Loaded:
    """Settings from all layers. `flags` maps key paths to values; None is a flag that was not given.

    Raises SettingsError, whose details name every problem there is, each under its key's path.
    """
    draft = _Draft()
    for file in files:
        _add_file(draft, Path(file))
    _add_layer(draft, {path: (value, name) for name, path, value in _variables(env)})
    _add_layer(draft, {path: (value, _flag_name(path)) for path, value in flags.items() if value is not None})
    draft.problems.update(_almost_settings(env, draft.values))
    settings = _build(draft)
    if draft.problems:
        raise SettingsError.fields(draft.problems)
    origins = {path: draft.origins.get(path, "default") for path in KEYS}
    origins["tasks"] = ", ".join(dict.fromkeys(f"file {task.file}" for task in draft.tasks.values())) or "default"
    return Loaded(settings, origins)


def _add_file(draft: _Draft, file: Path) -> None:
    try:
        content = read_file(file)
    except SettingsError as error:
        draft.problems.update(error.details)
        return
    _add_tasks(draft, file, content.pop("tasks", None))
    origin = f"file {file}"
    _add_layer(draft, {path: (value, origin) for path, value in _flat(content, "", draft, origin)})


def _add_tasks(draft: _Draft, file: Path, tasks: Any) -> None:
    if tasks is None:
        return
    if not isinstance(tasks, list) or not all(isinstance(task, Mapping) for task in tasks):
        draft.problems["tasks"] = f"in file {file} is not a list of mappings; expected tasks, each with a name"
        return
    seen: set[Any] = set()
    for number, fields in enumerate(tasks):
        name = fields.get("name")
        if not isinstance(name, str) or not name:
            draft.problems[f"tasks[{number}].name"] = f"in file {file} is {name!r}; expected the name of the task"
        elif name in seen:
            draft.problems[f"tasks[{number}].name"] = (
                f"in file {file} is {name!r}, which is already taken; names must be unique"
            )
        else:
            seen.add(name)
            draft.tasks[name] = DeclaredTask(file.name, dict(fields))


def _flat(content: Mapping[Any, Any], prefix: str, draft: _Draft, origin: str) -> Iterator[tuple[str, Any]]:
    """Key paths and values; sections are walked into, values that are mappings themselves are not."""
    for name, value in content.items():
        path = f"{prefix}{name}"
        if path in KEYS or path not in _SECTION_PATHS:
            yield path, value
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{path}.", draft, origin)
        elif value is not None:
            draft.problems[path] = f"is {value!r} ({origin}); expected a section with its own keys"


def _variables(env: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Variables with a double underscore are settings; the others of the prefix speak to the command line."""
    for name in sorted(env):
        if name.startswith(PREFIX) and "__" in (rest := name.removeprefix(PREFIX)):
            yield name, rest.lower().replace("__", "."), env[name]
        elif name == f"{PREFIX}ALERTS":
            yield name, "alerts", env[name]


def _almost_settings(env: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    """Variables that would be ignored and look like keys which nothing else sets: NOONBELL_STORE, NOONBELL_STORE_URL.

    Kubernetes sets NOONBELL_SERVER_PORT=tcp://… where a service is called noonbell-server.
    """
    found: dict[str, str] = {}
    for name in sorted(env):
        if not name.startswith(PREFIX) or "__" in name or env[name].startswith(("tcp://", "udp://", "sctp://")):
            continue
        rest = name.removeprefix(PREFIX).lower()
        meant = [path for path in KEYS if "." in path and rest in (path.partition(".")[0], path.replace(".", "_"))]
        if meant and not any(path in values for path in meant):
            variables = ", ".join(f"{PREFIX}{path.upper().replace('.', '__')}" for path in meant[:3])
            found[name] = f"is not a setting; section and key are separated by two underscores: {variables}"
    return found


_FLAGS: Final = {"store.url": "--store", "jobs.worker_concurrency": "--concurrency"}
"""Flags that are not called as their key is."""


def _flag_name(path: str) -> str:
    return _FLAGS.get(path) or f"--{path.rpartition('.')[2].replace('_', '-')}"


def _add_layer(draft: _Draft, layer: Mapping[str, tuple[Any, str]]) -> None:
    for path, (value, origin) in layer.items():
        if path in KEYS:
            draft.values[path], draft.origins[path] = value, origin
        elif path in ALIASES:
            _add_alias(draft, layer, path, value, origin)
        else:
            draft.problems[path] = f"is not a setting ({origin}){_hint(path)}"


def _add_alias(draft: _Draft, layer: Mapping[str, tuple[Any, str]], path: str, value: Any, origin: str) -> None:
    alias = ALIASES[path]
    if alias.path is None:
        return
    if alias.path in layer:
        draft.problems[path] = f"means the same as {alias.path}, which is also set ({origin}); keep one of them"
        return
    try:
        draft.values[alias.path] = alias.turn(value)
    except UnknownTls as error:
        draft.problems[path] = f"{error} ({origin})"
    except ValueError:
        draft.problems[path] = f"is {_shown(path, value)} ({origin}); expected {alias.takes}"
    draft.origins[alias.path] = f"{origin} ({path})"


def _hint(path: str) -> str:
    near = difflib.get_close_matches(path, [*KEYS, *ALIASES], n=1, cutoff=0.75)
    if near:
        return f"; did you mean {near[0]}?"
    section = path.rpartition(".")[0]
    siblings = [key.rpartition(".")[2] for key in KEYS if key.rpartition(".")[0] == section]
    if section and siblings:
        return f"; the keys of {section} are {', '.join(siblings)}"
    return f"; the sections are {', '.join(dict.fromkeys(key.partition('.')[0] for key in KEYS))} and tasks"


def _build(draft: _Draft) -> Settings:
    read: dict[str, dict[str, Any]] = {path: {} for path in SECTIONS}
    whole: dict[str, Any] = {"tasks": tuple(draft.tasks.values())}
    kind, _, place = draft.origins.get("jobs.jobs", "").partition("file ")
    if place and not kind:
        whole["jobs_from"] = Path(place).name
    for path, value in draft.values.items():
        section, _, name = path.rpartition(".")
        try:
            (read[section] if section else whole)[name] = KEYS[path].kind.read(value)
        except UnusableAddress as error:
            draft.problems[path] = f"{error} ({draft.origins[path]})"
        except (ValueError, TypeError):
            shown, origin = _shown(path, value), draft.origins[path]
            hint = _store_hint(str(value)) if path == "store.url" else ""
            draft.problems[path] = f"is {shown} ({origin}); expected {KEYS[path].kind.takes}{hint}"
    built: dict[str, Any] = {}
    for path in sorted(SECTIONS, key=lambda path: -path.count(".")):  # the inner ones first
        inner = {name.rpartition(".")[2]: section for name, section in built.items() if name.startswith(f"{path}.")}
        try:
            built[path] = SECTIONS[path](**read[path], **inner)
        except SettingsError as error:
            draft.problems.update(error.details)
    if draft.problems:
        return Settings()
    return Settings(**whole, **{path: section for path, section in built.items() if "." not in path})


def _store_hint(address: str) -> str:
    """What was probably meant: the address of a server's store, or a file."""
    if address.startswith(("http://", "https://")):
        return (
            "; this looks like the address of a server: give the address of its store, which the server names at"
            " startup"
        )
    is_file = "/" in address or address.endswith((".db", ".sqlite", ".sqlite3"))
    return f"; did you mean sqlite:///{address}?" if is_file and ":" not in address and "@" not in address else ""


def _shown(path: str, value: Any) -> str:
    if path in ("mysql.dsn", "store.url") and isinstance(value, str) and "@" in value:
        return "an address that cannot be parsed"  # it may hold a password in a place that masking does not know
    return repr("***" if is_secret_name(path) else masked(value, path))


def plain(settings: Settings) -> dict[str, Any]:
    """Every key and its value as it would stand in a file, secrets masked; `tasks` as they were declared."""
    shown: dict[str, Any] = {}
    for path, key in KEYS.items():
        value: Any = settings
        for name in path.split("."):
            value = getattr(value, name)
        value = key.kind.write(value)
        shown[path] = masked(value, path if isinstance(value, Mapping) else path.rpartition(".")[2])
    shown["tasks"] = masked([dict(task.fields) for task in settings.tasks])
    return shown
