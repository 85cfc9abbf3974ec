"""Services by their names in tasks and calls: what the API refuses, what the pages offer, what the doctor finds."""

from __future__ import annotations

from integration.api.serving import serving
from noonbell.model.run import RunBodies, RunStatus
from noonbell.model.task import TaskSpec
from noonbell.service.doctor import look_at_services
from noonbell.settings import ExecutorSettings, Settings

KNOWN = ExecutorSettings(services={"billing": "http://127.0.0.1:9000/api", "inside": "http://169.254.169.254"})


async def test_a_task_with_an_unknown_service_is_refused_and_the_answer_lists_the_known_ones():
    async with serving("memory://", executor=KNOWN) as api:
        told = await api.call("POST", "/tasks", {"name": "a", "target_url": "service://bill/x"})
        assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
        assert told.body["details"]["target_url"].endswith("expected one of billing, inside")
        made = await api.good("POST", "/tasks", {"name": "a", "target_url": "service://billing/x"}, 201)
        assert (await api.good("GET", f"/tasks/{made['id']}"))["target_url"] == "service://billing/x"
        told = await api.call("PATCH", f"/tasks/{made['id']}", {"target_url": "service://bill/x"})
        assert (told.status, list(told.body["details"])) == (400, ["target_url"])


async def test_a_call_and_those_it_tells_may_be_named_and_the_guard_looks_at_their_addresses():
    async with serving("memory://", executor=KNOWN) as api:
        urls = {"url": "service://billing/x", "success_url": "service://billing/ok", "failure_url": "service://billing"}
        made = await api.good("POST", "/calls", urls)
        assert (await api.good("GET", f"/runs/{made['run_id']}"))["call"]["url"] == "service://billing/x"
        wrong = {"url": "service://inside/x", "success_url": "service://bill/ok", "failure_url": "service://Bill/"}
        details = (await api.call("POST", "/calls", wrong)).body["details"]
        assert details["url"].startswith("may not be called: 169.254.169.254")
        assert "expected one of billing, inside" in details["success_url"]
        assert "service://NAME/PATH" in details["failure_url"]


async def test_the_form_offers_the_names_in_the_language_of_the_reader():
    async with serving("memory://", executor=KNOWN) as api:
        page = await api.good("GET", "//tasks/new", headers={"Accept": "text/html", "Accept-Language": "zh"})
        assert '<option value="service://billing/">' in page
        assert "设置中已有的服务：billing、inside" in page
        sent = {"name": "f", "kind": "http", "http_method": "GET", "target_url": "service://bill/x", "when": "none"}
        refused = await api.call("POST", "//tasks/new", data=sent, headers={"Sec-Fetch-Site": "same-origin"})
        assert refused.status == 400
        assert "expected one of billing, inside" in refused.text
    async with serving("memory://") as api:
        page = await api.good("GET", "//tasks/new", headers={"Accept": "text/html"})
        assert "service://" not in page


async def test_the_doctor_names_tasks_whose_service_the_settings_lack():
    async with serving("memory://", executor=KNOWN) as api:
        await api.create(name="plain")
        await api.create(name="named", target_url="service://billing/x")
        await api.create(name="told", cancel_url="service://inside/stop")
        flow = {"name": "flow", "steps": [{"id": "a", "target_url": "service://billing/a"}]}
        await api.good("POST", "/tasks", flow, 201)
        assert [each async for each in look_at_services(api.store, Settings(executor=KNOWN))] == []
        less = Settings(executor=ExecutorSettings(services={"inside": "http://127.0.0.1:9"}))
        (found,) = [each async for each in look_at_services(api.store, less)]
        assert (found.mark, found.says.rpartition(": ")[2]) == ("care", "named, flow")


async def test_the_page_of_a_run_has_a_curl_to_the_address_and_without_one_to_the_name():
    for executor, shown in ((KNOWN, "http://127.0.0.1:9000/api/x"), (ExecutorSettings(), "service://billing/x")):
        async with serving("memory://", executor=executor) as api:
            spec = TaskSpec(name="a", target_url="service://billing/x")
            task = await api.store.create_task(spec)
            run = await api.trigger(task.id)
            lease = await api.claim()
            await api.finish(lease, RunStatus.SUCCESS, bodies=RunBodies(request_headers={"Accept": "*/*"}))
            page = await api.good("GET", f"//runs/{run}", headers={"Accept": "text/html"})
            assert f"curl -i -X GET {shown}" in page
