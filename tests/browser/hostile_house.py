"""A node full of hostile texts: each in every field of tasks, runs, workers, callbacks, alerts and all that the API takes,
and in what a target answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from acceptance.harness import ServerNode
from browser.hostile import HOSTILE
from browser.sowing import Sower, schema_of
from integration.targets.sink import Asked, Line, Sink, listening
from noonbell.errors import ConcurrencyLimit, InvalidState, LeaseLost
from noonbell.model.run import ChildRequest, RunId
from noonbell.ports import Store
from noonbell.stores import open_store

PATIENCE = 60.0
TEXTS = list(HOSTILE.items())
_NEEDED = {
    **dict.fromkeys(("schedule.expr", "schedules.expr", "exclude.expr"), "0 3 * * *"),
    "grpc.address": "127.0.0.1:9",
    "grpc.method": "shop.Orders/Close",
}
"""What an object cannot do without, and no text fits into: without it, none would be put into the rest of the object."""
DAILY = {f"{place}{name}": value for place in ("", "tasks.") for name, value in _NEEDED.items()}
NOBODY = 1 << 40
"""The id of no task."""
ONCE = {"max_retries": 0}


@dataclass
class House:
    """What was made with one text after the other; `tasks` and `runs` by the name of the text."""

    node: ServerNode
    sower: Sower
    sink: Sink
    store: Store
    tasks: dict[str, list[int]] = field(default_factory=dict)
    runs: dict[str, list[int]] = field(default_factory=dict)
    children: int = 0
    """Runs that were spawned by runs."""
    rooms: list[dict[str, Any]] = field(default_factory=list)
    """What its pages about everything answered, once they were asked."""

    def address(self, path: str) -> str:
        return f"{self.sower.root}{path}"


@asynccontextmanager
async def house(node: ServerNode, store_url: str, headers: dict[str, str] | None = None) -> AsyncIterator[House]:
    """`store_url`: of the node's store, which other processes can open too."""
    root = f"http://127.0.0.1:{node.port}"
    async with aiohttp.ClientSession() as session, listening(answer) as sink:
        async with session.get(f"{root}/openapi.json", headers=headers or {}) as told:
            document = await told.json()
        store = open_store(store_url)
        await store.open()
        try:
            made = House(node, Sower(session, root, document, headers or {}), sink, store)
            few = asyncio.Semaphore(8)
            lives = [Life(made, sink, few, number) for number in range(len(TEXTS))]
            await asyncio.gather(*(life.lived() for life in lives))
            # Only then, as a pause of everything is among it.
            await asyncio.gather(*(life.went_on() for life in lives))
            yield made
        finally:
            await store.close()


async def answer(asked: Asked, line: Line) -> None:
    """`/fail/3` answers with the third text: as reason, in a header, and as a page. `/accept/3` waits for a callback."""
    kind, _, number = asked.path.strip("/").partition("/")
    text = TEXTS[int(number)][1].encode("utf-8", "replace")
    shown = bytes(each for each in text if each not in b"\r\n\0")[:4000]
    status = {"fail": b"500 ", "accept": b"202 "}.get(kind, b"200 ")
    page = b"<!doctype html><html><body>" + text + b"</body></html>"
    head = [b"HTTP/1.1 " + status + shown[:200], b"X-Odd: " + shown, b"Content-Type: text/html; charset=" + shown[:40]]
    await line.say(b"\r\n".join([*head, b"Connection: close", b"Content-Length: %d" % len(page), b"", page]))
    line.writer.close()


