"""The form parts of commands, messages to brokers and gRPC calls, of quiet hours and several schedules: filled in by hand,
created, opened again and saved as they are.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from browser.conftest import address
from browser.every_page import REACHING, TIMES

KINDS = {
    "command": "Command on a worker",
    "amqp": "Message to RabbitMQ (AMQP)",
    "nats": "Message to NATS",
    "redis": "Message to Redis",
    "mqtt": "Message to an MQTT broker",
    "grpc": "gRPC call",
}
BOXES: dict[str, dict[str, str]] = {
    "command": {
        "command": '["/usr/local/bin/backup", "--full", "two words"]',
        "env": "BACKUP_KEY=hush\nTZ=UTC",
        "cwd": "/srv",
        "queue": "ops",
    },
    "amqp": {
        "amqp": '{"url": "amqp://shop:hush@127.0.0.1:9/", "exchange": "orders", "routing_key": "orders.created",'
        ' "headers": {"Authorization": "Bearer hush", "kind": "order"}, "properties": {"priority": 3}, "reply": true}',
        "payload": '{"order": 7}',
    },
    "nats": {"nats": '{"url": "nats://shop:hush@127.0.0.1:9", "subject": "orders.created", "jetstream": true}'},
    "redis": {"redis": '{"url": "redis://:hush@127.0.0.1:9/0", "stream": "orders", "maxlen": 1000}'},
    "mqtt": {"mqtt": '{"url": "mqtt://127.0.0.1:9", "topic": "orders/created", "qos": 2, "retain": true}'},
    "grpc": {
        "grpc": '{"address": "127.0.0.1:9", "method": "shop.Orders/Create",'
        ' "metadata": {"authorization": "Bearer hush"}, "tls": {"server_name": "shop.internal"}}',
        "payload": '{"order": 7}',
    },
}
"""What a person types into them."""
WANTED: dict[str, dict[str, Any]] = {
    **REACHING,
    "command": {name: value for name, value in REACHING["command"].items() if name != "ok_codes"},
}


async def saved(page: Page, heading: str) -> None:
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("heading", name=heading)).to_be_visible()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_is_made_in_the_form_and_saved_as_it_is(node, open_page, kind: str):
    page, name = await open_page(address(node, "/tasks/new")), f"by-hand-{kind}"
    await page.get_by_label("Name", exact=True).fill(name)
    await page.get_by_role("radio", name=KINDS[kind], exact=True).check()
    await expect(page.get_by_label("URL", exact=True)).to_be_hidden()
    for box, text in BOXES[kind].items():
        await page.locator(f"#f-{box}").fill(text)
    await page.get_by_label("No schedule", exact=True).check()
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    made = node.ask("GET", f"/tasks/name:{name}")
    asked = node.ask("POST", "/tasks", {"name": f"by-call-{kind}", **WANTED[kind]}, expect=201)
    alike = [field for field in asked if field not in ("id", "uid", "name", "created_at", "updated_at", "created_by")]
    assert {field: made[field] for field in alike if field in made} == {
        field: asked[field] for field in alike if field in made
    }

    await page.goto(address(node, f"/tasks/{made['id']}/edit"))
    await expect(page.get_by_role("radio", name=KINDS[kind], exact=True)).to_be_checked()
    await saved(page, name)
    assert node.ask("GET", f"/tasks/{made['id']}") == made

    await page.goto(address(node, f"/tasks/{made['id']}/edit"))
    await page.locator("#f-description").fill("another one")
    await saved(page, name)
    changed = node.ask("GET", f"/tasks/{made['id']}")
    differ = {field for field in made if made[field] != changed[field]}
    assert differ == {"description", "version", "updated_at"}


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"command"}))
async def test_what_is_wrong_with_a_message_is_said_at_its_box(node, open_page, kind: str):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill(f"wrong-{kind}")
    await page.get_by_role("radio", name=KINDS[kind], exact=True).check()
    await page.get_by_label("No schedule", exact=True).check()
    await page.locator(f"#f-{kind}").fill('{"url": "ftp://127.0.0.1", "address": ""}')
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator(f"#p-{kind}")).to_be_visible()
    assert node.ask("GET", f"/tasks?name=wrong-{kind}")["total"] == 0


async def test_quiet_hours_mark_slots_of_the_preview_and_of_the_task(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("rests")
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    await page.get_by_label("Several schedules", exact=True).check()
    await page.locator("#f-schedules").fill("0 3 * * *\n0 12 * * *\n30 23 * * *")
    await expect(page.locator("#preview .slots li")).to_have_count(5)
    await page.get_by_text("Limits, overlap, missed slots, quiet hours").click()
    hours = '[{"from": "22:00", "to": "06:00"}, {"from": "11:00", "to": "13:00", "what": "skip"}]'
    await page.locator("#f-quiet").fill(hours)
    slots = page.locator("#preview .slots li")
    await expect(slots.filter(has_text="skipped: quiet hours").first).to_contain_text("12:00:00")
    await expect(slots.filter(has_text="held: quiet hours until").first).to_contain_text("06:00:00")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="rests")).to_be_visible()
    ahead = page.locator(".slots li")
    await expect(ahead.filter(has_text="skipped: quiet hours").first).to_contain_text("12:00:00")
    await expect(ahead.filter(has_text="held: quiet hours until").first).to_contain_text("06:00:00")


async def test_several_schedules_a_calendar_and_quiet_hours_are_saved_as_they_are(node, target, open_page):
    node.ask("PUT", "/calendars/china", {"closed_weekdays": [0, 6]})
    task = node.create(name="closing", target_url=target.url("/ok"), **TIMES)
    before = node.ask("GET", f"/tasks/{task}")
    page = await open_page(address(node, f"/tasks/{task}/edit"))
    await expect(page.locator("#f-quiet")).to_be_visible()
    await expect(page.locator("#f-calendar_name")).to_have_value("china")
    await saved(page, "closing")
    assert node.ask("GET", f"/tasks/{task}") == before
