"""What a worker may run: its own file (`noonbell worker --commands allow.yaml`), and the decision about one command. No
API changes it.

A program is compared by its directory as it really is, symbolic links resolved, and by its name: `/bin/ls` and
`/usr/bin/ls` may be the same file, and `/usr/bin/[`, `ls` and `rm` may all be links to one binary that does what its
name says. What is run then is the real file. Nothing is searched for in PATH.

The file must belong to root or to the worker's user, and no other user may be able to write it; the same holds for a
program of an exact list, and for the directory that it lies in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell import yaml_text
from noonbell.errors import InvalidArgument, SettingsError
from noonbell.fields import meta, read
from noonbell.model.failure_text import failure_text
from noonbell.model.task import TaskSpec

SHELL: Final = "/bin/sh"
ANY: Final = "*"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LARGEST: Final = 1_000_000
"""Bytes of the file."""

_CHANGES_CODE: Final = (
    *(
        "LD_",
        "DYLD_",
        "GLIBC_",
        "BASH_",
        "PYTHON",
        "PERL",
        "RUBY",
        "NODE_",
        "GIT_",
        "JAVA_",
        "JDK_",
        "_JAVA",
        "NOONBELL_",
    ),
    *("GCONV_", "MALLOC_", "OPENSSL_", "SSL_", "LUA_", "PHP", "DOTNET_", "CORECLR_", "COMPLUS_"),
)
_CHANGES_CODE_EXACTLY: Final = frozenset(
    [
        "CDPATH",
        "CLASSPATH",
        "EDITOR",
        "ENV",
        "GETCONF_DIR",
        "GREP_OPTIONS",
        "HOME",
        "HOSTALIASES",
        "IFS",
        "LOCALDOMAIN",
        "LOCPATH",
        "MAKEFLAGS",
        "MANPAGER",
        "NLSPATH",
        "PAGER",
        "PATH",
        "PROMPT_COMMAND",
        "PS4",
        "RES_OPTIONS",
        "RESOLV_HOST_CONF",
        "RSYNC_RSH",
        "SHELL",
        "SHELLOPTS",
        "TAR_OPTIONS",
        "TERMCAP",
        "TERMINFO",
        "TERMINFO_DIRS",
        "TMPDIR",
        "VISUAL",
        "ZDOTDIR",
    ]
)
"""Variables by which an allowed program can be made to load or run something else. A file that names its variables may
name these.
"""


class AllowFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file, as it is written."""

    noun: ClassVar[str] = "a file of allowed commands"

    programs: Annotated[
        tuple[Annotated[str, meta(max_length=4_096)], ...],
        meta("Absolute paths; or `*`: any program.", min_length=1, max_length=1_000, missing="a list of programs"),
    ]
    users: Annotated[
        tuple[Annotated[str, meta(max_length=64)], ...],
        meta("Users that a task may name, if the worker is root.", max_length=1_000),
    ] = ()
    cwd: Annotated[
        tuple[Annotated[str, meta(max_length=4_096)], ...] | None,
        meta("Directories that commands may run in, with all below them. Left out: any.", max_length=1_000),
    ] = None
    env: Annotated[
        tuple[Annotated[str, meta(max_length=128)], ...] | None,
        meta(
            "Variables that a task may set. Left out: all but those that change what a program loads.", max_length=1_000
        ),
    ] = None
    max_processes: Annotated[int, meta("Processes of one command at the same time.", ge=1, le=100_000)] = 512
    max_memory_mb: Annotated[int | None, meta("Limit of each of its processes.", ge=16, le=100_000_000)] = None
    grace_seconds: Annotated[float, meta("Time from SIGTERM to SIGKILL.", ge=0, le=60)] = 1.0


class NotAllowed(Exception):
    """The worker does not run that; the message says why. Never retried."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A command that may be run: what is executed, and where."""

    path: str
    argv: list[str]
    cwd: str
    real_cwd: str
    user: str | None
    env: dict[str, str]


