"""Whether the audit log is as it was written: the API and the page say the same, in both languages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.api.serving import Api, serving
from integration.web.asking import get
from noonbell.sealing import new_key_line
from noonbell.settings import SecretSettings
from noonbell.stores.sql.statement import Execute

HASH = "a" * 64


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[Api]:
    keys = tmp_path / "keys"
    keys.write_text(new_key_line("k1"))
    keys.chmod(0o600)
    async with serving("memory://", secrets=SecretSettings(key_file=str(keys))) as api:
        yield api


async def meddle(api: Api, *statements: str) -> None:
    def work(_):
        for statement in statements:
            yield Execute(statement)

    await api.store._write(work)


async def test_a_signed_log_is_sound_and_says_with_which_key(keyed: Api):
    for name in "abc":
        await keyed.create(name=name)
    newest = (await keyed.good("GET", "/audit"))["items"][0]
    assert newest["key"] == "k1"
    head = f"3:{newest['hash']}"
    told = await keyed.good("GET", f"/audit/check?limit=2&expect_head={head}")
    sound = {"is_sound": True, "since": 2, "head": head, "signed": 2, "signed_since": 2, "key": "k1", "flaws": []}
    assert told == sound
    assert "New entries are signed with key k1." in await get(keyed, "/activity")
    page = await get(keyed, f"/activity/check?head={head}")
    assert "The log is intact" in page
    assert head in page
    assert "日志完整" in await get(keyed, "/activity/check", "zh")
    assert "k1" in await get(keyed, "/activity/3")


async def test_what_is_wrong_is_told_by_its_kind_and_in_words(keyed: Api):
    for name in "abcd":
        await keyed.create(name=name)
    await meddle(
        keyed,
        "update audit set signature = null where id = 2",
        f"update audit set signature = 'k0:{HASH}' where id = 3",
        f"update audit set signature = 'k1:{HASH}' where id = 4",
    )
    told = await keyed.good("GET", f"/audit/check?expect_head=9:{HASH}")
    assert (told["is_sound"], told["flaws"]) == (
        False,
        [
            {"kind": "unsigned", "first": 2, "last": 2, "key": None},
            {"kind": "unknown_key", "first": 3, "last": 3, "key": "k0"},
            {"kind": "forged", "first": 4, "last": 4, "key": "k1"},
            {"kind": "cut", "first": 5, "last": 9, "key": None},
        ],
    )
    page = await get(keyed, f"/activity/check?head=9:{HASH}")
    for words in ("The log has been altered", "which is not in secrets.key_file", "was cut off"):
        assert words in page
    assert "的签名不是密钥 k1 所签" in await get(keyed, "/activity/check", "zh")


async def test_without_a_key_the_page_says_what_the_log_is_worth(api: Api):
    assert "No changes yet" in await get(api, "/activity/check")
    await api.create(name="a")
    for path in ("/activity", "/activity/check"):
        assert "anyone who can write to the store can rewrite the log" in await get(api, path)
    told = await api.good("GET", "/audit/check")
    assert (told["is_sound"], told["signed"], told["key"]) == (True, 0, None)


async def test_a_head_that_is_none_is_refused_by_its_field(api: Api):
    told = await api.call("GET", "/audit/check?expect_head=7")
    assert (told.status, "NUMBER:HASH" in told.body["details"]["expect_head"]) == (400, True)
    assert "NUMBER:HASH" in await get(api, "/activity/check?head=%3Cb%3E")
