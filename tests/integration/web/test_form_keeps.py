"""The edit form of a task, opened and saved as it is: whatever the form does not show is there afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from types import MappingProxyType
from typing import Any

import pytest

from integration.api.serving import Api, serving
from integration.web.asking import HTML, post
from noonbell import when
from noonbell.model.target_kind import TARGET_KINDS, target_kind
from noonbell.settings import RecoverySettings, SchedulerSettings
from noonbell.when.weekly import Weekly

SCHEDULES: dict[str, list[dict[str, Any]]] = {
    "cron": [
        {"type": "cron", "expr": "*/7 2 * * 1-5"},
        {"type": "cron", "expr": "0 0 */10 * *", "dialect": "cronjob", "dst": "wall", "repeat": 4},
        {"type": "cron", "expr": "0 0 9 ? * 2 *", "dialect": "quartz"},
    ],
    "once": [{"type": "once", "at": "2090-01-01T00:00:00Z", "run_if_late": False}],
    "interval": [
        {"type": "interval", "every": 5, "unit": "minute", "anchor": "2020-01-01T00:00:30Z", "repeat": 9},
        {"type": "interval", "every": 90, "unit": "second", "mode": "fixed_delay"},
    ],
    "weekly": [{"type": "weekly", "weekday": 0, "time": "09:00:01", "repeat": 3}],
    "monthly": [{"type": "monthly", "day": -3, "time": "23:59:59"}],
    "fortnightly": [{"type": "fortnightly", "weekday": 2, "time": "08:15:00", "repeat": 2}],
}
"""Of every kind in the table, and of one that only these tests register."""


class Fortnightly(Weekly):
    """A kind that the dashboard has never heard of."""

    kind = "fortnightly"

    def spec(self) -> dict[str, Any]:
        return {**Weekly.spec(self), "type": "fortnightly"}


@pytest.fixture
def fortnightly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when, "KINDS", MappingProxyType({**when.KINDS, "fortnightly": Fortnightly}))


class Form(HTMLParser):
    """What a browser would send for the form of a task, nothing touched."""

    def __init__(self, text: str, form_id: str = "task-form") -> None:
        super().__init__()
        self._id = form_id
        self.sent: dict[str, str] = {}
        self._inside = False
        self._area: str | None = None
        self._select: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = has.get("id") == self._id
        if not self._inside:
            return
        name, kind = has.get("name"), has.get("type", "text")
        if tag == "input" and name and (kind not in ("radio", "checkbox") or "checked" in has):
            self.sent[name] = has.get("value", "on").replace("\n", "")
        elif tag == "textarea" and name:
            self._area, self.sent[name] = name, ""
        elif tag == "select" and name:
            self._select = name
        elif tag == "option" and self._select and ("selected" in has or self._select not in self.sent):
            self.sent[self._select] = has["value"]

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.sent[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            # As browsers do: the line break right after the tag is no part of the text, and each is sent as two signs.
            text = self.sent[self._area].removeprefix("\n")
            self.sent[self._area], self._area = text.replace("\n", "\r\n"), None
        elif tag == "select":
            self._select = None
        elif tag == "form":
            self._inside = False


async def form_of(api: Api, task: int) -> dict[str, str]:
    told = await api.call("GET", f"//tasks/{task}/edit", headers=HTML)
    assert told.status == 200, told.text[-2000:]
    sent = Form(told.text).sent
    sent.pop("detach", None)
    return sent


def lasting(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name not in ("version", "updated_at")}


async def made(api: Api, **fields: Any) -> dict[str, Any]:
    if fields.get("calendar"):
        await api.good("PUT", f"/calendars/{fields['calendar']['name']}", {"closed_weekdays": [0, 6]})
    body = {"name": "kept", "status": "DISABLED", **fields}
    return await read(api, (await api.good("POST", "/tasks", body, 201))["id"])


async def read(api: Api, task: int) -> dict[str, Any]:
    return dict(await api.good("GET", f"/tasks/{task}"))


def test_every_kind_of_schedule_is_among_those_that_are_saved() -> None:
    assert {*when.KINDS, "fortnightly"} == set(SCHEDULES)


@pytest.mark.usefixtures("fortnightly")
@pytest.mark.parametrize(
    "schedule", [each for of_kind in SCHEDULES.values() for each in of_kind], ids=lambda each: f"{each['type']}"
)
async def test_a_schedule_is_the_same_after_its_form_was_saved_unchanged(api: Api, schedule: dict[str, Any]) -> None:
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=schedule)
    assert before["schedule"]["type"] == schedule["type"]
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", await form_of(api, before["id"]))
    assert status == 303, text[-2000:]
    assert lasting(await read(api, before["id"])) == lasting(before)


@pytest.mark.usefixtures("fortnightly")
async def test_another_field_is_changed_and_an_unknown_kind_of_schedule_stays(api: Api) -> None:
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["fortnightly"][0])
    sent = {**await form_of(api, before["id"]), "description": "new"}
    assert (await post(api, f"/tasks/{before['id']}/edit", sent))[0] == 303
    assert lasting(await read(api, before["id"])) == {**lasting(before), "description": "new"}


@pytest.mark.usefixtures("fortnightly")
async def test_an_unknown_kind_gives_way_to_a_known_one_that_is_chosen(api: Api) -> None:
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["fortnightly"][0])
    sent = {**await form_of(api, before["id"]), "when": "weekly"}
    assert (await post(api, f"/tasks/{before['id']}/edit", sent))[0] == 303
    assert (await read(api, before["id"]))["schedule"]["type"] == "weekly"


async def test_a_form_without_an_answer_to_when_keeps_the_schedule(api: Api) -> None:
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["weekly"][0])
    sent = await form_of(api, before["id"])
    del sent["when"]
    assert (await post(api, f"/tasks/{before['id']}/edit", sent))[0] == 303
    assert (await read(api, before["id"]))["schedule"] == before["schedule"]


async def test_a_kind_that_nobody_knows_is_refused_and_not_dropped(api: Api) -> None:
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["weekly"][0])
    sent = {**await form_of(api, before["id"]), "when": "hourly-ish"}
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", sent)
    assert status == 400
    assert "hourly-ish" in text
    assert (await read(api, before["id"]))["schedule"] == before["schedule"]


TASKS: dict[str, dict[str, Any]] = {
    "grpc": {
        "grpc": {
            "address": "grpcs://127.0.0.1:9",
            "method": "bell.v1.Bell/Echo",
            "metadata": {"authorization": "Bearer canary", "x-request-id": "7"},
            "tls": {"ca": "-----BEGIN CERTIFICATE-----", "server_name": "bell.test"},
            "callback": True,
        },
        "payload": {"name": "ding", "times": 2**53},
        "callback_timeout_sec": 77,
    },
    "flow": {
        "steps": [
            {
                "id": "a",
                "target_url": "http://127.0.0.1:9/x",
                "headers": {"Authorization": "canary"},
                "timeout_seconds": 3,
            },
            {"id": "b", "needs": ["a"], "on": "any", "job_type": "resize", "payload": {"n": "{{ steps.a.result }}"}},
            {"id": "c", "needs": ["b"], "foreach": [1, 2], "when": "steps.b.failed == 0", "job_type": "resize"},
        ],
        "payload": {"day": 1},
    },
    "several schedules": {
        "target_url": "http://127.0.0.1:9/x",
        "timezone": "Europe/Berlin",
        "schedules": [
            {"type": "cron", "expr": "0 9 * * MON-FRI"},
            {"type": "cron", "expr": "0 0 9 ? * 2 *", "dialect": "quartz"},
            {"type": "interval", "every": 7, "unit": "hour"},
            {"type": "weekly", "weekday": 6, "time": "11:00"},
        ],
        "exclude": [{"type": "cron", "expr": "* * 24-26 12 *"}, {"type": "once", "at": "2090-05-14T09:00:00Z"}],
        "dst": {"gap": "earlier", "repeat": "last"},
    },
    "excluded schedule and one rule for clock changes": {
        "target_url": "http://127.0.0.1:9/x",
        "schedule": {"type": "monthly", "day": 1, "time": "02:30"},
        "exclude": [{"type": "cron", "expr": "30 2 1 1 *"}],
        "dst": {"gap": "skip"},
    },
    "calendar": {
        "target_url": "http://127.0.0.1:9/x",
        "schedule": {"type": "monthly", "day": 0, "time": "18:00"},
        "calendar": {"name": "china", "when_closed": "previous_open_day", "invert": True},
    },
    "calendar of several schedules": {
        "job_type": "resize",
        "schedules": [{"type": "cron", "expr": "0 9 * * *"}, {"type": "cron", "expr": "0 11 * * *"}],
        "calendar": {"name": "china"},
    },
    "call": {"target_url": "http://127.0.0.1:9/x", "payload": {"of": "a call"}, "callback_timeout_sec": 77},
    "every field of a call": {
        "target_url": "http://127.0.0.1:9/x",
        "exec_type": "ASYNC",
        "callback_method": "PUT",
        "cancel_url": "http://127.0.0.1:9/stop",
        "http_method": "POST",
        "body_template": "\n  two lines\n",
        "headers": {"X-A": "b: c"},
        "labels": {"team": "a=b", "a=b": " c "},
        "description": "  two\nlines ",
        "external_id": "ours-7",
        "meta": {"retention_days": 3, "own": [1, {"b": None}]},
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "retry_policy": {"max_retries": 4, "initial_delay": 2.5, "max_delay": 9, "jitter": 0.5},
        "rate_limit": {"max": 3, "per_seconds": 10},
        "circuit": {"failures": 2, "cool_down_seconds": 5},
        "failure_action": "HALF_OPEN",
        "max_concurrency": None,
        "queue_depth": 5,
        "misfire_grace_seconds": 12,
        "expires_in_seconds": 90,
        "quiet": [
            {"from": "22:00", "to": "06:00", "days": ["sat"], "timezone": "Asia/Shanghai", "what": "skip"},
            {"from": "12:00", "to": "13:30"},
        ],
        "spread_seconds": 60,
        "sla": {"start_within_seconds": 60, "finish_by": "06:00", "success_ratio": 0.99, "on_breach": "skip_next"},
        "misfire_policy": "CATCH_UP_LIMITED",
        "catchup_limit": 4,
        "start_at": "2030-01-01T00:00:00Z",
        "on_lost": "FAIL",
        "delivery": "at_most_once",
        "follow_redirects": True,
        "priority": -3,
        "timeout_seconds": 1.5,
    },
    "amqp": {
        "amqp": {
            "url": "amqp://shop:canary-pw@127.0.0.1:9/shop",
            "exchange": "events",
            "routing_key": "orders.{{payload.kind}}",
            "headers": {"Authorization": "canary", "X-A": "b: c"},
            "properties": {"priority": 3, "expiration_ms": 60_000},
            "persistent": False,
            "mandatory": False,
            "callback": True,
            "callback_timeout_sec": 77,
        },
        "payload": {"kind": "new"},
        "retry_policy": {"max_retries": 0},
    },
    "nats": {"nats": {"url": "nats://canary-token@127.0.0.1:9", "subject": "a.b", "jetstream": True}},
    "redis": {"redis": {"url": "redis://:canary-pw@127.0.0.1:9/3", "stream": "s", "maxlen": 5}, "payload": [1]},
    "mqtt": {"mqtt": {"url": "mqtt://127.0.0.1:9", "topic": "a/b", "qos": 2, "retain": True, "version": "3.1.1"}},
    "job": {
        "job_type": "resize",
        "payload": {"big": 2**53, "text": "a\r\nb"},
        "queue": "pdf",
        "worker_timeout_ms": 9000,
        "fanout": {"workers": 3},
        "retry_policy": {"max_retries": 0},
    },
    "every field of a flow": {
        "steps": [
            {
                "id": "extract",
                "target_url": "http://127.0.0.1:9/x?day={{ slot }}",
                "http_method": "POST",
                "headers": {"Authorization": "Bearer of-a-step", "X-A": "b"},
                "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                "body_template": "\n  two lines\n",
                "timeout_seconds": 1.5,
                "delivery": "at_most_once",
            },
            {
                "id": "parts",
                "needs": ["extract"],
                "foreach": "{{ steps.extract.result.files }}",
                "job_type": "convert",
                "payload": {"file": "{{ item }}", "big": 2**53, "text": "a\r\nb"},
                "queue": "pdf",
                "max_parallel": 8,
                "allow_failure": True,
            },
            {
                "id": "load",
                "needs": ["parts"],
                "when": "steps.parts.failed == 0 and 'x' in payload",
                "job_type": "load",
                "retry_policy": {"max_retries": 3, "initial_delay": 2.5},
                "priority": -3,
            },
            {"id": "page", "needs": ["load"], "on": "failure", "target_url": "http://127.0.0.1:9/page"},
        ],
        "payload": {"of": ["a flow"]},
        "max_concurrency": 3,
        "timeout_seconds": 60,
    },
    "command": {"command": ["/bin/echo", "-n", "a b", "", "-n"], "payload": {"of": "a command"}},
    "every field of a command": {
        "command": '[ -f /x ] &&\n  echo "two lines"',
        "shell": True,
        "env": {"TZ": " Asia/Shanghai", "API_TOKEN": "canary", "EMPTY": ""},
        "cwd": "/srv/jobs",
        "user": "backup",
        "ok_codes": [0, 3],
        "queue": "nightly",
        "payload": "given\r\nto it",
        "max_concurrency": None,
    },
    "command whose text is JSON": {"command": '["not", "a list"]', "shell": True},
    "flow whose steps have the defaults of another kind": {
        "steps": [
            {"id": "a", "job_type": "j", "timeout_seconds": 10, "retry_policy": {"max_retries": 0}},
            {
                "id": "b",
                "target_url": "http://127.0.0.1/x",
                "timeout_seconds": 3600,
                "retry_policy": {"max_retries": 3},
            },
        ]
    },
    "flow of foreach over a list": {"steps": [{"id": "a", "foreach": [1, "{{ payload.x }}"], "job_type": "j"}]},
}


def test_every_kind_of_target_is_among_those_that_are_saved() -> None:
    assert {target_kind(fields.get("exec_type"), fields).name for fields in TASKS.values()} == {
        kind.name for kind in TARGET_KINDS
    }


@pytest.mark.parametrize("fields", TASKS.values(), ids=TASKS)
async def test_every_field_is_the_same_after_the_form_was_saved_unchanged(api: Api, fields: dict[str, Any]) -> None:
    before = await made(api, **fields)
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", await form_of(api, before["id"]))
    assert status == 303, text[-2000:]
    assert lasting(await read(api, before["id"])) == lasting(before)


async def test_what_a_task_runs_after_is_the_same_after_the_form_was_saved_unchanged(api: Api) -> None:
    await made(api, name="extract", job_type="x")
    after = {"tasks": [{"task": "extract", "on": "any"}], "within_seconds": 60}
    before = await made(api, job_type="resize", after=after)
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", await form_of(api, before["id"]))
    assert status == 303, text[-2000:]
    assert lasting(await read(api, before["id"])) == lasting(before)
    assert before["after"]["tasks"] == [{"task": "extract", "on": "any"}]


@pytest.fixture
async def other_defaults() -> AsyncIterator[Api]:
    settings = {
        "scheduler": SchedulerSettings(cron_dialect="quartz"),
        "recovery": RecoverySettings(orphaned_runs="fail"),
    }
    async with serving("memory://", **settings) as api:
        yield api


@pytest.mark.parametrize("fields", TASKS.values(), ids=TASKS)
async def test_every_field_is_the_same_after_the_form_was_saved_as_yaml(
    other_defaults: Api, fields: dict[str, Any]
) -> None:
    api = other_defaults
    before = await made(api, **{"on_lost": "RETRY", **fields})
    sent = {**await form_of(api, before["id"]), "task_id": str(before["id"])}
    told = await api.call("POST", "//tasks/yaml", data=sent, headers={"origin": api.root, **HTML})
    assert told.status == 200, told.text[-2000:]
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", Form(told.text, "yaml-form").sent)
    assert status == 303, text[-2000:]
    assert lasting(await read(api, before["id"])) == lasting(before)


async def test_the_form_of_a_task_without_a_cron_has_the_dialect_of_the_installation(other_defaults: Api) -> None:
    api = other_defaults
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["weekly"][0])
    copy = await api.call("GET", f"//tasks/new?from={before['id']}", headers=HTML)
    assert Form(copy.text).sent["dialect"] == "quartz"
    sent = await form_of(api, before["id"])
    _, _, text = await post(api, f"/tasks/{before['id']}/review", sent)
    assert "No changes to save." in text
    assert (await post(api, f"/tasks/{before['id']}/edit", sent))[0] == 303
    assert lasting(await read(api, before["id"])) == lasting(before)
    sent = {**await form_of(api, before["id"]), "when": "cron", "cron_expr": "0 9 * * 2"}
    assert (await post(api, f"/tasks/{before['id']}/edit", sent))[0] == 303
    assert (await read(api, before["id"]))["schedule"]["dialect"] == "quartz"


async def test_a_dialect_that_was_only_offered_gives_way_to_the_one_that_the_task_got_meanwhile(
    other_defaults: Api,
) -> None:
    api = other_defaults
    before = await made(api, target_url="http://127.0.0.1:9/x", schedule=SCHEDULES["weekly"][0])
    sent = {**await form_of(api, before["id"]), "description": "mine"}
    schedule = {"type": "cron", "expr": "0 9 * * 2", "dialect": "standard"}
    await api.good("PATCH", f"/tasks/{before['id']}", {"schedule": schedule})
    told = await api.call(
        "POST", f"//tasks/{before['id']}/edit", data=sent, headers={"origin": api.root, **HTML}, allow_redirects=False
    )
    assert told.status == 412
    merged = Form(told.text).sent
    assert (merged["when"], merged["dialect"], merged["description"]) == ("cron", "standard", "mine")


async def test_the_form_of_a_task_with_a_cron_has_the_dialect_of_the_task(other_defaults: Api) -> None:
    schedule = {"type": "cron", "expr": "0 9 * * 2", "dialect": "standard"}
    before = await made(other_defaults, target_url="http://127.0.0.1:9/x", schedule=schedule)
    assert (await form_of(other_defaults, before["id"]))["dialect"] == "standard"


async def test_several_schedules_give_way_to_one_that_is_chosen_and_come_back(api: Api) -> None:
    before = await made(api, **TASKS["several schedules"])
    sent = await form_of(api, before["id"])
    assert sent["when"] == "several"
    assert sent["schedules"].splitlines()[0] == "0 9 * * MON-FRI"
    one = {**sent, "when": "cron", "cron_expr": "0 7 * * *", "dialect": "standard"}
    assert (await post(api, f"/tasks/{before['id']}/edit", one))[0] == 303
    now = await read(api, before["id"])
    assert (now["cron_expr"], now["schedules"], len(now["exclude"])) == ("0 0 7 * * *", [], 2)
    lines = "0 8 * * *\r\n" + '{"type": "weekly", "weekday": 0, "time": "10:00"}'
    several = {**await form_of(api, before["id"]), "when": "several", "schedules": lines, "exclude": "", "dst_gap": ""}
    assert (await post(api, f"/tasks/{before['id']}/edit", several))[0] == 303
    now = await read(api, before["id"])
    assert [each["type"] for each in now["schedules"]] == ["cron", "weekly"]
    assert (now["schedule"], now["exclude"], now["dst"]) == (None, [], {"gap": None, "repeat": "last"})


async def test_a_line_that_is_no_schedule_is_named_with_its_place(api: Api) -> None:
    before = await made(api, **TASKS["several schedules"])
    sent = {**await form_of(api, before["id"]), "exclude": "0 9 * * *\r\n61 * * * *"}
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", sent)
    assert status == 400
    assert "exclude[1].expr" in text


async def test_a_calendar_is_chosen_changed_and_given_up_in_the_form(api: Api) -> None:
    await api.good("PUT", "/calendars/uk", {})
    before = await made(api, **TASKS["calendar"])
    path = f"/tasks/{before['id']}/edit"
    told = await api.call("GET", f"/{path}", headers=HTML)
    assert '<option value="uk">' in told.text
    sent = await form_of(api, before["id"])
    assert [sent[name] for name in ("calendar_name", "calendar_when_closed", "calendar_invert")] == [
        "china", "previous_open_day", "true",
    ]  # fmt: skip
    other = {"calendar_name": "uk", "calendar_when_closed": "skip", "calendar_invert": "false"}
    assert (await post(api, path, {**sent, **other}))[0] == 303
    now = await read(api, before["id"])
    assert now["calendar"] == {"name": "uk", "when_closed": "skip", "invert": False}
    assert now["schedule"] == before["schedule"]
    unsent = {name: value for name, value in (await form_of(api, before["id"])).items() if name not in other}
    assert (await post(api, path, unsent))[0] == 303
    assert (await read(api, before["id"]))["calendar"] == now["calendar"]
    assert (await post(api, path, {**await form_of(api, before["id"]), "calendar_name": ""}))[0] == 303
    assert (await read(api, before["id"]))["calendar"] is None


@pytest.mark.parametrize("fields", [{"calendar_name": "nowhere"}, {"when": "none"}], ids=["unknown", "no schedule"])
async def test_what_is_wrong_with_a_calendar_is_said_beside_its_box(api: Api, fields: dict[str, str]) -> None:
    before = await made(api, **TASKS["calendar"])
    sent = {**await form_of(api, before["id"]), **fields}
    status, _, text = await post(api, f"/tasks/{before['id']}/edit", sent)
    assert status == 400
    assert 'id="p-calendar_name"' in text
    assert lasting(await read(api, before["id"])) == lasting(before)


async def test_rate_limit_fan_out_and_circuit_are_set_changed_and_taken_away_in_the_form(api: Api) -> None:
    before = await made(api, name="limited", job_type="x", queue="q")
    path, groups = f"/tasks/{before['id']}/edit", ("rate_limit", "fanout", "circuit")
    boxes = {
        "rate_limit_max": "10",
        "rate_limit_per_seconds": "60",
        "rate_limit_key": "tenant",
        "fanout_workers": "all",
        "fanout_success": "2",
        "circuit_failures": "5",
    }

    async def saved(changed: dict[str, str]) -> list[Any]:
        status, _, text = await post(api, path, {**await form_of(api, before["id"]), **changed})
        assert status == 303, text
        now = await read(api, before["id"])
        return [now[name] for name in groups]

    wanted = [
        {"max": 10, "per_seconds": 60, "key": "tenant"},
        {"workers": "all", "success": 2},
        {"failures": 5, "cool_down_seconds": 300},
    ]
    assert await saved(boxes) == wanted
    assert await saved({}) == wanted
    unsent = {name: value for name, value in (await form_of(api, before["id"])).items() if name not in boxes}
    assert (await post(api, path, {**unsent, "timeout_seconds": "77"}))[0] == 303
    assert [(await read(api, before["id"]))[name] for name in groups] == wanted, "what was not sent stays"
    wrong = {**await form_of(api, before["id"]), "rate_limit_per_seconds": "", "circuit_failures": "none"}
    status, _, text = await post(api, path, wrong)
    assert status == 400
    assert 'id="p-rate_limit_per_seconds"' in text
    assert 'id="p-circuit_failures"' in text
    empty = dict.fromkeys((*boxes, "circuit_cool_down_seconds"), "")
    assert await saved(empty) == [None, None, {"failures": 3, "cool_down_seconds": 300}]
