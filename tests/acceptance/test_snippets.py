"""Every fenced block of every page but the decisions is run or checked, or stands in a table with the reason.

Shell is typed into a terminal beside a real server; YAML goes through `noonbell validate` or `noonbell config check`; of JSON the
names of all fields are looked up. Python is run by the tests that `RUN_BY` names. A block that is in no table and of no kind that is
known here fails.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from acceptance.harness import COMMAND, ServerNode
from noonbell.api.openapi import document
from services.endpoints import endpoint_table
from services.snippets import PAGES, ROOT, SHELL, Snippet, Terminal, TypedCommand, blocks, has_grammar, normal, typed

pytestmark = pytest.mark.acceptance

PAPERS = "tests/integration/api/test_papers.py::test_"
PYTHON = "tests/integration/app/test_pages.py::test_"
TUTORIAL = "tests/acceptance/test_tutorial.py::test_"
SYSTEMD = "tests/acceptance/test_systemd_page.py::test_the_page_works_as_it_is_printed"
ABOUT_KEYS = f"{PYTHON}the_pages_about_keys_and_schedules_are_true"
MOVERS = f"{TUTORIAL}every_example_for_those_who_move_here_ends_as_the_page_says"
READER = f"{TUTORIAL}a_reader_of_the_tutorial_of_flows_sees_what_it_says"

RUN_BY = {
    "README.md": {
        "sh": "tests/acceptance/test_readme.py::test_every_line_works_in_its_order",
        "python": "tests/acceptance/test_readme.py::test_the_six_lines_of_python_are_those_that_dev_is_tested_with",
    },
    "README.zh-CN.md": dict.fromkeys(
        ("sh", "python"), "tests/architecture/test_readme.py::test_both_languages_have_the_same_links_and_commands"
    ),
    "docs/tutorial/first-task.md": {"bash": f"{PAPERS}the_tutorial_does_what_it_says_also_after_the_readme"},
    "docs/tutorial/nightly-flow.md": dict.fromkeys(("console", "bash", "python", "text", "yaml"), READER),
    "docs/how-to/async-callbacks.md": dict.fromkeys(("bash", "python"), f"{PAPERS}the_target_of_the_how_to_calls_back"),
    "docs/how-to/call-a-url.md": {
        "bash": f"{PAPERS}every_line_of_the_page_about_calls_works",
        "python": f"{PYTHON}the_page_about_calls_is_true",
        "text": f"{PYTHON}the_page_about_calls_is_true",
    },
    "docs/how-to/commands.md": dict.fromkeys(("bash", "yaml"), f"{PAPERS}the_lines_of_the_page_about_commands_work"),
    "docs/how-to/compose-jobs.md": dict.fromkeys(
        ("python", "text"), f"{PYTHON}the_page_about_jobs_put_together_is_true"
    ),
    "docs/how-to/debounce-and-throttle.md": dict.fromkeys(("python", "text"), ABOUT_KEYS),
    "docs/how-to/events.md": {"python": f"{PYTHON}the_loop_of_the_page_about_events_hears_of_a_failure"},
    "docs/how-to/frameworks.md": {
        "python": "tests/acceptance/test_frameworks.py::test_what_the_page_shows_of_an_example_is_in_it"
    },
    "docs/how-to/from-celery-bullmq-airflow.md": dict.fromkeys(("python", "yaml", "text"), MOVERS),
    "docs/how-to/jobs-api.md": {"bash": "tests/integration/api/test_jobs.py::test_every_line_of_the_how_to_works"},
    "docs/how-to/limits-per-key.md": dict.fromkeys(("python", "text"), ABOUT_KEYS),
    "docs/how-to/move-from-a-cronjob-service.md": {
        "bash": "tests/acceptance/test_document_002.py::test_the_steps_of_the_how_to_work",
        **dict.fromkeys(("sql", "yaml", "console"), "tests/acceptance/test_mover.py::test_the_move_and_the_way_back"),
    },
    "docs/how-to/plans.md": dict.fromkeys(
        ("bash", "python"), "tests/acceptance/test_document_004.py::test_the_how_to_does_what_it_says"
    ),
    "docs/how-to/python-jobs.md": dict.fromkeys(("python", "text"), f"{PYTHON}the_how_to_is_true"),
    "docs/how-to/queues.md": {"bash": f"{PAPERS}every_line_of_the_page_about_queues_works"},
    "docs/how-to/run-after-others.md": {
        "bash": f"{PAPERS}every_line_of_the_page_about_tasks_after_others_works",
        "python": f"{PYTHON}the_jobs_of_the_page_about_tasks_after_others_follow_each_other",
    },
    "docs/how-to/run-under-systemd.md": dict.fromkeys(("sh", "ini"), SYSTEMD),
    "docs/how-to/several-schedules.md": {"python": ABOUT_KEYS},
    "docs/how-to/testing.md": {"python": f"{PYTHON}the_tests_of_the_page_about_testing_pass_as_they_are_printed"},
    "docs/how-to/webhooks.md": {
        "python": "tests/integration/api/test_subscriptions.py::"
        "test_the_receiver_of_the_page_takes_what_is_signed_and_nothing_else"
    },
    "docs/how-to/worker-protocol.md": {"bash": f"{PAPERS}a_worker_can_be_written_from_its_page"},
    "docs/reference/api.md": {"bash": f"{PAPERS}every_line_of_the_reference_works"},
    "docs/reference/legacy-api.md": {
        "bash": "tests/integration/api/test_legacy.py::test_the_lines_of_its_page_work_and_leave_out_no_call"
    },
    "docs/reference/python.md": dict.fromkeys(("python", "text"), f"{PYTHON}the_reference_is_true"),
    "docs/reference/simulation.md": {"python": f"{PYTHON}the_page_about_the_simulation_plays_a_seed_as_it_says"},
    "docs/explanation/run-states.md": {
        "mermaid": "tests/unit/model/test_diagram.py::test_the_docs_show_the_present_table"
    },
}
"""By page and language: the test that runs these blocks, all of them."""

LONG = "takes many minutes, and is itself a set of tests"
CLUSTER = "needs Docker or a cluster; tests/architecture/test_kit.py looks up what the files of deploy/ name"
NOT_RUN = {
    "CONTRIBUTING.md": {
        "make": "the tests themselves; tests/architecture/test_papers.py looks up the targets",
        ".venv/bin/pytest": "the tests themselves",
        "NOONBELL_TEST_TABLE_PREFIX": "the tests themselves",
    },
    "docs/explanation/layers.md": {"planner ─▶": "a drawing; tests/acceptance/test_slot_walk.py walks it"},
    "docs/explanation/policies.md": {"due slots ─": "a drawing; tests/conformance/store/test_slot.py tests the order"},
    "docs/explanation/stores.md": {
        "         plan ": "a drawing; tests/conformance/store/test_transitions.py makes the changes"
    },
    "docs/reference/schedules.md": {
        "second   0-59": "a drawing; tests/conformance/schedules/test_vectors.py has such fields"
    },
    "docs/reference/bench.md": {"python -m bench": "tests/acceptance/test_bench.py runs a part of it"},
    "docs/reference/faults.md": {"make faults": LONG, "FAULTS_TIMES": LONG},
    "docs/reference/security-map.md": {"make sabotage": LONG},
    "docs/reference/simulation.md": {"python -m noonbell.testing.simulation --seeds": LONG},
    "docs/how-to/auth.md": {
        "location / {": "nginx is not there; tests/security/test_reverse_proxies.py sends what it would"
    },
    "docs/how-to/deploy.md": {"docker compose": CLUSTER, 'echo "POSTGRES_PASSWORD': CLUSTER, "kubectl": CLUSTER},
    "docs/how-to/frameworks.md": {
        "cd examples": "tests/acceptance/test_frameworks.py starts these programs on a database of its own",
        "createdb": "as above",
        "export DATABASE_URL": "as above",
        "echo 'store": "as above",
        "uvicorn": "as above",
        "noonbell serve": "as above",
        "curl": "as above",
    },
    "docs/how-to/grpc.md": {
        "protoc": "the compiler of protocols is not there; descriptors are in tests/services/grpc_bell.py"
    },
    "docs/how-to/mcp.md": {
        '{\n  "mcpServers"': "a file of another program; tests/acceptance/test_mcp.py starts the command as that would",
    },
    "docs/how-to/move-in.md": {
        "noonbell import celery postgresql": "tests/integration/test_importers.py imports from such tables",
        "noonbell import apscheduler": "tests/unit/cli/test_importers_of_python.py imports from a scheduler and a database that are there",
        "noonbell import xxl-job": "tests/integration/test_importers.py imports from such tables",
        "noonbell import cronjob": "tests/integration/test_importers.py imports from such tables",
        "noonbell import jobs postgresql": "tests/integration/test_importers.py imports from such tables",
        "noonbell import plans": "tests/integration/test_importers.py imports from such a Redis",
    },
    "docs/how-to/python-jobs.md": {
        "@app.job(sandbox=True": "another process imports its module; tests/unit/targets/jobs/test_sandbox.py runs sandboxes",
        "async with AsyncSession": "the tables are the reader's; tests/integration/app/test_transactions.py does it",
        "connection = await asyncmy.connect": "the host is the reader's; tests/integration/app/test_transactions.py does it",
        "from django.db": "the tables are the reader's; tests/acceptance/test_frameworks.py does it",
        "# gunicorn.conf.py": "a file for gunicorn; tests/integration/app/test_forking.py forks so",
    },
    "docs/how-to/run-in-a-container.md": {
        "docker": "tests/acceptance/test_image.py does what the Dockerfile says, without Docker"
    },
    "docs/how-to/tasks-as-files.md": {
        "noonbell import cronjob": "tests/integration/test_importers.py imports from such tables"
    },
    "docs/how-to/traces.md": {
        "opentelemetry-instrument": "its programs are not installed here",
    },
}
"""By page: what a block or a command begins with that is not run here, and why. It is read by the parser of its language all the same."""

LASTING = ("noonbell serve", "noonbell dev", "noonbell worker --")
"""These do not end by themselves: they are started, have to become ready, and are stopped when the page is over."""

EXAMPLES = {
    "docs/how-to/auth.md": {"noonbell audit"},
    "docs/how-to/secrets.md": {"noonbell secrets rotate"},
    "docs/how-to/tasks-as-files.md": {"noonbell diff"},
    "docs/how-to/why-did-it-not-run.md": {"noonbell task explain", "noonbell run explain"},
    "docs/how-to/limits-per-key.md": {"noonbell run explain"},
    "docs/how-to/flows.md": {"noonbell run graph"},
}
"""By page: commands whose output on the page is of another installation, with other tasks."""


# ---- what each page takes for granted


@dataclass
class PageScene:
    """What a reader of the page has: files, tasks, ids. `STORE`, `TARGET` and `FOLDER` stand for those of the test."""

    files: dict[str, str] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    """By the beginning of a command: what is typed before it."""
    replace: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    """By a text of the page: the expression that finds what stands in its place, in what was last printed."""
    codes: dict[str, int] = field(default_factory=dict)
    """By the beginning of a command: its exit code, where it is not 0."""
    settings: dict[str, str] = field(default_factory=dict)
    """Of the server, as variables."""


CRONTAB = "*/5 * * * * curl -s http://svc.internal/ping\n@reboot /opt/start.sh\n"
SYSTEM_CRONTAB = "17 * * * * root /usr/bin/run-parts /etc/cron.hourly\n"
APP = "from noonbell import App\n\napp = App()\n\n\n@app.job(queue='mail')\nasync def hello() -> None: ...\n"
HOLIDAY = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n"
    "DTSTART;VALUE=DATE:20261225\r\nSUMMARY:Christmas Day\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
TIMER = {
    "units/backup.timer": "[Timer]\nOnCalendar=daily\n",
    "units/backup.service": "[Service]\nExecStart=/usr/local/bin/backup\n",
}
CHANNEL = 'noonbell api POST /alerts/channels -d \'{"name": "ops", "url": "TARGET/hook"}\''
WAITING = {
    "_id": {"$oid": "x"},
    "key": "order-1",
    "task_state": {"start_time": {"$date": "2030-01-01T00:00:00.000Z"}, "worker_states": []},
    "task_option": {},
    "params": {"order": 1},
}
CONFIG = "store: {url: 'STORE'}\n"
JOB = "noonbell task create {} --set job_type={}"

SCENES = {
    "docs/how-to/alerts.md": PageScene(before={"noonbell alert test": [CHANNEL]}),
    "docs/how-to/auth.md": PageScene(
        files={"noonbell.yaml": CONFIG},
        before={"noonbell audit": ["noonbell audit --config noonbell.yaml"]},
        found={
            "nb_Y1kbhnatv3lxy8_…": r"nb_[\w-]+",
            "512:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": r"\d+:[0-9a-f]{64}",
        },
    ),
    "docs/how-to/brokers.md": PageScene(
        before={"noonbell task create rates": ["noonbell api DELETE /tasks/name:rates"]}
    ),
    "docs/how-to/calendars.md": PageScene(
        files={"holidays.ics": HOLIDAY}, codes={"noonbell diff": 1, "noonbell calendar diff holidays": 1}
    ),
    "docs/how-to/commands.md": PageScene(
        files={
            "etc/noonbell/allow.yaml": "programs: [/bin/true]\n",
            "etc/crontab": SYSTEM_CRONTAB,
        },
        replace={"/etc/crontab": "etc/crontab"},
    ),
    "docs/how-to/deploy.md": PageScene(files={"etc/prometheus/.keep": ""}, replace={"deploy/": f"{ROOT}/deploy/"}),
    "docs/how-to/events.md": PageScene(replace={"curl -N": "curl -N --max-time 1"}, codes={"curl -N": 28}),
    "docs/how-to/flows.md": PageScene(
        before={"noonbell run graph": ["noonbell apply block-0.yaml", "noonbell trigger nightly"]},
        found={"7340033": r"\d{6,}"},
    ),
    "docs/how-to/limits-per-key.md": PageScene(
        before={"noonbell run explain": ["noonbell trigger import --arg tenant=acme"]}, found={"7340034": r"\d{6,}"}
    ),
    "docs/how-to/move-in.md": PageScene(
        files={
            "etc/crontab": SYSTEM_CRONTAB,
            "FILE": SYSTEM_CRONTAB,
            **TIMER,
            "shop/celeryconfig.py": (ROOT / "tests/unit/cli/data/celeryconfig.py").read_text(),
            "settle.json": json.dumps(WAITING) + "\n",
            "config/default.toml": "[[jobs.jobs]]\njob_name = 'a'\njob_type = 'b'\ncron = '0 2 * * *'\n",
            "cronjobs.yaml": (ROOT / "tests/unit/cli/data/cronjobs.yaml").read_text(),
        },
        replace={
            "/etc/crontab": "etc/crontab",
            "/etc/systemd/system": "units",
            "kubectl get cronjobs -A -o yaml": "cat cronjobs.yaml",
            "mongoexport --collection settle": "cat settle.json",
        },
        codes={"noonbell diff": 1, "kubectl": 1, "noonbell import celery": 1},
    ),
    "docs/how-to/move-to-another-database.md": PageScene(
        replace={"postgresql://noonbell@db.internal/noonbell": "sqlite:///moved.db"},
        codes={"noonbell move --from sqlite:///noonbell.db --cancel": 5},  # the page has moved it by then
    ),
    "docs/how-to/named-services.md": PageScene(
        files={"noonbell.yaml": CONFIG},
        settings={
            "NOONBELL_EXECUTOR__SERVICES": '{"billing": "https://billing.internal:8443/api", "mail": "http://10.0.0.7:8025"}'
        },
    ),
    "docs/how-to/pause-a-task.md": PageScene(
        before={"noonbell task pause report --reason": [JOB.format("report", "x")]},
        replace={"2026-12-24T06:00:00Z": f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"},
    ),
    "docs/how-to/quiet-hours.md": PageScene(before={"curl -X PUT http://localhost:8080/api/v1/alerts": [CHANNEL]}),
    "docs/how-to/queues.md": PageScene(
        before={
            "noonbell task edit": [JOB.format("sync_stats", "x")],
            "noonbell run clean": ["noonbell trigger sync_stats", "noonbell run cancel 7340033"],
        },
        found={"7340033": r"\d{6,}"},
    ),
    "docs/how-to/secrets.md": PageScene(files={"noonbell.yaml": CONFIG + "secrets: {key_file: etc/noonbell/keys}\n"}),
    "docs/how-to/several-nodes.md": PageScene(files={"noonbell.yaml": CONFIG}),
    "docs/how-to/share-a-database.md": PageScene(
        files={"second.yaml": "store: {url: 'STORE', table_prefix: second_}\n"}
    ),
    "docs/how-to/tasks-as-files.md": PageScene(
        files={"me": CRONTAB},
        before={"noonbell validate": ["export REPORTS_TOKEN=secret"]},
        replace={"/var/spool/cron/me": "me"},
        codes={"noonbell diff": 1, "noonbell import": 1},
    ),
    "docs/how-to/upgrade.md": PageScene(files={"noonbell.yaml": CONFIG}),
    "docs/how-to/when-the-database-fails-over.md": PageScene(files={"noonbell.yaml": CONFIG}),
    "docs/how-to/webhooks.md": PageScene(
        before={
            "noonbell subscription create": ["noonbell api DELETE /subscriptions/billing"],
            "curl http://localhost:8080/api/v1/subscriptions/billing/deliveries/": [
                "noonbell subscription test billing"
            ],
        },
        found={"7340099": r"\d{6,}"},
    ),
    "docs/how-to/why-did-it-not-run.md": PageScene(
        before={
            "noonbell task explain": ["noonbell task create nightly --cron '30 2 * * *' --set job_type=send_mial"],
            "noonbell run explain": ["noonbell trigger nightly"],
        },
        found={"241884622127115": r"\d{6,}"},
    ),
    "docs/how-to/workers.md": PageScene(
        files={"app.py": APP, "shop/jobs.py": APP},
        before={"noonbell task edit": [JOB.format("train", "x")]},
        replace={"--app shop.jobs:app": "--app shop.jobs:app --worker-id mailer", " ID": " mailer"},
    ),
}


class PageReader:
    """One reader with one page: a folder, a server, a terminal."""

    def __init__(self, page: str, folder: Path, node: ServerNode, store: str, target: str) -> None:
        self.scene = SCENES.get(page, PageScene())
        self._node, self._store, self._target = node, store, target
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        ours = {
            "PATH": f"{Path(COMMAND).parent}{os.pathsep}{clean['PATH']}",
            "NOONBELL_URL": f"http://127.0.0.1:{node.port}",
            "NOONBELL_STORE__URL": store,
            "NOONBELL_SERVER__PORT": "0",
            "NOONBELL_OUTPUT": "table",
            "NO_COLOR": "1",
        }
        self.terminal = Terminal(folder, clean | ours)
        self._folder = folder
        self._last = ""
        self._found: dict[str, str] = {}
        self.keeps_addresses = False
        (folder / "etc/noonbell").mkdir(parents=True, exist_ok=True)
        for name, text in self.scene.files.items():
            self.write(name, text.replace("STORE", store))

    def write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def types(self, each: TypedCommand) -> None:
        for begins, commands in self.scene.before.items():
            if each.command.startswith(begins):
                for command in commands:
                    told = self.terminal.types(self._here(command))
                    assert told.code == 0, f"before {each.place}: {command}\n{told.text}"
                    self._last = told.text
        command = self._here(each.command)
        if command.startswith(LASTING):
            said = self.terminal.starts(command)
            assert "ready" in said, f"{each.place}: {each.command}\n{said}"
            return
        told = self.terminal.types(command)
        expected = next((code for begins, code in self.scene.codes.items() if each.command.startswith(begins)), 0)
        assert told.code == expected, f"{each.place}: {each.command}\nended with {told.code}\n{told.text}"
        assert '"code":' not in told.text or "curl" not in command, f"{each.place}: {each.command}\n{told.text}"
        self._last = told.text
        if each.prints and not is_example(each):
            missing = [line for line in normal(each.prints) if line not in normal(told.text)]
            assert missing == [], f"{each.place}: {each.command} does not print so, but:\n{told.text}"

    def _here(self, command: str) -> str:
        """The command with the addresses, files and ids of this test."""
        for page, here in self.scene.replace.items():
            command = command.replace(page, here)
        for page, pattern in self.scene.found.items():
            if page in command:
                if page not in self._found or re.search(pattern, self._last):
                    self._found[page] = re.search(pattern, self._last)[0]  # type: ignore[index]
                command = command.replace(page, self._found[page])
        command = re.sub(r"(localhost|127\.0\.0\.1):8080", f"127.0.0.1:{self._node.port}", command)
        command = re.sub(r"https?://(hooks\.example\.com|localhost:9000|127\.0\.0\.1:9000)", self._target, command)
        if not self.keeps_addresses:
            command = re.sub(r"postgresql://[^\s'\"]+", self._store, command)
        command = re.sub(r"(?<![\w/.])/etc/(noonbell|prometheus)/", r"etc/\1/", command)
        return command.replace("TARGET", self._target)


def is_example(each: TypedCommand) -> bool:
    page = each.place.partition(":")[0]
    return each.command.startswith(tuple(EXAMPLES.get(page, ())))


def is_run_by_another(block: Snippet) -> bool:
    return block.language in RUN_BY.get(block.page, {}) and block.mark != "norun"


def reason_not_run(page: str, text: str) -> str | None:
    if text.startswith("pip install"):
        return "it fetches packages; `make release-check` installs what was built here"
    return next((why for begins, why in NOT_RUN.get(page, {}).items() if text.startswith(begins)), None)


# ---- the kinds


def checks_shell(reading: PageReader, block: Snippet) -> None:
    for each in typed(block):
        if reason_not_run(block.page, each.command) is None:
            reading.types(each)
        else:
            assert has_grammar(each.command), each.place


def checks_yaml(reading: PageReader, block: Snippet) -> None:
    """A file of tasks or calendars, else settings."""
    named = re.match(r"# ([\w.-]+\.ya?ml)$", block.text, re.MULTILINE)
    number = sum(1 for _ in reading.terminal.folder.glob("block-*.yaml"))
    text = block.text
    content = yaml.safe_load(text)
    if set(content) == {"grpc"}:
        content = {"tasks": [{"name": "shown", **content}]}
        text = yaml.safe_dump(content)
    for name in {f"block-{number}.yaml"} | ({named[1]} if named else set()):
        reading.write(name, text)
    of_tasks = set(content) <= {"tasks", "calendars"}
    command = "validate" if of_tasks else "config check --config"
    alone = {name: value for name, value in reading.terminal.environment.items() if "__" not in name}
    beside = Terminal(
        reading.terminal.folder, alone | {"NOONBELL_FILE_ENV": "REPORTS_TOKEN", "REPORTS_TOKEN": "secret"}
    )
    told = beside.types(f"noonbell {command} block-{number}.yaml")
    assert told.code == 0, f"{block.place}\n{told.text}"


def checks_toml(reading: PageReader, block: Snippet) -> None:
    reading.write("block.toml", block.text)
    told = reading.terminal.types("noonbell config check --config block.toml")
    assert told.code == 0, f"{block.place}\n{told.text}"


def checks_json(reading: PageReader, block: Snippet) -> None:
    """Each field is one of the description of the API, or of an event or a message that the page is about."""
    assert sorted(set(fields_of(json.loads(block.text))) - known_fields()) == [], block.place


def fields_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            if name not in ("labels", "payload"):
                yield from fields_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from fields_of(each)


def known_fields() -> set[str]:
    def names(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict):
                yield from part["properties"]
            for each in part.values():
                yield from names(each)
        elif isinstance(part, list):
            for each in part:
                yield from names(each)

    of_messages = {
        "specversion",
        "source",
        "datacontenttype",
        "subject",
        "title",
        "links",
        "dashboard",
        "task",
        "run",
        "canceled_at",
    }
    return set(names(document(endpoint_table()))) | of_messages


def checks_text(reading: PageReader, block: Snippet) -> None:
    """What stands alone is an example of an output: a line of each kind that it has is among the messages of the source."""
    assert block.page in SHOWN, f"{block.place}: this text follows no command that is run"
    assert SHOWN[block.page] in block.text


SHOWN = {
    "docs/how-to/events.md": ": noonbell events",
    "docs/reference/log.md": "run ended",
    "docs/reference/settings.md": "a whole number from",
    "docs/explanation/stores.md": "for a lock that is held by",
    "docs/how-to/move-to-another-database.md": ": set store.url to that address",
    "docs/how-to/share-a-database.md": "that Noonbell did not create, and nothing was",
}
"""By page: a text that is an example of an output, and words of it that the source has."""

KINDS: dict[str, Callable[[PageReader, Snippet], None]] = {
    **dict.fromkeys(SHELL, checks_shell),
    "yaml": checks_yaml,
    "toml": checks_toml,
    "json": checks_json,
    "text": checks_text,
}


def run_here(page: Path) -> list[Snippet]:
    """The blocks that this file runs, or of whose commands it runs some."""
    return [
        block
        for block in blocks(page)
        if not is_run_by_another(block) and (block.language in SHELL or reason_not_run(block.page, block.text) is None)
    ]


CLIENTS = {"sqlite3": "sqlite3", "pg_dump": "postgresql-client", "mariadb-dump": "mariadb-client"}
"""The programs that the page about backups calls, and the packages of Debian that have them."""

BACKUP = ROOT / "docs/how-to/backup-and-restore.md"
HERE = [page for page in PAGES if run_here(page) and page != BACKUP]


def follow(reading: PageReader, page: Path) -> None:
    try:
        for block in run_here(page):
            KINDS[block.language](reading, block)
    finally:
        reading.terminal.close()


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_do_what_they_say(page, nodes, target, sqlite_url, tmp_path, program):
    if "promtool" in page.read_text():
        program("promtool", "prometheus")
    node = nodes.start(sqlite_url, env=SCENES.get(str(page.relative_to(ROOT)), PageScene()).settings)
    follow(PageReader(str(page.relative_to(ROOT)), tmp_path, node, sqlite_url, target.url("")), page)


def test_a_store_is_backed_up_and_restored_as_its_page_says(
    nodes, target, sqlite_url, postgres_url, mysql_url, tmp_path, program
):
    """With the clients of the databases, which find the servers of the tests by their environment and `~/.my.cnf`."""
    for client, package in CLIENTS.items():
        program(client, package)
    node = nodes.start(sqlite_url)
    reading = PageReader(str(BACKUP.relative_to(ROOT)), tmp_path, node, sqlite_url, target.url(""))
    postgres, maria = urlsplit(postgres_url), urlsplit(mysql_url)
    theirs, ours = (address.path.strip("/") for address in (postgres, maria))
    reading.terminal.environment |= {
        "HOME": str(tmp_path),
        "PGHOST": postgres.hostname or "",
        "PGPORT": str(postgres.port or 5432),
        "PGUSER": postgres.username or "",
        "PGPASSWORD": unquote(postgres.password or ""),
    }
    client = {"host": maria.hostname, "port": maria.port or 3306, "user": maria.username, "password": maria.password}
    lines = (f'{name} = "{unquote(str(value or ""))}"' for name, value in client.items())
    reading.write(".my.cnf", "\n".join(["[client]", *lines, ""]))
    restored = postgres._replace(path=f"/{theirs}_restored").geturl()
    reading.scene = PageScene(
        replace={
            "pg_dump -Fc -f noonbell.dump noonbell": f"pg_dump -Fc -f noonbell.dump {theirs}",
            "postgresql://noonbell@db.internal/noonbell_restored": restored,
            "postgresql://noonbell@db.internal/noonbell_copy": restored,
            "createdb noonbell_restored": f"createdb {theirs}_restored",
            "-d noonbell_restored": f"-d {theirs}_restored",
            "--hex-blob noonbell ": f"--hex-blob {ours} ",
            "database noonbell_restored": f"database {ours}_restored",
            "mariadb noonbell_restored": f"mariadb {ours}_restored",
        }
    )
    reading.keeps_addresses = True
    try:
        follow(reading, BACKUP)
    finally:
        reading.terminal.types(f"dropdb --if-exists {theirs}_restored")
        reading.terminal.types(f"mariadb -e 'drop database if exists {ours}_restored'")


# ---- nothing is left out


def test_every_block_is_run_or_stands_in_a_table():
    """A language without a kind here needs a test of its own, in RUN_BY, or a reason, in NOT_RUN."""
    every = [block for page in PAGES for block in blocks(page)]
    assert len(every) > 200, "the expression finds the blocks"
    assert [
        block.place
        for block in every
        if not is_run_by_another(block)
        and block.language not in KINDS
        and reason_not_run(block.page, block.text) is None
    ] == []


def test_what_is_not_run_is_there_and_can_be_read():
    begins = {
        (block.page, text): block.language
        for page in PAGES
        for block in blocks(page)
        for text in ([each.command for each in typed(block)] if block.language in SHELL else [block.text])
    }
    for page, table in NOT_RUN.items():
        for start in table:
            found = [(text, kind) for (named, text), kind in begins.items() if named == page and text.startswith(start)]
            assert found, f"{page} has nothing that begins with {start!r}"
            for text, kind in found:
                if kind in SHELL:
                    assert has_grammar(text), text
                elif kind in ("py", "python"):
                    compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_tables_name_pages_commands_and_tests_that_are_there():
    pages = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    assert {*RUN_BY, *NOT_RUN, *SCENES, *EXAMPLES, *SHOWN} - set(pages) == set()
    for page, commands in EXAMPLES.items():
        assert [command for command in commands if command not in pages[page]] == []
    for page, by_language in RUN_BY.items():
        there = {block.language for block in blocks(ROOT / page)}
        assert set(by_language) <= there, page
        for test in set(by_language.values()):
            path, _, name = test.partition("::")
            source = (ROOT / path).read_text()
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), test
            assert Path(page).name in source or "PAGES" in source, f"{test} does not name {page}"
    reasons = " ".join(why for table in NOT_RUN.values() for why in table.values())
    assert [path for path in re.findall(r"tests/[\w/]+\.py", reasons) if not (ROOT / path).exists()] == []


def test_what_a_page_shows_of_a_message_is_in_the_source():
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert [page for page, words in SHOWN.items() if words not in source] == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "noonbell task create x --no-such-option"),
        ("sh", "curl http://localhost:8080/api/v1/tasks/name:missing"),
        ("console", "$ noonbell next @daily --no-such-option"),
        ("console", "$ noonbell pause --show\neverything is paused\n"),
        ("yaml", "tasks: [{name: x, no_such_field: 1}]"),
        ("yaml", "server: {no_such_key: 1}"),
        ("toml", "[server]\nno_such_key = 1"),
        ("json", '{"no_such_field": 1}'),
        ("text", "nothing printed this"),
    ],
)
def test_a_block_that_is_wrong_fails(language, text, nodes, target, sqlite_url, tmp_path):
    reading = PageReader("README.md", tmp_path, nodes.start(sqlite_url), sqlite_url, target.url(""))
    with pytest.raises(AssertionError):
        KINDS[language](reading, Snippet("docs/how-to/none.md", language, text, 1))
