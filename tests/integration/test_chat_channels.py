"""Each service that has a kind of channel of its own, as a server on loopback that judges requests by the service's published rules.

The rules are written down here by hand: signatures are computed anew from what the services document, not by the code under test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from integration.api.serving import serving
from integration.web.asking import get, post
from noonbell.alerts.channel_kind import Undeliverable
from noonbell.alerts.channels import KINDS
from noonbell.alerts.email import EmailSender
from noonbell.model.alert import Channel
from noonbell.settings import ExecutorSettings, Settings

MESSAGE = {
    "type": "alert.raised",
    "title": "billing-nightly failed",
    "message": "run 7 ended FAILED: <b>503 & more</b>",
    "links": {"dashboard": "https://bell.example.com/", "run": "https://bell.example.com/runs/7"},
}
SECRET = "SECd0e1f2a3b4c5"


@dataclass
class Service:
    """Answers each POST as `judge` says."""

    judge: Callable[[web.Request, Any], web.Response]
    base: str = ""
    taken: list[Any] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Content-Type"] == "application/json"
        body = json.loads(await request.text())
        self.taken.append(body)
        return self.judge(request, body)


@contextlib.asynccontextmanager
async def service(judge: Callable[[web.Request, Any], web.Response]) -> AsyncIterator[Service]:
    made = Service(judge)
    app = web.Application()
    app.router.add_post("/{path:.*}", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def send(kind: str, url: str, **fields: Any) -> int | None:
    sender = KINDS[kind].make_sender(Settings())
    await sender.open()
    try:
        return await sender.send(Channel(name="one", kind=kind, url=url, **fields), MESSAGE, "alert_1")
    finally:
        await sender.close()


async def refusal(kind: str, url: str, **fields: Any) -> Undeliverable:
    with pytest.raises(Undeliverable) as raised:
        await send(kind, url, **fields)
    return raised.value


# ---- DingTalk: open.dingtalk.com, "Custom robot access", security setting "Sign"


def dingtalk(request: web.Request, body: Any) -> web.Response:
    stamp, signed = request.query.get("timestamp", ""), request.query.get("sign", "")
    expected = base64.b64encode(
        hmac.new(SECRET.encode(), f"{stamp}\n{SECRET}".encode(), hashlib.sha256).digest()
    ).decode()
    if request.path != "/robot/send" or request.query.get("access_token") != "a+b/c=":
        return web.json_response({"errcode": 300001, "errmsg": "token is not exist"})
    if signed != expected or abs(int(stamp) / 1000 - time.time()) > 3600:
        return web.json_response({"errcode": 310000, "errmsg": "sign not match"})
    if body["msgtype"] != "text" or not body["text"]["content"]:
        return web.json_response({"errcode": 400002, "errmsg": "bad"})
    return web.json_response({"errcode": 0, "errmsg": "ok"})


async def test_dingtalk_takes_a_message_that_is_signed_in_its_address_and_says_no_with_status_200():
    async with service(dingtalk) as there:
        url = f"{there.base}/robot/send?access_token=a%2Bb%2Fc%3D"
        assert await send("dingtalk", url, secret=SECRET) == 200
        content = there.taken[0]["text"]["content"]
        assert content.split("\n") == [
            "Noonbell: billing-nightly failed",
            "run 7 ended FAILED: <b>503 & more</b>",
            "https://bell.example.com/runs/7",
        ]
        no = await refusal("dingtalk", url, secret="SECother")
        assert (str(no), no.again, no.response_code) == ("it returned 310000: sign not match", False, 200)


async def test_dingtalk_that_has_had_too_many_messages_is_asked_again():
    async with service(lambda *_: web.json_response({"errcode": 130101, "errmsg": "send too fast"})) as there:
        assert (await refusal("dingtalk", f"{there.base}/robot/send?access_token=x")).again


# ---- Feishu: open.feishu.cn, "Custom bot usage guide", "Signature verification"


def feishu(request: web.Request, body: Any) -> web.Response:
    stamp = body.get("timestamp", "0")
    expected = base64.b64encode(hmac.new(f"{stamp}\n{SECRET}".encode(), b"", hashlib.sha256).digest()).decode()
    if request.path != "/open-apis/bot/v2/hook/t0":
        return web.json_response({"code": 19001, "msg": "param invalid: incoming webhook access token invalid"})
    if body.get("sign") != expected or abs(int(stamp) - time.time()) > 3600:
        return web.json_response(
            {"code": 19021, "msg": "sign match fail or timestamp is not within one hour from current time"}
        )
    assert body["msg_type"] == "text"
    return web.json_response({"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"})


async def test_feishu_takes_a_message_that_is_signed_in_its_body_and_says_no_with_status_200():
    async with service(feishu) as there:
        url = f"{there.base}/open-apis/bot/v2/hook/t0"
        assert await send("feishu", url, secret=SECRET) == 200
        assert there.taken[0]["content"]["text"].startswith("Noonbell: billing-nightly failed\nrun 7 ended")
        no = await refusal("feishu", url)
        assert str(no).startswith("it returned 19021: sign match fail")
        assert not no.again


async def test_an_error_message_does_not_call_everybody_of_a_feishu_group(monkeypatch: pytest.MonkeyPatch):
    async with service(feishu) as there:
        said = 'attempt <attempt> <at user_id="all">all</at> <AT\tuser_id="ou_1"></AT>'
        monkeypatch.setitem(MESSAGE, "message", said)
        await send("feishu", f"{there.base}/open-apis/bot/v2/hook/t0", secret=SECRET)
        text = there.taken[0]["content"]["text"]
        assert "<at" not in text.replace("<attempt>", "").lower()
        assert "attempt <attempt> < at user_id" in text


# ---- WeCom: developer.work.weixin.qq.com, "Message push configuration": a text has 2,048 bytes at most, in UTF-8


def wecom(request: web.Request, body: Any) -> web.Response:
    if request.path != "/cgi-bin/webhook/send" or request.query.get("key") != "k-1":
        return web.json_response({"errcode": 93000, "errmsg": "invalid webhook url"})
    if len(body["text"]["content"].encode()) > 2048:
        return web.json_response({"errcode": 40058, "errmsg": "content exceed max length"})
    return web.json_response({"errcode": 0, "errmsg": "ok"})


async def test_wecom_takes_a_message_of_any_length(monkeypatch: pytest.MonkeyPatch):
    async with service(wecom) as there:
        monkeypatch.setitem(MESSAGE, "message", "错" * 5_000)
        assert await send("wecom", f"{there.base}/cgi-bin/webhook/send?key=k-1") == 200
        assert there.taken[0]["text"]["content"].endswith("…\nhttps://bell.example.com/runs/7")
        assert (
            str(await refusal("wecom", f"{there.base}/cgi-bin/webhook/send?key=no"))
            == "it returned 93000: invalid webhook url"
        )


# ---- Slack: api.slack.com, "Sending messages using incoming webhooks", "Escaping text"


def slack(request: web.Request, body: Any) -> web.Response:
    if request.path != "/services/T0/B0/k":
        return web.Response(status=404, text="no_service")
    if not isinstance(body.get("text"), str) or "<b>" in body["text"]:
        return web.Response(status=400, text="invalid_payload")
    return web.Response(text="ok")


async def test_slack_takes_a_message_with_its_signs_escaped_and_says_why_not():
    async with service(slack) as there:
        assert await send("slack", f"{there.base}/services/T0/B0/k") == 200
        assert there.taken[0]["text"].split("\n") == [
            "*Noonbell: billing-nightly failed*",
            "run 7 ended FAILED: &lt;b&gt;503 &amp; more&lt;/b&gt;",
            "<https://bell.example.com/runs/7>",
        ]
        no = await refusal("slack", f"{there.base}/services/T0/B0/other")
        assert (str(no), no.again) == ("it returned 404 Not Found: no_service", False)


# ---- Teams: learn.microsoft.com, "Post a workflow when a webhook request is received": adaptive cards only, answered 202


def teams(request: web.Request, body: Any) -> web.Response:
    if (
        request.raw_path
        != "/workflows/w/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sig=a-b_c"
    ):
        return web.json_response({"error": {"code": "DirectApiAuthorizationRequired"}}, status=401)
    [card] = body["attachments"]
    if body["type"] != "message" or card["contentType"] != "application/vnd.microsoft.card.adaptive":
        return web.Response(status=400)
    if card["content"]["type"] != "AdaptiveCard" or card["content"]["body"][0]["type"] != "TextBlock":
        return web.Response(status=400)
    return web.Response(status=202)


async def test_teams_takes_an_adaptive_card_at_the_address_as_it_was_handed_out():
    async with service(teams) as there:
        path = "/workflows/w/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sig="
        assert await send("teams", f"{there.base}{path}a-b_c") == 202
        content = there.taken[0]["attachments"][0]["content"]
        assert [block["text"] for block in content["body"]] == ["Noonbell: billing-nightly failed", MESSAGE["message"]]
        assert content["actions"][0]["url"] == "https://bell.example.com/runs/7"
        assert "401" in str(await refusal("teams", f"{there.base}{path}wrong"))


async def test_an_older_connector_of_teams_that_refuses_with_status_200_has_not_taken_it():
    said = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429"
    async with service(lambda *_: web.Response(text=said)) as there:
        assert said in str(await refusal("teams", f"{there.base}/webhookb2/x"))


# ---- Telegram: core.telegram.org/bots/api#sendmessage


def telegram(request: web.Request, body: Any) -> web.Response:
    if request.path != "/bot123:AAbbccddeeff/sendMessage":
        return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)
    if body["chat_id"] not in ("-1001", "@ops_room"):
        said = {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}
        return web.json_response(said, status=400)
    assert 0 < len(body["text"]) <= 4096
    assert "parse_mode" not in body, "no sign of a text means anything"
    return web.json_response({"ok": True, "result": {"message_id": 1}})


async def test_telegram_sends_to_each_chat_and_says_why_not():
    async with service(telegram) as there:
        token = "123:AAbbccddeeff"
        assert await send("telegram", there.base, secret=token, to=("-1001", "@ops_room")) == 200
        assert [body["chat_id"] for body in there.taken] == ["-1001", "@ops_room"]
        no = await refusal("telegram", there.base, secret=token, to=("-1",))
        assert (str(no), no.again) == ("it returned 400 Bad Request: Bad Request: chat not found", False)
        assert "Unauthorized" in str(await refusal("telegram", there.base, secret="9:AAbbccddeeff", to=("-1001",)))


# ---- E-mail: RFC 5321, 3207 (STARTTLS), 4954 (AUTH PLAIN)


@dataclass
class MailServer:
    """Speaks enough of SMTP to judge a message. `password`: AUTH is wanted. `tls`: STARTTLS is offered, and AUTH only after it."""

    tls: ssl.SSLContext | None = None
    password: str = ""
    is_implicit: bool = False
    refuses: tuple[str, ...] = ()
    port: int = 0
    mails: list[tuple[list[str], bytes]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    logins: list[tuple[str, bool]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_sealed, is_known, to = self.is_implicit, not self.password, list[str]()

        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        say("220 mail.test ESMTP")
        while line := (await reader.readline()).decode().strip():
            self.said.append(line)
            word = line.split()[0].upper()
            if word == "EHLO":
                offered = ["mail.test", *(["STARTTLS"] if self.tls and not is_sealed else [])]
                offered += ["AUTH PLAIN"] if self.password and (is_sealed or self.tls is None) else []
                for index, each in enumerate(offered):
                    say(f"250{' ' if index == len(offered) - 1 else '-'}{each}")
            elif word == "STARTTLS":
                say("220 go")
                await writer.drain()
                await writer.start_tls(self.tls)
                is_sealed = True
            elif word == "AUTH":
                _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
                self.logins.append((user, is_sealed))
                is_known = password == self.password
                say("235 ok" if is_known else "535 5.7.8 wrong password")
            elif word == "RCPT":
                address = line.partition("<")[2].partition(">")[0]
                is_refused = address in self.refuses
                say("550 no such mailbox" if is_refused else "250 ok")
                to += [] if is_refused else [address]
            elif word == "DATA":
                say("354 go")
                content = (await reader.readuntil(b"\r\n.\r\n")).removesuffix(b".\r\n")
                self.mails.append((to, content))
                say("250 taken")
            elif word == "MAIL" and not is_known:
                say("530 5.7.0 authentication required")
            else:
                say("221 bye" if word == "QUIT" else "250 ok")
        writer.close()


@contextlib.asynccontextmanager
async def mail_server(**fields: Any) -> AsyncIterator[MailServer]:
    made = MailServer(**fields)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=made.tls if made.is_implicit else None)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    await listening.wait_closed()


@pytest.fixture
def sealed(certificate: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of a mail server, and one of a client that trusts it."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=f"{certificate}.crt")


def mail_channel(url: str, **fields: Any) -> Channel:
    usual = {"sender": "bell@example.com", "to": ("a@example.com", "b@example.com")}
    return Channel(name="one", kind="email", url=url, **{**usual, **fields})


async def test_a_mail_goes_over_starttls_with_the_password_and_has_one_id_for_all_attempts(sealed):
    server, client = sealed
    async with mail_server(tls=server, password="hush") as there:
        sender = EmailSender(ssl_context=client)
        channel = mail_channel(f"smtp://127.0.0.1:{there.port}", secret="hush")
        await sender.send(channel, {**MESSAGE, "title": "账单 失败\n again"}, "alert_1")
        await sender.send(channel, MESSAGE, "alert_1")
        assert there.logins == [("bell@example.com", True)] * 2
        (to, content), (_, second) = there.mails
        mail = message_from_bytes(content)
        assert to == ["a@example.com", "b@example.com"]
        assert str(make_header(decode_header(mail["Subject"]))) == "Noonbell: 账单 失败 again"
        assert mail["From"] == "Noonbell <bell@example.com>"
        assert mail["Message-ID"] == message_from_bytes(second)["Message-ID"] == "<alert_1@example.com>"
        text = mail.get_payload(decode=True).decode()
        assert text.split() == [*str(MESSAGE["message"]).split(), "https://bell.example.com/runs/7"]


async def test_a_mail_goes_by_tls_from_the_first_byte_as_the_user_of_the_address(sealed):
    server, client = sealed
    async with mail_server(tls=server, is_implicit=True, password="hush") as there:
        url = f"smtps://robot%40corp@127.0.0.1:{there.port}"
        await EmailSender(ssl_context=client).send(mail_channel(url, secret="hush"), MESSAGE, "alert_1")
        assert there.logins == [("robot@corp", True)]
        assert len(there.mails) == 1


async def test_a_mail_server_that_is_not_trusted_gets_no_password(sealed):
    async with mail_server(tls=sealed[0], password="hush") as there:
        with pytest.raises(Undeliverable, match="certificate verify failed") as raised:
            await EmailSender().send(mail_channel(f"smtp://127.0.0.1:{there.port}", secret="hush"), MESSAGE, "alert_1")
        assert not raised.value.again
        assert there.logins == []


async def test_what_a_mail_server_says_is_told_and_only_a_temporary_no_is_tried_again(sealed):
    async with mail_server(tls=sealed[0], password="hush", refuses=("b@example.com",)) as there:
        url = f"smtp://127.0.0.1:{there.port}"
        sender = EmailSender(ssl_context=sealed[1])
        with pytest.raises(Undeliverable, match=r"returned 535: 5\.7\.8 wrong password") as wrong:
            await sender.send(mail_channel(url, secret="other"), MESSAGE, "alert_1")
        with pytest.raises(Undeliverable, match=r"rejected b@example\.com: 550 no such mailbox") as one:
            await sender.send(mail_channel(url, secret="hush"), MESSAGE, "alert_1")
        assert (wrong.value.again, one.value.again) == (False, False)
        assert [to for to, _ in there.mails] == [["a@example.com"]]


async def test_a_password_that_smtp_cannot_carry_is_told_and_not_tried_again(sealed):
    async with mail_server(tls=sealed[0], password="hush") as there:
        channel = mail_channel(f"smtp://127.0.0.1:{there.port}", secret="pässword")
        with pytest.raises(Undeliverable, match="expected ASCII") as raised:
            await EmailSender(ssl_context=sealed[1]).send(channel, MESSAGE, "alert_1")
        assert not raised.value.again


async def test_a_mail_server_passes_the_outbound_guard():
    async with mail_server() as there:
        settings = Settings(executor=ExecutorSettings(deny_networks=("127.0.0.0/8", "::1/128")))
        sender = KINDS["email"].make_sender(settings)
        with pytest.raises(Undeliverable, match="deny_networks") as raised:
            await sender.send(mail_channel(f"smtp://127.0.0.1:{there.port}"), MESSAGE, "alert_1")
        assert not raised.value.again
        assert there.said == []


# ---- through the API and the form


PASTED = {
    "dingtalk": "https://oapi.dingtalk.com/robot/send?access_token=9f8e7d",
    "feishu": "https://open.feishu.cn/open-apis/bot/v2/hook/9f8e7d",
    "wecom": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=9f8e7d",
    "slack": "https://hooks.slack.com/services/T0/B0/9f8e7d",
}


@pytest.mark.parametrize("kind", PASTED)
async def test_the_address_that_a_service_hands_out_is_taken_by_its_own_kind_alone(kind: str):
    async with serving("memory://") as api:
        for other in ("webhook", "apprise"):
            no = (await api.call("POST", "/alerts/channels", {"name": "no", "kind": other, "url": PASTED[kind]})).body
            assert f"kind {kind}" in no["details"]["url"]
        made = await api.good("POST", "/alerts/channels", {"name": "yes", "kind": kind, "url": PASTED[kind]}, 201)
        assert "9f8e7d" not in json.dumps(made)
        assert (await post(api, "/settings/new/channel", {"name": "form", "kind": kind, "url": PASTED[kind]}))[0] == 303


async def test_the_token_in_a_pasted_address_of_telegram_becomes_the_secret():
    async with serving("memory://") as api:
        url = "https://api.telegram.org/bot123:AAbbccddeeff/getUpdates"
        given = {"name": "t", "kind": "telegram", "url": url, "to": ["-1001"]}
        made = await api.good("POST", "/alerts/channels", given, 201)
        assert made["url"] == "https://api.telegram.org"
        [kept] = await api.store.alert_channels()
        assert (kept.secret, kept.url) == ("123:AAbbccddeeff", "https://api.telegram.org")
        alone = {"name": "u", "kind": "telegram", "secret": "123:AAbbccddeeff", "to": ["@ops_room"]}
        assert (await api.good("POST", "/alerts/channels", alone, 201))["url"] == "https://api.telegram.org"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"kind": "dingtalk", "url": "https://oapi.dingtalk.com/robot/send"}, "url"),
        ({"kind": "wecom", "url": PASTED["wecom"], "secret": "x"}, "secret"),
        ({"kind": "slack", "url": PASTED["slack"], "to": ["a"]}, "to"),
        ({"kind": "telegram", "secret": "123:AAbbccddeeff"}, "to"),
        ({"kind": "telegram", "to": ["-1"]}, "secret"),
        ({"kind": "email", "url": "smtp://u:p@host", "sender": "a@b", "to": ["a@b"]}, "url"),
        ({"kind": "email", "url": "smtp://host", "to": ["a@b"]}, "sender"),
        ({"kind": "email", "url": "smtp://host?password=hush", "sender": "a@b", "to": ["a@b"]}, "url"),
        ({"kind": "email", "url": "smtp://host", "sender": "a@b", "to": ["a@b"], "secret": "pässword"}, "secret"),
        ({"kind": "email", "url": "smtp://host", "sender": "a@b", "to": ["a@b\nBcc: c@d"]}, "to"),
        ({"kind": "webhook"}, "url"),
    ],
)
async def test_a_channel_that_cannot_work_is_refused_by_the_name_of_its_field(given: dict[str, Any], wrong: str):
    async with serving("memory://") as api:
        no = (await api.call("POST", "/alerts/channels", {"name": "no", **given})).body
        assert {name.partition("[")[0] for name in no["details"]} == {wrong}
        assert await api.store.alert_channels() == []


async def test_a_password_that_is_kept_is_not_sent_to_another_server():
    async with serving("memory://") as api:
        given = {
            "name": "m",
            "kind": "email",
            "url": "smtp://one.test",
            "sender": "a@b.c",
            "to": ["a@b.c"],
            "secret": "hush",
        }
        await api.good("POST", "/alerts/channels", given, 201)
        moved = {**given, "secret": "***", "url": "smtp://two.test"}
        no = (await api.call("PUT", "/alerts/channels/m", moved)).body
        assert list(no["details"]) == ["secret"]
        await api.good("PUT", "/alerts/channels/m", {**moved, "url": "smtp://one.test", "to": ["d@e.f"]})
        [kept] = await api.store.alert_channels()
        assert (kept.secret, kept.to) == ("hush", ("d@e.f",))


async def test_the_test_button_says_what_the_service_said():
    async with service(dingtalk) as there, serving("memory://") as api:
        url = f"{there.base}/robot/send?access_token=a%2Bb%2Fc%3D"
        made = {"name": "ding", "kind": "dingtalk", "url": url, "secret": SECRET}
        await api.good("POST", "/alerts/channels", made, 201)
        told = await api.good("POST", "/alerts/channels/ding/test")
        assert told == {"delivered": True, "response_code": 200, "error": None}
        await api.good("PUT", "/alerts/channels/ding", {**made, "secret": "SECother"})
        told = await api.good("POST", "/alerts/channels/ding/test")
        facts = {"status": 310000, "error": "sign not match"}
        said = {"code": "alert_answered_why", "facts": facts}
        assert told == {
            "delivered": False,
            "response_code": 200,
            "error": "it returned 310000: sign not match",
            "said": said,
        }
        newest = (await api.good("GET", "/alerts/deliveries"))["items"][0]
        assert (newest["error"], newest["said"]) == (told["error"], said)
        assert "it returned 310000: sign not match" in await get(api, "/settings/alerts")
        page = await get(api, "/settings/alerts", lang="zh")
        assert "对方返回 310000：sign not match" in page
        assert "it returned" not in page


@pytest.mark.parametrize("url", ["memory_url", "postgres_url"])
async def test_what_a_service_repeats_of_its_address_is_not_kept_nor_what_no_database_takes(
    url: str, request: pytest.FixtureRequest
):
    def repeating(asked: web.Request, _: Any) -> web.Response:
        said = f"invalid webhook url \0 {asked.path_qs} {asked.query['key']}"
        return web.json_response({"errcode": 93000, "errmsg": said})

    store = "memory://" if url == "memory_url" else request.getfixturevalue(url)
    async with service(repeating) as there, serving(store) as api:
        given = {"name": "one", "kind": "wecom", "url": f"{there.base}/cgi-bin/webhook/send?key=9f8e7d-c0ffee"}
        await api.good("POST", "/alerts/channels", given, 201)
        told = await api.good("POST", "/alerts/channels/one/test")
        assert told["error"].startswith("it returned 93000: invalid webhook url \ufffd /cgi-bin/webhook/send?***")
        [logged] = (await api.good("GET", "/alerts/deliveries"))["items"]
        assert logged["error"] == told["error"]
        assert "c0ffee" not in told["error"]


async def test_the_form_of_a_kind_has_the_fields_of_that_kind():
    async with serving("memory://") as api:
        for kind, known in KINDS.items():
            page = await get(api, f"/settings/new/channel?kind={kind}")
            shown = {name for name in ("url", "secret", "headers", "to", "sender") if f'name="{name}"' in page}
            assert shown == set(known.fields)
        failures = await get(api, "/settings/new/rule?kind=failures")
        store = await get(api, "/settings/new/rule?kind=store_unreachable")
        assert ('name="count"' in failures, 'name="after_seconds"' in failures) == (True, False)
        assert ('name="count"' in store, 'name="after_seconds"' in store, 'name="tasks"' in store) == (
            False,
            True,
            False,
        )


def test_every_kind_here_has_a_file_that_names_its_rules():
    room = Path(__file__).parents[2] / "src/noonbell/alerts"
    assert {kind for kind in KINDS if not (room / f"{kind}.py").exists()} == set()
