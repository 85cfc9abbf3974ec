"""What Noonbell itself says is Chinese on a Chinese page: refusals of forms, why a delivery failed, alerts and lists."""

from __future__ import annotations

import re

import pytest

from integration.web.asking import as_read, get, post
from noonbell.model.run import DropReason, Origin
from noonbell.service.explain_words import code_words
from noonbell.service.translation import Translator

CHINESE = {"accept-language": "zh-CN"}
ENGLISH = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}")
NOTHING = "http://127.0.0.1:8999/hook"


def problem_in(text: str) -> str:
    found = re.search(r'<p class="problem"[^>]*>(?:<svg.*?</svg>)?(.*?)</p>', text)
    assert found is not None, text[-2000:]
    return found[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: 3", "应为 `tasks:` 及其任务列表"),
        ("calendars: []\ntasks: []", "文本还含有 `calendars:`，此处不会保存"),
        ("a: &x 1\nb: *x", "文本含有别名（*name）；请写出其内容"),
        ("a: 1\n---\nb: 2", "文本含有多个文档；应为一个"),
        ("a: 1\na: 2", "文本第 2 行：'a' 重复；请只保留一个"),
        ("a: [", "文本既不是 YAML 也不是 JSON：line 2: "),
    ],
)
async def test_why_tasks_are_not_imported_is_told_in_chinese(api, text, said):
    status, _, page = await post(api, "/tasks/import", {"text": text}, **CHINESE)
    assert (status, said in problem_in(page)) == (400, True), problem_in(page)


async def test_why_a_form_is_refused_is_told_in_chinese(api):
    task = await api.create(name="a")
    status, _, page = await post(api, "/tasks/new", {"yaml": "a: 1\na: 2"}, **CHINESE)
    assert (status, "第 2 行：'a' 重复；请只保留一个" in page) == (400, True)
    status, _, page = await post(api, "/tasks/bulk?act=change&name=a", {}, **CHINESE)
    assert (status, "没有填写任何内容" in page) == (400, True)
    status, _, page = await post(api, f"/tasks/{task}/trigger", {"payload": "{"}, **CHINESE)
    assert (status, "不是 JSON" in page) == (400, True)
    denied = {"name": "hook", "url": "http://127.0.0.1:9/hook", "active": "on"}
    status, _, page = await post(api, "/settings/new/subscription", denied, **CHINESE)
    assert (status, "不允许访问：端口 9 属于其他协议：不允许连接" in page) == (400, True)


async def test_a_delivery_that_is_not_there_is_told_of_in_chinese(api):
    await api.good("POST", "/subscriptions", {"name": "hook", "url": NOTHING}, 201)
    path = "/settings/subscriptions/hook/deliveries/x"
    told = await api.call("GET", f"/{path}", headers={"accept": "text/html", **CHINESE})
    assert (told.status, "没有投递记录 'x'" in as_read(told.text)) == (404, True)


async def test_why_a_webhook_was_not_delivered_is_told_in_chinese(api):
    await api.good("POST", "/subscriptions", {"name": "hook", "url": NOTHING}, 201)
    told = await api.good("POST", "/subscriptions/hook/test")
    assert told["error"] == "connection_refused: 127.0.0.1:8999: Connection refused"
    for path in ("/settings/subscriptions/hook", f"/settings/subscriptions/hook/deliveries/{told['delivery_id']}"):
        page = await get(api, path, "zh")
        assert "127.0.0.1:8999：连接被拒绝" in page
        assert "Connection refused" not in page
        assert told["error"] in await get(api, path)


async def test_what_alerts_sent_is_told_in_the_language_of_the_page(api):
    await api.good("POST", "/alerts/channels", {"name": "ops", "url": NOTHING}, 201)
    await api.call("POST", "/alerts/channels/ops/test")
    assert "Noonbell：测试" in await get(api, "/settings/alerts", "zh")
    assert "Noonbell: test alert" in await get(api, "/settings/alerts")
    assert (await api.good("GET", "/alerts/deliveries"))["items"][0]["title"] == "Noonbell: test alert"


async def test_a_form_names_the_kind_of_an_alert_rule_in_words(api):
    await api.good("POST", "/alerts/rules", {"name": "r", "kind": "lost"}, 201)
    task = await api.create(name="a")
    assert '<span class="tag">工作节点失联并丢失执行</span>' in await get(api, f"/tasks/{task}/edit", "zh")


async def test_a_bulk_operation_is_told_with_chinese_punctuation(api):
    await api.create(name="off", status="DISABLED")
    await api.create(name="on")
    operation = await api.good("POST", "/bulk", {"kind": "disable_tasks", "all": True})
    await api.services.bulk_loop.tick()
    page = await get(api, f"/bulk/{operation['id']}", "zh")
    assert "已暂停 1 / 2 个，1 个未处理：已是该状态（1）" in page


def test_codes_in_a_chinese_sentence_are_told_in_words():
    zh, en = Translator("zh"), Translator("en")
    told = {"status": ("FAILED", "失败"), "origin": (Origin.TRIGGER, "手动"), "reason": (DropReason.MISFIRE, "错过")}
    told |= {"rule": ("finish_within_seconds", "结束时限"), "policy": ("FIRE_NOW", "FIRE_NOW")}
    for name, (value, chinese) in told.items():
        assert (code_words(name, value, zh), code_words(name, value, en)) == (chinese, str(value))
    assert code_words("reason", "misfire", zh) == "misfire", "what a person gave as the reason"
