"""COMMAND is a door to the machine. Each of these tries to get through it in a way that was not meant: refused, or bounded."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.target.scenes import is_running
from integration.api.serving import Api, serving
from integration.web.asking import HTML
from noonbell.engine.attempt_runner import Deadlines, execute
from noonbell.engine.worker import Worker
from noonbell.errors import InvalidArgument, SettingsError
from noonbell.model.request import Publication
from noonbell.model.run import Outcome, OutcomeKind, Run, RunStatus
from noonbell.model.target_kind import COMMAND_TYPE, ExecType
from noonbell.model.task import TaskSpec
from noonbell.settings import JobSettings
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets.command.allowed import Allowed, changes_code
from noonbell.targets.command.target import CommandTarget
from unit.targets.make import assignment

PYTHON = os.path.realpath(sys.executable)
PATIENCE = 60.0
MB = 1 << 20
NOBODY = "nobody"
ROOTS_GROUP = 54_321
"""A group that the worker is in, and that no other user is."""
SHELL = {"shell": True}
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as another user")


@pytest.fixture
async def memory() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


Make = Callable[..., CommandTarget]


@pytest.fixture
def target(memory: MemoryStore, tmp_path: Path) -> Make:
    """The target of a worker with this file."""

    def make(*programs: str, **more: Any) -> CommandTarget:
        return CommandTarget(allowed(tmp_path, programs=list(programs), **more), memory)

    return make


def allowed(folder: Path, **fields: Any) -> Allowed:
    file = folder / "allow.yaml"
    file.write_text(json.dumps(fields))
    file.chmod(0o600)
    return Allowed.from_file(str(file))


async def outcome_of(
    target: CommandTarget, *, seconds: float = PATIENCE, payload: Any = None, **fields: Any
) -> Outcome:
    """One attempt, as a worker makes it."""
    given = assignment(payload=payload)
    task = msgspec.structs.replace(given.task, spec=TaskSpec(name="greet", timeout_seconds=seconds, **fields))
    current = asyncio.current_task()
    assert current is not None
    return await execute(msgspec.structs.replace(given, task=task), target, current, Deadlines())


async def refused(target: CommandTarget, **fields: Any) -> str:
    """Why it was not even started; for good."""
    outcome = await outcome_of(target, **fields)
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "command_not_allowed"), outcome
    return str(outcome.error_message)


async def result_of(target: CommandTarget, **fields: Any) -> Any:
    outcome = await outcome_of(target, **fields)
    assert outcome.kind is OutcomeKind.SUCCESS, outcome
    return msgspec.json.decode(outcome.result)


async def carried_out(target: CommandTarget, store: MemoryStore, **fields: Any) -> tuple[Run, list[str]]:
    """A run that a worker claimed and settled, and its log."""
    task = await store.create_task(TaskSpec(name="greet", **fields))
    (published,) = await store.publish([Publication(task_id=task.id)])
    assert published.run_id is not None
    worker = Worker(store, LocalWakeup(), {ExecType.COMMAND: target}, worker_id="one", job_types=(COMMAND_TYPE,))
    await worker.register()
    async with asyncio.timeout(PATIENCE):
        await worker.run_until_idle()
    run = await store.run(published.run_id)
    assert run is not None
    return run, [line.message for line in await store.log_lines(run.id, limit=20_000)]


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while is_running(pid):  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.01)


async def told(file: Path) -> str:
    async with asyncio.timeout(PATIENCE):
        while not written(file).endswith("\n"):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)
    return written(file).strip()


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def processes(argument: str) -> list[str]:
    """Those that were started with this argument."""
    found = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line.decode() for line in found if argument.encode() in line.split(b"\0")]


# What the API refuses to save


SAVED: dict[str, tuple[dict[str, Any], str]] = {
    "a relative path": ({"command": ["./backup"]}, "command"),
    "a bare name, to be found in PATH": ({"command": ["backup"]}, "command"),
    "a path that goes up": ({"command": ["/usr/bin/../../tmp/x"]}, "command"),
    "a path with doubled slashes": ({"command": ["//bin/sh"]}, "command"),
    "a NUL in an argument": ({"command": ["/bin/echo", "a\x00b"]}, "command"),
    "a NUL in a shell's text": ({"command": "echo \x00", "shell": True}, "command"),
    "half of a character": ({"exec_type": "COMMAND", "command": ["/bin/echo", "\ud800"]}, "command"),
    "a text without a shell": ({"command": "echo a; rm b"}, "command"),
    "a list with a shell": ({"command": ["/bin/echo"], **SHELL}, "command"),
    "no program": ({"exec_type": "COMMAND", "command": []}, "command"),
    "an argument that is no text": ({"command": ["/bin/echo", 1]}, "command"),
    "too many arguments": ({"command": ["/bin/echo"] + ["a"] * 1_000}, "command"),
    "arguments of a megabyte": ({"command": ["/bin/echo", "a" * MB]}, "command"),
    "a directory that is relative": ({"command": ["/bin/ls"], "cwd": "srv"}, "cwd"),
    "a directory that goes up": ({"command": ["/bin/ls"], "cwd": "/srv/../etc"}, "cwd"),
    "a user that is an option": ({"command": ["/bin/ls"], "user": "-root"}, "user"),
    "a variable with a blank": ({"command": ["/bin/ls"], "env": {"A B": "x"}}, "env.A B"),
    "a variable with an =": ({"command": ["/bin/ls"], "env": {"A=B": "x"}}, "env.A=B"),
    "a function of bash": ({"command": ["/bin/ls"], "env": {"BASH_FUNC_ls%%": "() { id; }"}}, "env.BASH_FUNC_ls%%"),
    "a NUL in a variable": ({"command": ["/bin/ls"], "env": {"A": "\x00"}}, "env.A"),
    "a variable of the run": ({"command": ["/bin/ls"], "env": {"NOONBELL_RUN_ID": "1"}}, "env.NOONBELL_RUN_ID"),
    "an exit code that there is not": ({"command": ["/bin/ls"], "ok_codes": [256]}, "ok_codes[0]"),
    "a command beside a URL": ({"command": ["/bin/ls"], "target_url": "http://127.0.0.1:9/"}, "target_url"),
    "a job that is called as commands are": ({"job_type": COMMAND_TYPE}, "job_type"),
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        yield api


async def create(api: Api, **fields: Any) -> None:
    await api.good("POST", "/tasks", fields, 201)


@pytest.mark.parametrize("attempt", SAVED)
async def test_what_no_command_can_be_is_not_saved(api: Api, attempt: str):
    fields, named = SAVED[attempt]
    with pytest.raises(InvalidArgument) as refusal:
        await api.services.tasks.create({"name": "a", **fields})
    assert list(refusal.value.details) == [named]
    assert (await api.good("GET", "/tasks"))["total"] == 0


async def test_a_worker_of_the_protocol_cannot_name_itself_one_of_commands(api: Api):
    await create(api, name="a", command=["/bin/ls"])
    await api.good("POST", "/tasks/name:a/trigger")
    body = {"queues": ["default"], "job_types": [COMMAND_TYPE], "wait_seconds": 0}
    answer = await api.call("POST", "/workers/w/claim", body)
    assert (answer.status, list(answer.body["details"])) == (400, ["job_types"])
    assert (await api.good("POST", "/workers/w/claim", {"queues": ["default"], "wait_seconds": 0}))["runs"] == []


async def test_without_a_file_the_server_runs_no_command_and_says_what_the_run_waits_for(api: Api, tmp_path: Path):
    marker = tmp_path / "ran"
    await create(api, name="a", command=["/usr/bin/touch", str(marker)])
    run = await api.good("POST", "/tasks/name:a/trigger")
    explained = await api.good("GET", f"/runs/{run['run_id']}/explain")
    assert explained["cause"] == "no_worker"
    assert "runs commands" in explained["message"]
    assert not marker.exists()


async def test_the_variables_of_a_command_are_masked_and_not_carried_to_another_one(api: Api):
    await create(api, name="a", command=["/bin/ls"], env={"API_KEY": "known-to-few", "TZ": "UTC"})
    shown = await api.good("GET", "/tasks/name:a")
    assert shown["env"] == {"API_KEY": "***", "TZ": "UTC"}
    for change in (
        {"command": ["/usr/bin/env"]},
        {"command": "env", "shell": True},
        {"cwd": "/tmp", "env": shown["env"]},  # noqa: S108 - as text
        {"user": "ada"},
    ):
        answer = await api.call("PATCH", "/tasks/name:a", change)
        assert answer.status == 400, change
        assert set(answer.body["details"]) == {"env.API_KEY"}, change
    answer = await api.call("PATCH", "/tasks/name:a", {"command": ["/usr/bin/env"], "env": {"api_key": "***"}})
    assert (answer.status, set(answer.body["details"])) == (400, {"env.api_key"}), "nor under another spelling"
    await api.good("PATCH", "/tasks/name:a", {"description": "new", "env": shown["env"]})
    assert (await api.services.tasks.get("a")).spec.env == {"API_KEY": "known-to-few", "TZ": "UTC"}
    await api.good("PATCH", "/tasks/name:a", {"command": ["/usr/bin/env"], "env": {"API_KEY": "another"}})
    for page in ("//tasks/1", "//tasks/1/versions", "//tasks/1/edit", "//settings/secrets"):
        told = await api.call("GET", page, headers=HTML)
        assert (told.status, "known-to-few" in told.text, "another<" in told.text) == (200, False, False), page


async def test_the_audit_log_says_who_set_which_command(api: Api):
    await create(api, name="nightly", command=["/usr/local/bin/backup", "two words"])
    await api.good("PATCH", "/tasks/name:nightly", {"command": "rm -rf /srv/old", "shell": True})
    entries = (await api.good("GET", "/audit"))["items"]
    said = [entry["details"].get("command") for entry in entries]
    assert said == ["nightly: rm -rf /srv/old", "nightly: /usr/local/bin/backup 'two words'"]


# What a worker does not run


async def test_a_program_that_is_not_in_the_file_is_refused(target: Make):
    assert "/bin/cat is not among" in await refused(target("/bin/echo"), command=["/bin/cat", "/etc/passwd"])


async def test_a_link_to_an_allowed_program_is_another_program(target: Make, tmp_path: Path):
    (tmp_path / "link").symlink_to("/bin/echo")
    await refused(target("/bin/echo"), command=[str(tmp_path / "link"), "x"])


async def test_another_name_of_the_same_binary_is_another_program(target: Make, tmp_path: Path):
    """A binary that does what its name says: allowing `list` does not allow `remove`."""
    home = tmp_path / "bin"
    home.mkdir(mode=0o755)
    shutil.copy("/bin/sh", home / "all-in-one")
    for name in ("list", "remove"):
        (home / name).symlink_to("all-in-one")
    worker = target(str(home / "list"))
    assert (await outcome_of(worker, command=[str(home / "list"), "-c", "exit 0"])).kind is OutcomeKind.SUCCESS
    await refused(worker, command=[str(home / "remove"), "-c", "exit 0"])
    await refused(worker, command=[str(home / "all-in-one"), "-c", "exit 0"])


async def test_the_same_directory_under_another_name_is_the_same_program(target: Make, tmp_path: Path):
    real = tmp_path / "release-7"
    real.mkdir(mode=0o755)
    shutil.copy("/bin/true", real / "run")
    (tmp_path / "current").symlink_to(real)
    worker = target(str(tmp_path / "current" / "run"))
    assert (await outcome_of(worker, command=[str(real / "run")])).kind is OutcomeKind.SUCCESS


async def test_a_path_that_is_not_plain_is_refused_by_the_worker_too(target: Make):
    for program in ("/bin/../bin/echo", "bin/echo", "echo", "/bin//echo", "/bin/./echo"):
        await refused(target("/bin/echo"), command=[program])


async def test_a_nul_that_came_past_the_api_is_refused_by_the_worker(target: Make):
    await refused(target("/bin/echo"), command=["/bin/echo", "a\x00b"])


async def test_a_program_that_anyone_can_write_is_refused(target: Make, tmp_path: Path):
    home = tmp_path / "bin"
    home.mkdir(mode=0o755)
    shutil.copy("/bin/true", home / "run")
    (home / "run").chmod(0o777)
    assert "written by everyone" in await refused(target(str(home / "run")), command=[str(home / "run")])
    (home / "run").chmod(0o755)
    home.chmod(0o777)
    assert "written by everyone" in await refused(target(str(home / "run")), command=[str(home / "run")])


async def test_the_shell_must_be_allowed_itself(target: Make):
    assert "/bin/sh is not among" in await refused(target("/bin/echo"), command="echo a", **SHELL)


async def test_signs_of_a_shell_are_arguments(target: Make, tmp_path: Path):
    marker = tmp_path / "ran"
    words = [f"; touch {marker}", f"$(touch {marker})", f"`touch {marker}`", f"| touch {marker}", "&& id", "*", "$HOME"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    assert await result_of(target(PYTHON), command=[PYTHON, "-c", script, *words]) == words
    assert not marker.exists()


CODE = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PATH", "IFS", "PYTHONPATH", "PYTHONSTARTUP"]
CODE += [
    "PERL5OPT",
    "RUBYOPT",
    "NODE_OPTIONS",
    "GIT_SSH_COMMAND",
    "GCONV_PATH",
    "SHELLOPTS",
    "PS4",
    "JAVA_TOOL_OPTIONS",
]


@pytest.mark.parametrize("name", CODE)
async def test_a_variable_that_changes_what_is_run_is_refused(target: Make, name: str):
    assert changes_code(name)
    assert name in await refused(target("*"), command=["/bin/true"], env={name: "/tmp/evil"})  # noqa: S108 - as text


async def test_a_file_that_names_its_variables_allows_no_other(target: Make):
    worker = target("/usr/bin/env", env=["TZ", "PATH"])
    await refused(worker, command=["/usr/bin/env"], env={"LANGUAGE": "en"})
    outcome = await outcome_of(worker, command=["/usr/bin/env"], env={"TZ": "UTC", "PATH": "/opt/bin"})
    assert outcome.kind is OutcomeKind.SUCCESS


async def test_a_directory_outside_of_those_allowed_is_refused(target: Make, tmp_path: Path):
    inside, outside = tmp_path / "jobs", tmp_path / "jobs-of-others"
    inside.mkdir()
    outside.mkdir()
    (inside / "out").symlink_to(outside)
    worker = target("/bin/pwd", cwd=[str(inside)])
    assert (await outcome_of(worker, command=["/bin/pwd"], cwd=str(inside))).kind is OutcomeKind.SUCCESS
    for cwd in (outside, inside / "out", tmp_path, inside / ".." / "jobs-of-others"):
        assert "cwd" in await refused(worker, command=["/bin/pwd"], cwd=str(cwd))


async def test_a_user_that_is_not_in_the_file_is_refused(target: Make):
    assert "user 'root'" in await refused(target("*"), command=["/bin/true"], user="root")
    assert "user 'root'" in await refused(target("*", users=[NOBODY]), command=["/bin/true"], user="root")


async def test_a_worker_that_is_not_root_takes_no_other_user(target: Make, monkeypatch: pytest.MonkeyPatch):
    worker = target("*", users=[NOBODY])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "does not run as root" in await refused(worker, command=["/bin/true"], user=NOBODY)


@is_root
async def test_a_command_of_another_user_has_nothing_of_roots(target: Make):
    script = "import json, os; print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]))"
    worker = target("*", users=[NOBODY])
    found, before = pwd.getpwnam(NOBODY), os.getgroups()
    os.setgroups([*before, ROOTS_GROUP])
    try:
        uids, gids, groups = await result_of(worker, command=["/usr/bin/python3", "-c", script], user=NOBODY)
    finally:
        os.setgroups(before)
    assert (set(uids), set(gids)) == ({found.pw_uid}, {found.pw_gid})
    assert not {0, ROOTS_GROUP} & set(groups)


# The file itself


def test_a_file_that_others_can_write_is_no_file(tmp_path: Path):
    file = tmp_path / "allow.yaml"
    file.write_text("programs: [/bin/echo]\n")
    file.chmod(0o606)
    with pytest.raises(SettingsError, match="written by everyone"):
        Allowed.from_file(str(file))


@is_root
def test_a_file_of_another_user_is_no_file(tmp_path: Path):
    file = tmp_path / "allow.yaml"
    file.write_text("programs: ['*']\n")
    os.chown(file, pwd.getpwnam(NOBODY).pw_uid, 0)
    with pytest.raises(SettingsError, match="another user"):
        Allowed.from_file(str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not an object"),
        ("programs: []\n", "commands.programs"),
        ("programs: [echo]\n", "absolute"),
        ("programs: [/bin/../bin/echo]\n", "absolute"),
        ("programs: [/bin/echo]\nprograms: ['*']\n", "twice"),
        ("programs: [/bin/echo]\nprogram: ['*']\n", "commands.program"),
        ("programs: [/bin/echo]\ncwd: [srv]\n", "commands.cwd"),
        ("programs: [/bin/echo]\nmax_processes: 0\n", "commands.max_processes"),
    ],
)
def test_a_file_with_a_slip_allows_nothing(tmp_path: Path, text: str, said: str):
    file = tmp_path / "allow.yaml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(SettingsError, match=said):
        Allowed.from_file(str(file))


def test_a_worker_does_not_start_without_its_file(tmp_path: Path):
    with pytest.raises(SettingsError, match="No such file"):
        Allowed.from_file(str(tmp_path / "allow.yaml"))
    assert JobSettings().commands_file is None


# What a command finds, and what it leaves behind


async def test_nothing_of_the_workers_environment_is_inherited(target: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOONBELL_STORE__URL", "postgresql://secret@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "known-to-few")
    monkeypatch.setenv("LD_PRELOAD", "")
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    found = await result_of(target(PYTHON), command=[PYTHON, "-I", "-c", script], env={"OWN": "1"})
    assert set(found) - {"LC_CTYPE", "USER", "LOGNAME"} == {
        *("PATH", "LANG", "HOME", "OWN", "NOONBELL_RUN_ID", "NOONBELL_TASK_ID", "NOONBELL_TASK", "NOONBELL_ATTEMPT"),
        *("NOONBELL_SCHEDULED_TIME", "NOONBELL_IDEMPOTENCY_KEY"),
    }
    assert (found["NOONBELL_RUN_ID"], found["LANG"]) == ("42", "C.UTF-8")


async def test_no_open_file_of_the_worker_is_inherited(target: Make, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("known-to-few")
    with secret.open() as opened:
        os.set_inheritable(opened.fileno(), True)
        script = (
            "import json, os; print(json.dumps([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
            " if os.path.exists(f'/proc/self/fd/{n}')]))"
        )
        found = await result_of(target(PYTHON), command=[PYTHON, "-I", "-c", script])
    assert len(found) == 3, found
    assert not any("secret" in each for each in found)


async def test_a_command_has_no_terminal_and_its_input_is_the_payload(target: Make):
    script = (
        "import json, os, sys\n"
        "tty = 'none'\n"
        "try:\n    os.open('/dev/tty', os.O_RDWR); tty = 'there'\nexcept OSError: pass\n"
        "print(json.dumps([sys.stdin.isatty(), tty, os.getsid(0) == os.getpid() == os.getpgid(0), sys.stdin.read()]))"
    )
    worker = target(PYTHON)
    payload = {"a": "b\n; rm -rf /"}
    found = await result_of(worker, command=[PYTHON, "-I", "-c", script], payload=payload)
    assert found[:3] == [False, "none", True]
    assert json.loads(found[3]) == payload
    assert (await result_of(worker, command=[PYTHON, "-I", "-c", script]))[3] == ""


async def test_a_command_gains_no_privileges_and_leaves_no_core(target: Make):
    script = (
        "import json, resource; status = open('/proc/self/status').read();"
        "print(json.dumps(['NoNewPrivs:\\t1' in status, resource.getrlimit(resource.RLIMIT_CORE)]))"
    )
    assert await result_of(target(PYTHON), command=[PYTHON, "-I", "-c", script]) == [True, [0, 0]]


async def test_memory_is_bounded_where_the_file_says_so(target: Make):
    worker = target(PYTHON, max_memory_mb=256)
    outcome = await outcome_of(worker, command=[PYTHON, "-I", "-c", f"x = bytearray({512 * MB})"])
    assert (outcome.failure, (outcome.error_details or {})["exit_code"]) == ("exit_code", 1)


@pytest.mark.timeout(300)
async def test_a_gigabyte_of_output_costs_little_memory_and_little_log(target: Make, memory: MemoryStore):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "import os, sys\nfor _ in range(1024): os.write(1, b'x' * 1048575 + b'\\n')\nprint('{\"end\": 1}')"
    run, lines = await carried_out(target(PYTHON), memory, command=[PYTHON, "-I", "-c", script])
    assert (run.status, run.result) == (RunStatus.SUCCESS, {"end": 1})
    assert sum(map(len, lines)) < 2 * MB
    assert any("bytes" in line and "left out" in line for line in lines)
    assert lines[-1] == '{"end": 1}'
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # kB


async def test_many_short_lines_cost_little_log(target: Make, memory: MemoryStore):
    run, lines = await carried_out(target("/bin/sh"), memory, command="yes | head -n 5000000; echo last", **SHELL)
    assert run.status is RunStatus.SUCCESS
    assert len(lines) <= 11_001
    assert lines[-1] == "last"


async def test_a_fork_bomb_is_ended(target: Make, tmp_path: Path):
    worker = target("/bin/sh", max_processes=40)
    seconds = f"1003.{os.getpid()}"
    outcome = await outcome_of(worker, command=f"while :; do sleep {seconds} & done", **SHELL)
    assert outcome.failure == "too_many_processes"
    assert processes(seconds) == []


@is_root
async def test_a_fork_bomb_of_another_user_is_bounded_by_the_kernel(target: Make):
    script = "import json, os\nmade = 0\ntry:\n    while made < 500:\n        if os.fork() == 0:\n            import time; time.sleep(1000)\n        made += 1\nexcept BlockingIOError: pass\nprint(json.dumps(made))"
    worker = target("*", users=[NOBODY], max_processes=20)
    outcome = await outcome_of(worker, command=["/usr/bin/python3", "-I", "-c", script], user=NOBODY)
    made = None if outcome.result is None else msgspec.json.decode(outcome.result)
    assert outcome.failure == "too_many_processes" or made <= 20, (outcome, made)


async def test_a_command_that_ignores_term_is_killed_when_its_run_is_canceled(target: Make, tmp_path: Path):
    file = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.1; done"
    worker = target("/bin/sh", grace_seconds=0.2)
    attempt = asyncio.create_task(outcome_of(worker, command=script, **SHELL))
    pid = int(await told(file))
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not is_running(pid), "the attempt ends when its processes have"


async def test_a_command_may_clean_up_when_it_is_told_to_end(target: Make, tmp_path: Path):
    file, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    script = f"trap 'echo done > {cleaned}; exit 0' TERM; echo $$ > {file}; while :; do sleep 0.05; done"
    attempt = asyncio.create_task(outcome_of(target("/bin/sh", grace_seconds=30), command=script, **SHELL))
    await told(file)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert cleaned.read_text() == "done\n"


async def test_a_command_past_its_deadline_is_ended_with_all_that_it_started(target: Make, tmp_path: Path):
    file = tmp_path / "pid"
    script = f"trap '' TERM; sh -c \"trap '' TERM; echo \\$\\$ > {file}; sleep 1000\""
    outcome = await outcome_of(target("/bin/sh", grace_seconds=0.1), command=script, seconds=1, **SHELL)
    assert (outcome.failure, outcome.error_message) == ("timeout", "it took longer than 1 s")
    assert not is_running(int(await told(file)))


async def test_a_daemon_that_left_its_group_ends_with_its_command(target: Make, tmp_path: Path):
    file = tmp_path / "pid"
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        open('{file}', 'w').write(f'{{os.getpid()}}\\n')\n        time.sleep(1000)\n    os._exit(0)\n"
        f"while not os.path.exists('{file}'): time.sleep(0.01)\n"
    )
    outcome = await outcome_of(target(PYTHON), command=[PYTHON, "-I", "-c", script])
    assert outcome.kind is OutcomeKind.SUCCESS
    assert not is_running(int(await told(file)))


async def test_a_background_process_that_holds_the_output_open_does_not_hold_the_run(target: Make, tmp_path: Path):
    file = tmp_path / "pid"
    outcome = await outcome_of(target("/bin/sh"), command=f"sleep 1000 & echo $! > {file}", **SHELL)
    assert outcome.kind is OutcomeKind.SUCCESS
    assert not is_running(int(await told(file)))


async def test_a_command_that_kills_its_supervisor_dies_with_it(target: Make, tmp_path: Path):
    file = tmp_path / "pid"
    outcome = await outcome_of(target("/bin/sh"), command=f"echo $$ > {file}; kill -9 $PPID; sleep 1000", **SHELL)
    assert outcome.failure == "crash"
    await gone(int(await told(file)))


# What is told of it


async def test_secrets_are_masked_in_log_result_and_error(target: Make, memory: MemoryStore):
    env = {"API_KEY": "known-to-few", "TZ": "UTC"}
    script = 'echo "key $API_KEY in $TZ"; echo "$API_KEY" >&2; echo "{\\"key\\": \\"$API_KEY\\"}"'
    run, lines = await carried_out(target("/bin/sh"), memory, command=script, env=env, **SHELL)
    assert run.result == {"key": "***"}
    assert "key *** in UTC" in lines
    assert "known-to-few" not in "".join(lines)
    outcome = await outcome_of(target("/bin/echo"), command=["/known-to-few"], env=env)
    assert "known-to-few" not in str(outcome)


async def test_a_secret_at_the_end_of_a_line_that_is_cut_is_not_shown_in_part(target: Make, memory: MemoryStore):
    script = "import os; print('x' * 16376 + os.environ['API_KEY'] + 'y' * 9)"
    command = [PYTHON, "-I", "-c", script]
    _, (line,) = await carried_out(target(PYTHON), memory, command=command, env={"API_KEY": "known-to-few"})
    assert "known" not in line
    assert line.endswith("… (cut)")


async def test_output_that_no_store_could_hold_is_kept_all_the_same(target: Make, memory: MemoryStore):
    run, lines = await carried_out(target("/bin/sh"), memory, command="printf 'a\\0b\\377\\n'", **SHELL)
    assert run.status is RunStatus.SUCCESS
    assert len(lines) == 1


async def test_exit_codes_that_the_task_names_are_a_success(target: Make, memory: MemoryStore):
    worker = target("/bin/sh")
    outcome = await outcome_of(worker, command="exit 3", **SHELL)
    said = {"code": "command_exit", "facts": {"code": 3}}
    assert (outcome.failure, outcome.error_details) == (
        "exit_code",
        {"exit_code": 3, "kind": "exit_code", "said": said},
    )
    run, _ = await carried_out(worker, memory, command="exit 3", ok_codes=(0, 3), **SHELL)
    assert (run.status, run.error_details) == (RunStatus.SUCCESS, {"exit_code": 3})
    outcome = await outcome_of(worker, command="kill -SEGV $$", **SHELL)
    assert (outcome.failure, (outcome.error_details or {})["signal"]) == ("signal", "SIGSEGV")
