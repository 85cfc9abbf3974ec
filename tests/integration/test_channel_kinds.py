"""Every kind of channel in the table works everywhere: in the API and its description, the form, both languages, the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import noonbell
from integration.api.serving import Api, serving
from integration.web.asking import get, post
from noonbell.alerts.channel_kind import ChannelKind, Undeliverable
from noonbell.alerts.channels import KINDS, AlertChannelWrite, channel_json
from noonbell.fields import schema
from noonbell.masking import masked
from noonbell.model.alert import Channel
from noonbell.model.failure_text import TEXTS
from noonbell.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise imports it
ROOM = Path(noonbell.__file__).parent
CANARY = "s3cret-canary"
URLS = {
    "webhook": f"http://127.0.0.1:9/{CANARY}",
    "apprise": f"json://{CANARY}@127.0.0.1:9/{CANARY}",
    "email": "smtp://127.0.0.1:9",
    "slack": f"http://127.0.0.1:9/{CANARY}",
    "teams": f"http://127.0.0.1:9/{CANARY}",
    "telegram": "http://127.0.0.1:9",
    "dingtalk": f"http://127.0.0.1:9/robot/send?access_token={CANARY}",
    "feishu": f"http://127.0.0.1:9/hook/{CANARY}",
    "wecom": f"http://127.0.0.1:9/send?key={CANARY}",
}
"""A url of each kind that nothing answers at, and that carries a secret, where urls of the kind do."""
MORE = {
    "email": {"secret": CANARY, "sender": "a@example.com", "to": ["b@example.com"]},
    "telegram": {"secret": f"1:{CANARY}", "to": ["-1"]},
}
"""What a channel of the kind needs besides."""
KNOWN_ELSEWHERE = {
    "webhook": {"model/alert.py", "masking.py"},
    "apprise": {"telemetry/logs.py"},
    "email": {"settings/sections.py"},
}
"""The default of a channel, the one kind whose origin `config show` prints, the name of a library's logger, and a claim of OpenID Connect."""

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def test_every_kind_has_a_url_to_be_tested_with():
    assert URLS.keys() == KINDS.keys()


@every_kind
async def test_a_channel_is_made_by_api_and_by_form_and_never_shows_its_secrets(kind: ChannelKind):
    async with serving("memory://") as api:
        given = {"name": "one", "kind": kind.name, "url": URLS[kind.name], **MORE.get(kind.name, {})}
        made = await api.good("POST", "/alerts/channels", given, 201)
        sent = {**given, "name": "two", **({"to": given["to"][0]} if "to" in given else {})}
        assert (await post(api, "/settings/new/channel", sent))[0] == 303
        kept = await api.store.alert_channels()
        assert [(channel.kind, channel.url) for channel in kept] == 2 * [(kind.name, URLS[kind.name])]
        assert CANARY not in json.dumps(made)
        assert CANARY not in await get(api, "/settings/channels/two")
        assert await sends_to_nothing(api) == (False, True)


async def sends_to_nothing(api: Api) -> tuple[bool, bool]:
    """Whether a test arrived, and whether its answer keeps the secret."""
    told = await api.good("POST", "/alerts/channels/one/test")
    return told["delivered"], CANARY not in json.dumps(told)


@every_kind
async def test_the_description_and_the_form_offer_it_in_both_languages(kind: ChannelKind):
    assert kind.name in schema(AlertChannelWrite, is_body=True)["properties"]["kind"]["enum"]
    async with serving("memory://") as api:
        for language in ("en", "zh"):
            words = json.loads((ROOM / f"service/locales/{language}.json").read_text())
            text = await get(api, "/settings/new/channel", language)
            link = text.split(f'/settings/new/channel?kind={kind.name}"')[1].split("</a>")[0]
            assert words[f"channel.{kind.name}"] in link
            assert words[f"channel_means.{kind.name}"] in await get(
                api, f"/settings/new/channel?kind={kind.name}", language
            )


@every_kind
async def test_a_message_that_could_not_be_sent_says_why_by_a_code(kind: ChannelKind):
    async with serving("memory://") as api:
        given = {"name": "one", "kind": kind.name, "url": URLS[kind.name], **MORE.get(kind.name, {})}
        await api.good("POST", "/alerts/channels", given, 201)
        told = await api.good("POST", "/alerts/channels/one/test")
        assert told["said"]["code"] in TEXTS
        assert told["error"] not in await get(api, "/settings/alerts", lang="zh")


async def test_a_channel_whose_key_is_not_here_says_so_by_a_code():
    async with serving("memory://") as api:
        await api.store.put_alert_channel(Channel(name="one", kind="slack", url="sealed:v1:k7:siv.AAAA"))
        told = await api.good("POST", "/alerts/channels/one/test")
        assert told["said"] == {"code": "alert_sealed", "facts": {"keys": "k7"}}
        assert "k7" in told["error"]


@every_kind
def test_the_settings_hide_its_secrets_too(kind: ChannelKind):
    declared = {"channels": {"one": {"kind": kind.name, "url": URLS[kind.name], "secret": CANARY}}}
    assert CANARY not in json.dumps(masked(declared))
    channel = Channel(name="one", kind=kind.name, url=URLS[kind.name], secret=CANARY, headers={"X-Key": CANARY})
    assert CANARY not in json.dumps(channel_json(channel))
    assert kind.credential == "" or "secret" in kind.fields


@every_kind
async def test_its_sender_opens_sends_and_closes(kind: ChannelKind):
    sender = kind.make_sender(Settings())
    await sender.open()
    with pytest.raises(Undeliverable):
        await sender.send(Channel(name="one", url=URLS[kind.name]), {"type": "t", "title": "t", "message": "m"}, "id")
    await sender.close()


@every_kind
def test_it_is_one_file_and_one_line_in_the_table(kind: ChannelKind):
    named = {
        str(path.relative_to(ROOM))
        for path in (*ROOM.rglob("*.py"), *ROOM.rglob("*.html"))
        if f'"{kind.name}"' in path.read_text() and path.parent.name != "types"  # made from the declarations
    }
    assert named == {f"alerts/{kind.name}.py", *KNOWN_ELSEWHERE.get(kind.name, ())}
