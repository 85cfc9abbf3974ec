"""The page of calls: the list with its filters, the form that makes one, and the run that it leads to."""

from __future__ import annotations

import pytest

from integration.api.serving import Api
from integration.web.asking import field, get, post
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import ClaimRequest

URL = "http://127.0.0.1:9000/mails"


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_the_list_shows_what_is_called_and_can_be_narrowed(api: Api, lang: str):
    empty = await get(api, "/calls", lang)
    assert "<table" not in empty
    one = await api.good("POST", "/calls", {"url": f"{URL}?one", "key": "k-1", "labels": {"team": "mail"}})
    two = await api.good("POST", "/calls", {"url": f"{URL}?two", "queue": "reports", "method": "PUT"})
    await api.create()
    task_run = await api.trigger(1)
    both = await get(api, "/calls", lang)
    assert f"POST {URL}?one" in both
    assert f"PUT {URL}?two" in both
    assert "team=mail" in both
    assert f"/runs/{task_run}" not in both
    assert both.count("k-1") == 1
    assert {"en": "call without a task", "zh": "无任务调用"}[lang] not in both  # each of them is
    narrowed = {"/calls?queue=reports": two, "/calls?key=k-1": one, "/calls?status=SCHEDULED&queue=reports": two}
    narrowed["/calls?label=team%3Dmail"] = one
    for path, expected in narrowed.items():
        text = await get(api, path, lang)
        assert [str(each["run_id"]) in text for each in (one, two)] == [expected is one, expected is two], path
    assert "<table" not in await get(api, "/calls?key=nobody", lang)


async def test_the_form_makes_a_call_and_the_run_shows_its_request_masked(api: Api):
    sent = {"url": URL, "method": "PUT", "headers": "Authorization: Bearer hush-hush\nX-Mine: a:b", "body": "{{x}}\n"}
    sent |= {"expires_at": "2100-01-01T00:00:00Z", "concurrency_key": "acme & co", "rate_key": "<acme>"}
    sent |= {"delay_seconds": "3600", "key": "k", "queue": "", "success_url": f"{URL}/good", "failure_url": ""}
    sent |= {"run_at": "", "priority": "-3", "timeout_seconds": "2.5", "max_retries": "7", "max_per_key": "2"}
    sent |= {"labels": "team=mail\nof = a=b\n"}
    status, place, _ = await post(api, "/calls", sent)
    assert status == 303
    run = await api.good("GET", f"{place}")
    assert run["expires_at"] == "2100-01-01T00:00:00Z"
    assert (run["origin"], run["key"], run["queue"], run["call"]["method"]) == ("call", "k", "http", "PUT")
    assert set(run["call"]["headers"]) == {"Authorization", "X-Mine"}
    assert (run["call"]["concurrency_key"], run["call"]["rate_key"]) == ("acme & co", "<acme>")
    assert (run["priority"], run["call"]["timeout_seconds"], run["call"]["max_per_key"]) == (-3, 2.5, 2)
    assert (run["call"]["retry_policy"]["max_retries"], run["call"]["labels"]) == (7, {"team": "mail", "of": "a=b"})
    page = await get(api, place)
    assert f"PUT {URL}" in page
    assert ': <span class="mono">acme & co</span>' in page
    assert 'Rate key: <span class="mono"><acme></span>' in page
    assert f"{URL}/good" in page
    assert "hush-hush" not in page
    assert "/replay" not in page
    (line, *_) = (await api.good("GET", "/audit"))["items"]
    assert (line["action"], line["subject"]) == ("make_call", place)


@pytest.mark.parametrize(("lang", "title"), [("en", "Waiting keys"), ("zh", "等待中的键")])
async def test_the_page_of_the_queue_lists_the_keys_behind_which_calls_wait(api: Api, lang: str, title: str):
    await api.good("POST", "/calls", {"url": URL})
    assert title not in await get(api, "/queues/http", lang)
    keyed = {"url": URL, "concurrency_key": "<acme>"}
    made = [(await api.good("POST", "/calls", keyed))["run_id"] for _ in range(3)]
    text = await get(api, "/queues/http", lang)
    assert title in text
    assert '<td class="said"><acme></td>' in text
    assert '<td class="number">2</td>' in text
    assert f"/runs/{made[0]}" in text
    assert f"/runs/{made[1]}" in text


async def test_what_is_wrong_stands_beside_its_box_and_the_rest_stays(api: Api):
    wrong = {"delay_seconds": "x", "priority": "1.5", "max_retries": "-1", "run_at": "soon", "max_per_key": "many"}
    wrong |= {"timeout_seconds": "NaN", "headers": "Accept text/plain", "labels": "team", "concurrency_key": "acme"}
    status, _, text = await post(api, "/calls", {"url": "http://169.254.169.254/", "body": "kept", **wrong})
    assert status == 400
    assert "169.254.169.254" in field(text, "url")
    for name in wrong.keys() - {"concurrency_key"}:
        assert 'role="alert"' in field(text, name), name
    assert "kept" in field(text, "body")
    assert (await api.good("GET", "/runs?origin=call"))["total"] == 0


async def test_a_call_that_failed_is_no_row_among_the_tasks(api: Api):
    call = await api.good("POST", "/calls", {"url": URL, "retry_policy": {"max_retries": 0}})
    asked = ClaimRequest(worker_id="w1", queues=("http",), job_types=(CALL_TYPE,), max=1)
    (lease,) = (await api.store.claim(asked)).leases
    assert lease.run_id == call["run_id"]
    await api.finish(lease, "FAILED", error_message="answered 501", error_details={"kind": "http_5xx"})
    await api.create(name="mine")
    text = await get(api, "/tasks")
    assert ">mine<" in text
    assert "calls:http" not in text