class Allowed:
    """One worker's file."""

    def __init__(self, file: AllowFile, name: str) -> None:
        self.file, self.name = file, name
        self._is_any = ANY in file.programs

    @classmethod
    def from_file(cls, path: str) -> Allowed:
        """SettingsError names the file and what is wrong with it."""
        where = Path(path)
        try:
            with where.open("rb") as opened:
                problem = _ownership_problem(os.fstat(opened.fileno()))
                text = opened.read(_LARGEST + 1)
        except OSError as error:
            raise SettingsError.field("commands", f"{path}: {error.strerror}") from None
        if problem is None and len(text) > _LARGEST:
            problem = f"has more than {_LARGEST} bytes"
        if problem is not None:
            raise SettingsError.field("commands", f"{path} {problem}")
        return cls(_read(text, path), str(where.absolute()))

    def plan(self, spec: TaskSpec, env: Mapping[str, str]) -> Plan:
        """What to execute for a task. `env`: that of the task, its secrets opened. NotAllowed else."""
        argv = [SHELL, "-c", str(spec.command)] if spec.shell else [str(word) for word in spec.command or ()]
        if not argv or any("\x00" in word for word in argv):
            raise NotAllowed("has no program, or a NUL in an argument")
        path = self._program(argv[0])
        cwd = spec.cwd or "/"
        return Plan(path, argv, cwd, self._directory(cwd), self._user(spec.user), self._environment(env))

    def _program(self, program: str) -> str:
        if not program.startswith("/") or os.path.normpath(program) != program:
            raise NotAllowed(failure_text("program_no_path", program=repr(program)))
        if not self._is_any and _place(program) not in {_place(each) for each in self.file.programs}:
            raise NotAllowed(failure_text("program_not_listed", program=program, file=self.name))
        real = os.path.realpath(program)
        if not self._is_any:
            self._check_owner(real)
        return real

    def _check_owner(self, real: str) -> None:
        for path in (real, os.path.dirname(real)):  # noqa: PTH120 - texts, as the rest of it
            try:
                problem = _ownership_problem(os.stat(path))  # noqa: PTH116 - as above
            except OSError:
                return  # it is not there: running it says so
            if problem is not None:
                raise NotAllowed(f"{path} {problem}")

    def _directory(self, cwd: str) -> str:
        real = os.path.realpath(cwd)
        if not cwd.startswith("/") or os.path.normpath(cwd) != cwd:
            raise NotAllowed(failure_text("cwd_no_path", cwd=repr(cwd)))
        roots = self.file.cwd
        if roots is not None and cwd != "/" and not any(_is_below(real, os.path.realpath(root)) for root in roots):
            raise NotAllowed(failure_text("cwd_outside", cwd=cwd, file=self.name))
        return real

    def _user(self, user: str | None) -> str | None:
        if user is None:
            return None
        if user not in self.file.users:
            raise NotAllowed(failure_text("user_not_listed", user=repr(user), file=self.name))
        if os.geteuid() != 0:
            raise NotAllowed(failure_text("user_not_root", user=repr(user)))
        return user

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if "\x00" in name or "\x00" in value or "=" in name or not name:
                raise NotAllowed("has a variable that an environment cannot contain")
            if name.startswith("NOONBELL_"):
                raise NotAllowed(failure_text("variable_of_runs", name=name))
            if self.file.env is not None and name not in self.file.env:
                raise NotAllowed(failure_text("variable_not_listed", name=name, file=self.name))
            if self.file.env is None and changes_code(name):
                raise NotAllowed(failure_text("variable_changes_code", name=name, file=self.name))
        return dict(env)


def changes_code(variable: str) -> bool:
    """Whether a variable can make an allowed program load or run something else."""
    return variable in _CHANGES_CODE_EXACTLY or variable.startswith(_CHANGES_CODE)


def _read(text: bytes, path: str) -> AllowFile:
    try:
        given: Any = yaml_text.read(text.decode())
    except ValueError as error:  # UnicodeDecodeError is one
        raise SettingsError.field("commands", f"{path}: {error}") from None
    if isinstance(given, Mapping) and given.get("programs") == ANY:
        given = {**given, "programs": [ANY]}
    if not isinstance(given, Mapping):
        raise SettingsError.field("commands", f"{path} is not an object; expected `programs:` and a list")
    try:
        file = read(AllowFile, given)
    except InvalidArgument as error:
        raise SettingsError.fields(
            {f"commands.{name}": f"{said} ({path})" for name, said in error.details.items()}
        ) from None
    for field, paths in (("programs", file.programs), ("cwd", file.cwd or ())):
        for each in paths:
            if (each != ANY or field != "programs") and (not each.startswith("/") or os.path.normpath(each) != each):
                raise SettingsError.field(f"commands.{field}", f"has {each!r}; expected absolute paths ({path})")
    return file


def _place(program: str) -> str:
    """Its directory, links resolved, and its name."""
    directory, name = os.path.split(program)
    return os.path.join(os.path.realpath(directory), name)  # noqa: PTH118 - texts, as the rest of it


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _ownership_problem(found: os.stat_result) -> str | None:
    if found.st_uid not in (0, os.geteuid()):
        return "belongs to another user; expected root, or the worker's own"
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & stat.S_IWOTH and not is_sticky:
        return "can be written by everyone"
    if found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid()):
        return "can be written by another group"
    return None
