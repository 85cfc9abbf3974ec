"""Which dialect a cron expression is read in, at each door: the one that it names, that of the door, that of the settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from integration.api.serving import Api, serving
from noonbell.dialects.jobs import JobsDialect
from noonbell.service import task_files
from noonbell.service.doctor import look_at_dialects
from noonbell.service.task_files import written
from noonbell.settings import SchedulerSettings, Settings

JOB = {"job_name": "nightly", "job_type": "resize"}


def weekday(answer: dict[str, Any]) -> str:
    at = answer.get("next_run_at") or answer["next_fires"][0]["utc"]
    return f"{datetime.fromisoformat(at):%A}"


def codes(answer: dict[str, Any]) -> set[str]:
    return {note["code"] for note in answer["notes"]}


@pytest.fixture
async def api():
    async with serving("memory://") as api:
        yield api


@pytest.fixture
async def cronjob_api():
    async with serving("memory://", scheduler=SchedulerSettings(cron_dialect="cronjob")) as api:
        yield api


def jobs(api: Api):
    async def call(method: str, path: str = "", body: Any = None, status: int = 200) -> dict[str, Any]:
        return dict(await api.good(method, f"//api/jobs{path}", body, status))

    return call


async def test_a_job_of_six_fields_counts_its_weekdays_as_the_rust_crate_does(api):
    call = jobs(api)
    made = await call("POST", "", {**JOB, "cron_expression": "0 0 9 * * 2"}, 201)
    assert (weekday(made), made["cron_expression"], made["cron_dialect"]) == ("Monday", "0 0 9 * * 2", "quartz")
    assert "dialect_differs" in codes(made)
    seen = await call("GET", "/1")
    assert (seen["cron_expression"], seen["cron_dialect"]) == ("0 0 9 * * 2", "quartz")


async def test_a_job_of_seven_fields_is_shown_as_it_was_written(api):
    made = await jobs(api)("POST", "", {**JOB, "cron_expression": "0 0 9 * * Mon-Fri *"}, 201)
    assert made["cron_expression"] == "0 0 9 * * Mon-Fri *"
    assert "dialect_differs" not in codes(made)


async def test_a_weekday_that_the_crate_refuses_is_refused(api):
    told = await api.call("POST", "//api/jobs", {**JOB, "cron_expression": "0 0 9 * * 0"})
    assert told.status == 400
    assert "1 for Sunday" in told.body["details"]["cron_expression"]


async def test_a_job_of_five_fields_is_read_as_everywhere(api):
    made = await jobs(api)("POST", "", {**JOB, "cron_expression": "0 9 * * 2"}, 201)
    assert (weekday(made), made["cron_dialect"]) == ("Tuesday", "standard")


async def test_a_job_may_name_its_dialect(api):
    made = await jobs(api)("POST", "", {**JOB, "cron_expression": "0 0 9 * * 2", "cron_dialect": "standard"}, 201)
    assert (weekday(made), codes(made) & {"dialect_differs"}) == ("Tuesday", set())


async def test_a_stored_job_keeps_what_it_meant(api):
    """As a job was saved before `/api/jobs` knew a dialect of its own."""
    schedule = {"type": "cron", "expr": "0 0 9 * * 2", "dialect": "standard"}
    await api.good("POST", "/tasks", {"name": "nightly", "job_type": "resize", "schedule": schedule}, 201)
    call = jobs(api)
    seen = await call("GET", "/1")
    assert (weekday(seen), seen["cron_dialect"]) == ("Tuesday", "standard")
    same = await call("PUT", "/1", {"cron_expression": "0 0 9 * * 2", "description": "new"})
    assert (weekday(same), same["cron_dialect"]) == ("Tuesday", "standard")
    sent_back = await call("PUT", "/1", {**seen, "cron_expression": "0 0 10 * * 2"})
    assert (weekday(sent_back), sent_back["cron_dialect"]) == ("Tuesday", "standard")
    other = await call("PUT", "/1", {"cron_expression": "0 0 11 * * 2"})
    assert (weekday(other), other["cron_dialect"]) == ("Monday", "quartz")
    assert "dialect_differs" in codes(other)
    renamed = await call("PUT", "/1", {"cron_dialect": "standard"})
    assert (weekday(renamed), renamed["cron_expression"]) == ("Tuesday", "0 0 11 * * 2")


async def test_a_job_of_a_settings_file_is_quartz_and_a_stored_one_stays(api):
    given = {"job_name": "filed", "job_type": "resize", "cron": "0 0 9 * * 2"}

    async def declare() -> dict[str, Any]:
        fields = await JobsDialect(api.services).declaration(given)
        await task_files.reconcile(api.services, "file:a.yaml", [fields], by="file:a.yaml")
        return dict(await api.good("GET", "/tasks/name:filed"))

    assert (await declare())["schedule"]["dialect"] == "quartz"
    await api.good("PATCH", "/tasks/name:filed", {"cron_dialect": "standard"})
    assert (await declare())["schedule"]["dialect"] == "standard"
    given["cron"] = "0 0 9 * * 3"
    assert (await declare())["schedule"]["dialect"] == "quartz"


async def test_the_short_form_may_name_its_dialect(api):
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": "0 0 2 1 * 1", "cron_dialect": "cronjob"}
    made = await api.good("POST", "/tasks", body, 201)
    assert {"both_day_fields", "dialect_differs"} <= codes(made)
    task = await api.good("GET", "/tasks/1")
    assert (task["schedule"]["dialect"], task["cron_dialect"]) == ("cronjob", "cronjob")
    assert all(fire["utc"][8:10] == "01" for fire in made["next_fires"])


async def test_a_wrong_dialect_is_told_by_the_name_that_was_used(api):
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": "@daily", "cron_dialect": "spring"}
    told = await api.call("POST", "/tasks", body)
    assert list(told.body["details"]) == ["cron_dialect"]
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_dialect": "quartz"}
    assert list((await api.call("POST", "/tasks", body)).body["details"]) == ["cron_dialect"]


@pytest.mark.parametrize("body", [{"cron_expr": "0 0 9 * * 2", "cron_dialect": "quartz"}, {"schedule": {}}])
async def test_a_preview_reads_the_dialect_and_says_that_it_differs(api, body):
    if "schedule" in body:
        body = {"schedule": {"type": "cron", "expr": "0 0 9 * * 2", "dialect": "quartz"}}
    told = await api.good("POST", "/schedules/preview", body)
    assert (weekday(told), "dialect_differs" in codes(told)) == ("Monday", True)


async def test_the_settings_say_what_is_meant_where_nothing_is_named(cronjob_api):
    api = cronjob_api
    told = await api.good("POST", "/schedules/preview", {"cron_expr": "0 0 0 */2 * *"})
    assert "dialect_differs" in codes(told)
    assert all(int(fire["utc"][8:10]) % 2 == 0 for fire in told["next_fires"])
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": "0 0 2 1 * 1"}
    made = await api.good("POST", "/tasks", body, 201)
    assert "dialect_differs" in codes(made)
    assert (await api.good("GET", "/tasks/1"))["schedule"]["dialect"] == "cronjob"
    plain = {"type": "cron", "expr": "0 0 2 1 * 1", "dialect": "standard"}
    made = await api.good("POST", "/tasks", {"name": "b", "target_url": "http://127.0.0.1:9/x", "schedule": plain}, 201)
    assert "dialect_differs" not in codes(made)


async def test_a_stored_task_is_never_read_anew(cronjob_api):
    """Saved under another setting: neither a change of another field nor the same expression again turns it."""
    api = cronjob_api
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": "0 0 2 1 * 1"}
    await api.good("POST", "/tasks", {**body, "cron_dialect": "standard"}, 201)

    async def dialect() -> str:
        return str((await api.good("GET", "/tasks/1"))["schedule"]["dialect"])

    await api.good("PATCH", "/tasks/1", {"description": "x"})
    assert await dialect() == "standard"
    await api.good("PUT", "/tasks/1", body)
    assert await dialect() == "standard"
    await api.good("PUT", "/tasks/1", {**(await api.good("GET", "/tasks/1")), "description": "y"})
    assert await dialect() == "standard"
    await api.good("PATCH", "/tasks/1", {"cron_expr": "0 0 3 1 * 1"})
    assert await dialect() == "standard"
    changed = await api.good("PUT", "/tasks/1", {**body, "cron_expr": "0 0 4 1 * 1"})
    assert await dialect() == "cronjob"
    assert "dialect_differs" in codes(changed)


async def test_an_answer_that_is_sent_back_with_another_dialect_changes_it(api):
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": "0 0 9 * * 2"}
    await api.good("POST", "/tasks", body, 201)
    seen = await api.good("GET", "/tasks/1")
    await api.good("PUT", "/tasks/1", {**seen, "cron_dialect": "quartz"})
    assert weekday(await api.good("GET", "/tasks/1/next")) == "Monday"
    await api.good("PATCH", "/tasks/1", {"cron_dialect": "standard"})
    assert weekday(await api.good("GET", "/tasks/1/next")) == "Tuesday"


async def test_the_doctor_lists_what_the_dialect_of_today_would_read_otherwise(api):
    call = {"target_url": "http://127.0.0.1:9/x"}
    for name, fields in {
        "modulo": {**call, "cron_expr": "0 0 0 */2 * *", "cron_dialect": "cronjob"},
        "clear": {**call, "cron_expr": "0 0 9 * * MON", "cron_dialect": "quartz"},
        "plain": {**call, "cron_expr": "0 0 9 * * 1"},
        "old job": {"job_type": "x", "cron_expr": "0 0 9 * * 2"},
        "new job": {"job_type": "x", "cron_expr": "0 0 9 * * 2", "cron_dialect": "quartz"},
    }.items():
        await api.good("POST", "/tasks", {"name": name, **fields}, 201)
    found = [each async for each in look_at_dialects(api.store, Settings())]
    assert [(each.mark, each.says.rpartition(": ")[2]) for each in found] == [("care", "modulo"), ("note", "old job")]
    cronjob = Settings(scheduler=SchedulerSettings(cron_dialect="cronjob"))
    found = [each async for each in look_at_dialects(api.store, cronjob)]
    assert [each.says.rpartition(": ")[2] for each in found] == ["old job"]


@pytest.mark.parametrize(
    ("expr", "dialect", "file"),
    [
        ("*/5 * * * *", "standard", {"cron_expr": "*/5 * * * *"}),
        ("0 9 * * 1", "standard", {"cron_expr": "0 9 * * 1", "cron_dialect": "standard"}),
        ("0 0 9 * * 2 *", "quartz", {"cron_expr": "0 0 9 * * 2 *", "cron_dialect": "quartz"}),
    ],
)
async def test_a_file_names_the_dialect_where_another_installation_may_read_it_otherwise(api, expr, dialect, file):
    body = {"name": "a", "target_url": "http://127.0.0.1:9/x", "cron_expr": expr, "cron_dialect": dialect}
    await api.good("POST", "/tasks", body, 201)
    text = written(await api.good("GET", "/tasks/1"))
    assert {name: value for name, value in text.items() if name.startswith(("cron", "schedule"))} == file