class Life:
    """Everything that is done with one text."""

    def __init__(self, made: House, sink: Sink, few: asyncio.Semaphore, number: int) -> None:
        self.house, self.sink, self.few, self.number = made, sink, few, number
        self.name, self.text = TEXTS[number]
        self.plain = f"plain-{number}"
        self.worker = self.text
        self.held: dict[str, Any] = {"worker_id": self.plain, "token": 1}
        self.held_run = 1
        """The last of the worker's runs, and by what it still holds it."""
        self.tasks: list[int] = made.tasks.setdefault(self.name, [])
        self.runs: list[int] = made.runs.setdefault(self.name, [])

    async def lived(self) -> None:
        async with self.few:
            await self.alerts()
            for part in (self.failing, self.calling_back, self.working, self.flowing, self.following):
                await part()

    async def went_on(self) -> None:
        async with self.few:
            if self.tasks:
                await self.everything_else()

    async def sow(self, operation: str, base: dict[str, Any] | None = None, **more: Any) -> Any | None:
        text, plain = more.pop("text", self.text), more.pop("plain", None)
        return await self.house.sower.sow(operation, self.name, text, base, plain, more)

    async def task(self, place: str, *, base: dict[str, Any], **plain: Any) -> int | None:
        """A task of that text; where its name has to be another, of a plain one."""
        plain = {**DAILY, "name": f"{self.plain}{place}", **plain}
        made = await self.sow("create_task", base, plain=plain, text=f"{self.text}{place}")
        if made is None:
            return None
        self.tasks.append(made["id"])
        await self.anywhere(made["id"])
        return int(made["id"])

    async def anywhere(self, task: int) -> None:
        """Let every worker have its runs: none has a label of that text."""
        await self.house.sower.call("PATCH", "/api/v1/tasks/{id}", {"worker_labels": {}}, {"id": task})

    async def alerts(self) -> None:
        name, url = {"name": self.plain}, self.sink.url(f"/ok/{self.number}")
        await self.sow("create_alert_channel", {"kind": "webhook"}, plain={**name, "url": url})
        await self.sow("create_alert_rule", {"kind": "failed"}, plain={**name, "tasks": [f"{self.plain}*"]})
        if self.number == 0:
            every = {"name": "every", "kind": "failed", "channels": [self.plain]}
            await self.house.sower.call("POST", "/api/v1/alerts/rules", every)

    async def failing(self) -> None:
        """An HTTP task, changed once, whose target answers with the text."""
        url = self.sink.url(f"/fail/{self.number}")
        task = await self.task("", base={"exec_type": "SYNC", "http_method": "POST"}, target_url=url)
        if task is not None:
            await self.run(task)
            base, plain = {"exec_type": "SYNC"}, {**DAILY, "name": self.plain, "target_url": url}
            await self.sow("patch_task", base, plain=plain, text=f"{self.text} changed", id=task)
            await self.sow("replace_task", base, plain=plain, id=task)
            await self.anywhere(task)

    async def calling_back(self) -> None:
        url = self.sink.url(f"/accept/{self.number}")
        task = await self.task(" 2", base={"exec_type": "ASYNC", "http_method": "POST"}, target_url=url)
        if task is None:
            return
        path, token = "/api/v1/callbacks/{callback_token}", await self.awaited(task)
        for body in (self.text, {"status": self.text}):
            await self.house.sower.call("POST", path, body, {"callback_token": token})
        for status in ("RUNNING", "FAILED", "SUCCESS"):
            await self.sow("callback", {"status": status}, callback_token=token)
        await self.sow("callback", {"status": "RUNNING"}, callback_token=await self.awaited(task))  # and is left so

    async def awaited(self, task: int) -> str:
        """The token by which a new run of that task waits to be called back."""
        run = await self.run(task)
        return str(await until(lambda: self.token_of(run)))

    def token_of(self, run: int | None) -> str | None:
        for asked in self.sink.asked:
            if asked.headers.get("x-noonbell-run") == str(run):
                return asked.headers.get("x-callback-token")
        return None

    async def working(self) -> None:
        """A job: one run fails, one succeeds, one is canceled, one goes on; a worker by the name of the text."""
        base = {"exec_type": "JOB", "retry_policy": ONCE, "rate_limit": None, "specific_worker_ids": []}
        task = await self.task(" 3", base=base, job_type=self.plain)
        if task is None:
            return
        for _ in range(3):
            await self.run(task)
        later = await self.run(task, delay_seconds=3600)
        await self.sow("cancel_run", run_id=later)
        base, plain = {"max": 10, "wait_seconds": 0}, {"queues": ["default"], "job_types": [self.plain]}
        for worker in (self.text, self.plain):
            self.worker = worker
            claimed = await self.sow("claim_runs", base, plain=plain, worker_id=worker, text=f"{self.text} 3")
            if claimed is not None and claimed["runs"]:
                break
        for held, ending in zip(claimed["runs"] if claimed else [], ("fail", "success", None), strict=False):
            self.held, run = {"worker_id": self.worker, "token": held["token"]}, held["run_id"]
            self.held_run = run
            await self.sow("write_log", self.held, run_id=run)
            await self.sow("report_progress", {**self.held, "current": 1, "total": 2}, run_id=run)
            if ending is not None:
                await self.sow("settle_run", {**self.held, "outcome": ending}, run_id=run)
            else:
                await self.spawn(run, held["token"], held["task_name"])

    async def spawn(self, run: int, token: int, task: str) -> None:
        """A child of the run, with the text in its payload. Only a worker with the SDK can ask for one, so the store is asked."""
        child = ChildRequest(position=0, task=task, payload={self.text: self.text})
        try:
            (made,) = await self.house.store.spawn(RunId(run), token, [child])
        except (InvalidState, ConcurrencyLimit, LeaseLost):  # what the text has made of the task allows none
            return
        self.house.children += 1
        self.runs.append(made)

    async def flowing(self) -> None:
        """A flow whose steps hold the text, answer with it, fail with it and are given it."""
        target, failing = self.sink.url(f"/ok/{self.number}"), self.sink.url(f"/fail/{self.number}")
        steps: list[dict[str, Any]] = [
            {"id": "ask", "target_url": target, "http_method": "POST", "body_template": self.text},
            {"id": "fail", "needs": ["ask"], "target_url": failing, "allow_failure": True},
            {
                "id": "wait",
                "needs": ["ask"],
                "foreach": [self.text],
                "job_type": self.text,
                "payload": {self.text: "{{ item }}"},
            },
            {"id": "read", "needs": ["ask"], "when": "payload.nobody == 1", "job_type": self.plain, "queue": self.text},
            {"id": "skip", "needs": ["ask"], "when": f"slot == {self.text!r}", "job_type": self.plain},
            {"id": self.text, "needs": ["ask"], "target_url": target},
        ]
        beside = {"description": self.text, "payload": {self.text: self.text}}
        for _ in range(len(steps) + len(beside)):  # what is refused of the text is left out
            body = {"name": f"{self.plain} 8", "steps": steps, **beside}
            told = await self.house.sower.call("POST", "/api/v1/tasks", body)
            assert told.status < 500, told
            if told.status == 201:
                self.tasks.append(told.body["id"])
                await self.run(told.body["id"])
                return
            wrong = {name.partition("]")[0].removeprefix("steps[") for name in told.body["details"]}
            steps = [step for number, step in enumerate(steps) if str(number) not in wrong]
            beside = {name: value for name, value in beside.items() if name not in wrong}

    async def following(self) -> None:
        """Tasks after those of the text: one that their end starts, and one that goes on waiting for another of them."""
        if not self.tasks:
            return
        sower, first, last = self.house.sower, self.tasks[0], self.tasks[-1]
        for place, upstreams in ((" 9", [first]), (" 10", [first, last])):
            after = {"tasks": [{"task": id_, "on": "any"} for id_ in dict.fromkeys(upstreams)], "same_slot": False}
            for name in (f"{self.text}{place}", f"{self.plain}{place}"):  # what is no name of a task has a plain one
                body = {"name": name, "job_type": self.plain, "queue": "nobody", "after": after}
                told = await sower.call("POST", "/api/v1/tasks", body)
                assert told.status < 500, told
                if told.status == 201:
                    self.tasks.append(told.body["id"])
                    break
        follower = self.tasks[-2]
        await self.run(first)

        async def started() -> list[Any]:
            told = await sower.call("GET", "/api/v1/tasks/{id}/runs", None, {"id": follower})
            return [run["id"] for run in told.body["items"]]

        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not (runs := await started()):
            assert asyncio.get_running_loop().time() < deadline, "no run follows"
            await asyncio.sleep(0.05)
        self.runs.append(runs[0])

    async def run(self, task: int, **later: Any) -> int | None:
        """One that anybody may carry out; or one for later, and for nobody."""
        made = await self.sow(
            "trigger_task", later or {"specific_worker_ids": []}, id=task, text=f"{self.text} {len(self.runs)}"
        )
        if made is None:
            return None
        self.runs.append(made["run_id"])
        return int(made["run_id"])

    async def everything_else(self) -> None:
        """Whatever else the API takes, on top of the example that it gives."""
        sower = self.house.sower
        parts = {
            "id": self.tasks[0],
            "run_id": self.held_run,
            "plan_id": f"{self.number:x}",
            "callback_token": "x" * 43,
            "of": "runs",
            "view": self.text,
        }
        parts |= dict.fromkeys(("name", "worker_id"), self.worker)
        parts |= dict.fromkeys(("rule", "channel", "subscription", "calendar"), self.plain) | {"delivery_id": 1}
        seen = {sower.operation(name)[2] for name in LIVED}
        for operation in [each for item in sower.document["paths"].values() for each in item.values()]:
            schema = schema_of(operation)
            if schema is None or schema in seen:
                continue
            seen.add(schema)
            name, content = operation["operationId"], operation["requestBody"]["content"]["application/json"]
            plain = {**content["example"], **self.plainly(name)}
            made = await self.sow(name, self.fixed(name), plain=plain, text=f"{self.text} {len(seen)}", **parts)
            if name == "create_job" and made is not None:
                parts["id"] = made["id"]
            if name == "pause_all":  # the others want to live
                await sower.call("POST", "/api/v1/resume")

    def plainly(self, operation: str) -> dict[str, Any]:
        """What must not be the same for every text."""
        return {
            "apply_tasks": {
                **DAILY,
                "owner": self.plain,
                "tasks.name": f"{self.plain} 4",
                "tasks.job_type": self.plain,
            },
            "create_subscription": {"name": self.plain, "url": self.sink.url(f"/ok/{self.number}")},
            "change_subscription": {"url": self.sink.url(f"/ok/{self.number}"), "from": "now"},
            "replay_subscription": {"from": "now"},
            "change_alert_channel": {"url": self.sink.url(f"/ok/{self.number}")},
            "create_job": {"job_name": f"{self.plain} 5"},
            "create_tasks": {**DAILY, "tasks.name": f"{self.plain} 6", "tasks.job_type": self.plain},
            "create_token": {"name": self.plain},
            "delete_tasks": {"tasks": [{"id": NOBODY}], "tasks.id": NOBODY},
            "make_calls": {"calls.url": self.sink.url(f"/ok/{self.number}")},
            "patch_tasks": {**DAILY, "tasks.id": self.tasks[0], "tasks.name": f"{self.plain} 7"},
            "preview_schedule": DAILY,
            "publish_plan": {"plan_id": f"{self.number:x}"},
            "publish_runs": {"runs.task": self.tasks[0]},
        }.get(operation, {})

    def fixed(self, operation: str) -> dict[str, Any]:
        """What must be as it is for anything to be taken."""
        return {
            "apply_tasks": {"dry_run": False},
            "callback_by_ids": {"task_id": self.tasks[1], "run_id": self.runs[1]} if len(self.tasks) > 1 else {},
            "extend_run": {**self.held, "seconds": 60},
        }.get(operation, {})


LIVED = (
    *(
        "create_alert_channel",
        "create_alert_rule",
        "create_task",
        "trigger_task",
        "patch_task",
        "callback",
        "claim_runs",
    ),
    *("cancel_run", "write_log", "report_progress", "settle_run"),
)
"""What has its place in a life; all other operations follow by themselves."""


async def until(condition: Callable[[], Any]) -> Any:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not (found := condition()):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    return found
