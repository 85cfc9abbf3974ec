"""What the pages about the API say is run here, line by line; and they leave nothing out."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from integration.api.serving import Api, Told, serving
from noonbell import yaml_text
from noonbell.clock import Instant
from noonbell.errors import HTTP_STATUS
from noonbell.model.access import Role
from noonbell.model.alert import AlertState, AlertStep
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunStatus
from noonbell.model.task import TaskSpec
from noonbell.settings import AuthSettings
from noonbell.stores.sql.statement import Execute
from noonbell.targets import allowed_commands
from services.ports import reserved_port

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = DOCS / "reference/api.md"
HOW_TO = DOCS / "how-to/async-callbacks.md"
TUTORIAL = DOCS / "tutorial/first-task.md"
PROTOCOL = DOCS / "how-to/worker-protocol.md"
QUEUES = DOCS / "how-to/queues.md"
AFTER = DOCS / "how-to/run-after-others.md"
CALLS = DOCS / "how-to/call-a-url.md"
COMMANDS = DOCS / "how-to/commands.md"
KEYS = [DOCS / "how-to/limits-per-key.md", DOCS / "how-to/debounce-and-throttle.md"]

HOST = "http://localhost:8080"


@dataclass
class Curl:
    method: str
    path: str
    headers: dict[str, str]
    body: str | None


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def curl_lines(page: Path) -> list[str]:
    return [line for block in blocks(page, "bash") for line in block.splitlines() if line]


def read_curl(line: str) -> Curl:
    words = shlex.split(line)
    assert words[0] == "curl", line
    curl = Curl("GET", "", {}, None)
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-X":
                curl.method = next(rest)
            case "-H":
                name, _, value = next(rest).partition(": ")
                curl.headers[name] = value
            case "-d":
                curl.body = next(rest)
            case _:
                assert word.startswith(HOST), line
                curl.path = word.removeprefix(HOST)
    return curl


async def run_line(api: Api, line: str) -> Told:
    curl = read_curl(line)
    if urlsplit(curl.path).path == "/api/v1/events":  # it never ends: its head has to do
        async with api.session.get(api.root + curl.path) as response:
            return Told(response.status, None, dict(response.headers), "")
    body = None if curl.body is None else curl.body.replace(HOST, api.root)
    return await api.call(curl.method, f"/{curl.path}", data=body, headers=curl.headers)


async def filled_in(api: Api, line: str) -> str:
    """The line with what its `$NAMES` stand for, made for it."""
    for name in re.findall(r"\$([A-Z_]+)", line):
        line = line.replace(f"${name}", str(await MADE[name](api)))
    return line


async def a_run(api: Api) -> int:
    return await api.trigger(1)


async def an_ended_run(api: Api) -> int:
    run_id = await a_run(api)
    await api.good("POST", f"/runs/{run_id}/cancel")
    return run_id


async def a_flow_run(api: Api) -> int:
    """One that has started, and was canceled."""
    if (await api.call("GET", "/tasks/name:nightly")).status == 404:
        await api.good("POST", "/tasks", {"name": "nightly", "steps": [{"id": "load", "job_type": "load"}]}, 201)
    await api.good("POST", "/runs/cancel", {"all": True})
    run_id = await api.trigger("name:nightly")
    await api.store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=1))
    await api.good("POST", f"/runs/{run_id}/cancel")
    return run_id


async def a_delayed_run(api: Api) -> int:
    return await api.trigger(1, delay_seconds=600)


async def sent_out(api: Api):
    await api.good("POST", "/runs/cancel", {"all": True})
    await api.trigger(1, force_async=True)
    lease = await api.claim()
    await api.park(lease)
    return lease


async def a_pending_run(api: Api) -> int:
    return (await sent_out(api)).run_id


async def a_token(api: Api) -> str:
    return str((await sent_out(api)).callback_token)


async def a_worker(api: Api) -> str:
    await api.good("POST", "/workers/host-1/claim", {"queues": ["none"], "wait_seconds": 0})
    return "host-1"


async def a_lost_worker(api: Api) -> str:
    await api.good("POST", "/workers/host-2/claim", {"queues": ["none"], "wait_seconds": 0})
    await api.store._write(lambda _: _silence("host-2"))  # type: ignore[attr-defined]
    return "host-2"


def _silence(worker_id: str):
    yield Execute("update workers set heartbeat_at = heartbeat_at - 60000000 where id = :id", {"id": worker_id})


async def a_held_run(api: Api) -> int:
    """One that worker w1 holds; nothing else is due on its queue."""
    if (await api.call("GET", "/tasks/name:held")).status == 404:
        await api.good("POST", "/tasks", {"name": "held", "job_type": "work", "queue": "held"}, 201)
    await api.good("POST", "/queues/held/drain")
    await api.trigger("name:held")
    return (await api.claim("held")).run_id


async def its_token(api: Api) -> int:
    """Of the run that was made last."""
    newest = (await api.good("GET", "/runs?queue=held&status=RUNNING&page_size=1"))["items"][0]["id"]
    ((token,),) = await api.store.fetch("select token from live where run_id = :id", id=newest)  # type: ignore[attr-defined]
    return int(token)


async def a_delivery(api: Api) -> int:
    """Of subscription billing, which the lines before it have made: a test."""
    return int((await api.good("POST", "/subscriptions/billing/test"))["delivery_id"])


_ICS = (
    b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n"
    b"DTSTART;VALUE=DATE:20261225\r\nSUMMARY:Christmas Day\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


async def a_fetched_calendar(api: Api) -> str:
    """One whose source is a server that answers twice: when the calendar is saved, and when it is refreshed."""
    left = [1, 0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(_ICS)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + _ICS)
        await writer.drain()
        writer.close()
        if not left.pop(0):
            server.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await api.good("PUT", "/calendars/uk", {"ical": {"url": f"http://127.0.0.1:{port}/uk.ics"}})
    return "uk"


async def an_alerted_subject(api: Api) -> str:
    """What rule billing, which the lines before it have made, has an open alert about."""
    duty = await api.store.take_duty("alerts", "the reference", 60)
    assert duty is not None
    opened = AlertState(rule="billing", subject="task:1", since=Instant(1), raised_at=Instant(1))
    assert await api.store.alert(duty, duty.position, AlertStep(states=[opened]))
    return opened.subject


async def an_acknowledged_subject(api: Api) -> str:
    subject = await an_alerted_subject(api)
    await api.good("POST", "/alerts/acknowledge", {"rule": "billing", "subject": subject})
    return subject


async def tomorrow(_api: Api) -> str:
    return f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"


async def a_mute(api: Api) -> int:
    asked = {"tasks": ["billing-*"], "until": await tomorrow(api), "reason": "the database moves"}
    return int((await api.good("POST", "/alerts/mutes", asked, 201))["id"])


async def a_bulk_operation(api: Api) -> int:
    """One that has ended, and can be undone."""
    started = await api.good("POST", "/bulk", {"kind": "disable_tasks", "filter": {"name": "no such task"}})
    await api.good("POST", f"/bulk/{started['id']}/cancel")
    return int(started["id"])


async def an_admin_token(api: Api) -> str:
    number = len(await api.parts.access.tokens())
    return (await api.parts.access.create(f"admin {number}", Role.ADMIN))[1]


MADE = {
    "ADMIN_TOKEN": an_admin_token,
    "FETCHED_CALENDAR": a_fetched_calendar,
    "WORKER_ID": a_worker,
    "LOST_WORKER_ID": a_lost_worker,
    "HELD_RUN_ID": a_held_run,
    "TOKEN": its_token,
    "RUN_ID": a_run,
    "ENDED_RUN_ID": an_ended_run,
    "DELAYED_RUN_ID": a_delayed_run,
    "FLOW_RUN_ID": a_flow_run,
    "PENDING_RUN_ID": a_pending_run,
    "CALLBACK_TOKEN": a_token,
    "DELIVERY_ID": a_delivery,
    "ALERTED_SUBJECT": an_alerted_subject,
    "ACKNOWLEDGED_SUBJECT": an_acknowledged_subject,
    "TOMORROW": tomorrow,
    "MUTE_ID": a_mute,
    "BULK_ID": a_bulk_operation,
}


async def test_every_line_of_the_reference_works(quick_api: Api):
    async with serving("memory://", auth=AuthSettings(enabled=True)) as guarded:
        for line in curl_lines(REFERENCE):
            api = guarded if "$ADMIN_TOKEN" in line else quick_api
            told = await run_line(api, await filled_in(api, line))
            assert told.status in (200, 201), f"{line}\n{told.text}"


async def test_the_reference_has_a_line_for_every_call(quick_api: Api):
    paths = (await quick_api.good("GET", "//openapi.json"))["paths"]
    missing = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    for line in curl_lines(REFERENCE):
        curl = read_curl(line.replace("$", ""))
        for path, method in list(missing):
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
            if method == curl.method and re.fullmatch(pattern, urlsplit(curl.path).path):
                missing.discard((path, method))
    assert missing == set()


def test_the_reference_has_every_code_and_every_field():
    text = REFERENCE.read_text()
    assert [code for code, status in HTTP_STATUS.items() if f"| `{code}` | {status} |" not in text] == []
    assert [name for name in TaskSpec.__struct_fields__ if f"| `{name}` | " not in text] == []


@pytest.mark.parametrize("page", [REFERENCE, REFERENCE.with_name("errors.md")], ids=lambda page: page.stem)
async def test_the_error_that_a_page_shows_is_the_one_that_is_answered(quick_api: Api, page: Path):
    (shown,) = [found for block in blocks(page, "json") if "request_id" in (found := json.loads(block))]
    told = await quick_api.call("POST", "/tasks", {"name": "a", "cron_expr": "61 * * * *", "target_url": "http://h/"})
    assert told.status == 400
    assert {**told.body, "request_id": shown["request_id"]} == shown


def test_json_in_the_pages_is_json():
    for page in (REFERENCE, HOW_TO, PROTOCOL):
        for block in blocks(page, "json"):
            assert json.loads(block)


async def test_a_worker_can_be_written_from_its_page(quick_api: Api):
    lines = iter(curl_lines(PROTOCOL))
    assert (await run_line(quick_api, next(lines))).status == 201
    triggered = (await run_line(quick_api, next(lines))).body["run_id"]
    (run,) = (await run_line(quick_api, next(lines))).body["runs"]
    assert (run["run_id"], run["payload"]) == (triggered, {"image": "a.png"})
    (shown,) = [json.loads(block) for block in blocks(PROTOCOL, "json") if "job_type" in block]
    assert set(shown["runs"][0]) == set(run)
    for line in lines:
        filled = line.replace("$RUN_ID", str(run["run_id"])).replace("$TOKEN", str(run["token"]))
        told = await run_line(quick_api, filled)
        assert told.status == 200, f"{line}\n{told.text}"
    assert told.body == {"run_id": triggered, "status": "SUCCESS"}
    assert (await quick_api.good("GET", f"/runs/{triggered}"))["result"] == {"width": 640}


async def test_every_line_of_the_page_about_queues_works(quick_api: Api):
    for line in curl_lines(QUEUES):
        told = await run_line(quick_api, await filled_in(quick_api, line))
        assert told.status in (200, 201), f"{line}\n{told.text}"
    names = set(re.findall(r"\$([A-Z_]+)", "".join(blocks(QUEUES, "bash"))))
    assert {name for name in names if f"`${name}` stands for" not in QUEUES.read_text()} == set()
    assert (await quick_api.good("GET", "/runs?origin=backfill"))["total"] == 7


async def test_every_line_of_the_page_about_calls_works(quick_api: Api):
    for line in curl_lines(CALLS):
        assert (await run_line(quick_api, line)).status == 200, line
    assert all(json.loads(block) for block in blocks(CALLS, "json"))


async def test_the_lines_of_the_page_about_commands_work(quick_api: Api, tmp_path: Path):
    for line in curl_lines(COMMANDS):
        assert (await run_line(quick_api, line)).status == 201, line
    (block,) = blocks(COMMANDS, "yaml")
    file = tmp_path / "allow.yaml"
    file.write_text(block)
    file.chmod(0o600)
    assert allowed_commands(str(file)).file.programs == ("/usr/local/bin/backup", "/usr/bin/rsync")


@pytest.mark.parametrize("page", KEYS, ids=lambda page: page.stem)
async def test_the_lines_about_keys_of_runs_work(quick_api: Api, page: Path):
    lines = curl_lines(page)
    assert len(lines) >= 3
    for line in lines:
        told = await run_line(quick_api, line)
        assert told.status < 300, (line, told.text)


async def test_every_line_of_the_page_about_tasks_after_others_works(quick_api: Api):
    for line in curl_lines(AFTER):
        told = await run_line(quick_api, line)
        assert told.status in (200, 201), f"{line}\n{told.text}"
    assert "it runs after extract, clean" in told.text


async def test_the_file_of_the_page_about_tasks_after_others_can_be_applied(quick_api: Api):
    (block,) = blocks(AFTER, "yaml")
    tasks = yaml_text.read(block)["tasks"]
    told = await quick_api.good("POST", "/tasks/apply", {"owner": "nightly", "tasks": tasks})
    assert told["created"] == ["load", "extract", "clean"]
    assert (await quick_api.good("GET", "/tasks/name:load"))["after"]["within_seconds"] == 7200


# ---- with a node at work


@pytest.fixture
async def working(sqlite_url: str) -> AsyncIterator[Api]:
    """The whole service in this process: it plans, executes and answers."""
    async with serving(sqlite_url) as api:
        await api.parts.node.start()
        try:
            yield api
        finally:
            await api.parts.node.stop(1)


async def until_ended(api: Api, run_id: int) -> dict:
    async with asyncio.timeout(60):
        while True:
            run = await api.good("GET", f"/runs/{run_id}")
            if run["final_status"]:
                return run
            await asyncio.sleep(0.05)


async def test_the_tutorial_does_what_it_says_also_after_the_readme(working: Api):
    for name in ("health", "ping"):  # the README makes them, and says that the tutorial goes on from there
        await working.create(name=name, target_url=f"{HOST}/api/v1/healthz")
    lines = iter(curl_lines(TUTORIAL))

    async def step() -> Told:
        return await run_line(working, next(lines))

    assert (await step()).text == "ok"
    assert len((await step()).body["next_fires"]) == 3
    task_id = (await step()).body["id"]
    refused = await step()
    assert (refused.status, list(refused.body["details"])) == (400, ["cron_expr"])
    triggered = (await step()).body["run_id"]
    run = await until_ended(working, triggered)
    assert (run["status"], run["response_code"], run["response_body"]) == ("SUCCESS", 200, "ok")
    assert (await step()).body["total"] >= 1
    assert (await step()).body["version"] == 2
    assert (await step()).body == {"status": "DISABLED"}
    assert (await step()).body == {"deleted": True}
    assert next(lines, None) is None
    assert (await working.good("GET", f"/tasks/{task_id}/runs"))["total"] >= 1


@pytest.fixture
def free_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


async def test_the_target_of_the_how_to_calls_back(working: Api, free_port: int, tmp_path: Path):
    (code,) = blocks(HOW_TO, "python")
    (tmp_path / "target.py").write_text(code.replace("9000", str(free_port)))
    target = await asyncio.create_subprocess_exec(
        sys.executable,
        str(tmp_path / "target.py"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", free_port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        create, trigger, look = curl_lines(HOW_TO)
        assert (await run_line(working, create.replace("9000", str(free_port)))).status == 201
        run = await until_ended(working, (await run_line(working, trigger)).body["run_id"])
        assert (await run_line(working, look)).body["items"][0]["id"] == run["id"]
    finally:
        target.kill()
        await target.wait()
    assert (run["status"], run["final_status"]) == (RunStatus.CALLBACK_SUCCESS, "SUCCESS")
    assert run["result"]["rows"] == 42
