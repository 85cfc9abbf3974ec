"""`schedules`, `exclude` and `dst` over HTTP: saved, changed, previewed, explained, and written to a file."""

from __future__ import annotations

from typing import Any

from integration.api.serving import Api

NINE = {"type": "cron", "expr": "0 9 * * *"}
WEEKDAYS = {"type": "cron", "expr": "0 9 * * 1-5"}
CHRISTMAS = {"type": "cron", "expr": "* * 24-26 12 *"}


async def changed(api: Api, method: str, task: int, fields: dict[str, Any]) -> dict[str, Any]:
    await api.good(method, f"/tasks/{task}", fields)
    return dict(await api.good("GET", f"/tasks/{task}"))


async def made(api: Api, **fields: Any) -> dict[str, Any]:
    body = {"name": "t", "target_url": "http://127.0.0.1:9/x", **fields}
    return dict(await api.good("POST", "/tasks", body, 201))


async def test_a_patch_moves_between_schedule_and_schedules(api: Api) -> None:
    task = await made(api, cron_expr="0 9 * * *")
    several = await changed(
        api, "PATCH", task["id"], {"schedules": [NINE, {"type": "weekly", "weekday": 6, "time": "11:00"}]}
    )
    assert (several["schedule"], several["cron_expr"], len(several["schedules"])) == (None, None, 2)
    one = await changed(api, "PATCH", task["id"], {"cron_expr": "0 10 * * *"})
    assert (one["cron_expr"], one["schedules"]) == ("0 0 10 * * *", [])
    both = await api.call("PATCH", f"/tasks/{task['id']}", {"cron_expr": "0 8 * * *", "schedules": [NINE]})
    assert (both.status, set(both.body["details"])) == (400, {"schedules"})


async def test_a_task_that_is_sent_back_as_it_was_read_stays_as_it_is(api: Api) -> None:
    task = await made(api, schedules=[NINE], exclude=[CHRISTMAS], dst={"gap": "skip"})
    read = await api.good("GET", f"/tasks/{task['id']}")
    again = await changed(api, "PUT", task["id"], read)
    assert {name: again[name] for name in ("schedules", "exclude", "dst", "version")} == {
        name: read[name] for name in ("schedules", "exclude", "dst", "version")
    }
    other = await changed(api, "PUT", task["id"], {**read, "cron_expr": "0 7 * * *"})
    assert (other["cron_expr"], other["schedules"]) == ("0 0 7 * * *", [])


async def test_a_preview_says_what_is_left_and_what_leaves_out_nothing(api: Api) -> None:
    asked = {"schedules": [WEEKDAYS, NINE], "exclude": [CHRISTMAS], "timezone": "Europe/Berlin", "count": 3}
    told = await api.good("POST", "/schedules/preview", {**asked, "from": "2026-12-23T00:00:00Z"})
    assert [each["utc"] for each in told["next_fires"]] == [
        "2026-12-23T08:00:00Z",
        "2026-12-27T08:00:00Z",
        "2026-12-28T08:00:00Z",
    ]
    assert told["description"] == (
        "At 09:00, Monday to Friday, Europe/Berlin; also at 09:00 every day, Europe/Berlin;"
        " all except every minute on days 24 to 26 of the month in December, Europe/Berlin"
    )
    midnight = {"type": "cron", "expr": "0 0 25 12 *"}
    noted = await api.good("POST", "/schedules/preview", {"schedule": NINE, "exclude": [midnight]})
    assert [note["code"] for note in noted["notes"]] == ["excludes_nothing"]


async def test_a_moment_that_is_left_out_is_explained_as_such(api: Api) -> None:
    task = await made(
        api, schedule={"type": "cron", "expr": "0 0 1 1 *"}, exclude=[{"type": "once", "at": "2090-01-01T00:00:00Z"}]
    )
    told = await api.good("GET", f"/tasks/{task['id']}/explain?at=2090-01-01T00:00:00Z")
    assert told["cause"] == "not_a_slot"
    assert "`exclude` leaves it out" in told["message"]
    other = await api.good("GET", f"/tasks/{task['id']}/explain?at=2090-01-02T00:00:00Z")
    assert "leaves it out" not in other["message"]
