"""Sealed texts and the file of keys: what opens them, what does not, and which file is refused (S6)."""

from __future__ import annotations

import base64
import os
import sys

import pytest

from noonbell import sealing
from noonbell.errors import InvalidState, SettingsError
from noonbell.model.alert import Channel
from noonbell.model.task import TaskSpec
from noonbell.sealing import Sealer, is_sealed, read_keys
from noonbell.service.secrets import opened, sealed

OLD, NEW = sealing.new_key_line("old"), sealing.new_key_line("new")

KNOWN = "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
BY_EARLIER_CODE = {
    "x": "sealed:v1:old:EeaviWetP/Ow2NbQ70Dg/Bq5brX5D/zMfbEU3xI=",
    "Bearer abc": "sealed:v1:old:n4a7tomWby3NHKXjTPYZZJD4j0cceDkYLrKuacK0Wnq+Ql37Xks=",
    "ключ 🔑": "sealed:v1:old:/uE5ZfqiwWCF2Mf4oQuWrWiiwMwD6CdJJZ174G4HYHsTWmTBvyJmun4=",
}
"""Sealed with KNOWN by the code that used AES-GCM."""


def sealer(*lines: str) -> Sealer:
    return Sealer(read_keys("\n".join(lines).encode()))


@pytest.mark.parametrize("text", ["x", "Bearer abc", "ключ 🔑", 'a"b\\c', "x" * 8_192])
def test_a_sealed_text_opens_to_what_it_was_and_does_not_show_it(text):
    found = sealer(OLD).seal(text)
    assert found.startswith("sealed:v1:old:")
    assert text not in found.removeprefix("sealed:v1:old:") or len(text) == 1
    assert sealer(OLD).open(found) == text


def test_the_same_text_is_sealed_the_same_and_another_is_not():
    assert sealer(OLD).seal("one") == sealer(OLD).seal("one")
    assert sealer(OLD).seal("one") != sealer(OLD).seal("two")
    assert sealer(OLD).seal("one") != sealer(NEW).seal("one")


def test_the_first_key_seals_and_all_keys_open():
    both = sealer(NEW, OLD)
    assert both.seal("x").startswith("sealed:v1:new:")
    assert both.open(sealer(OLD).seal("x")) == "x"


def test_what_is_stored_under_an_older_key_stays_as_long_as_the_text_is_the_same():
    kept = sealer(OLD).seal("x")
    assert sealer(NEW, OLD).seal("x", kept) == kept
    assert sealer(NEW, OLD).seal("y", kept).startswith("sealed:v1:new:")
    assert sealer(NEW).seal("x", kept).startswith("sealed:v1:new:")


def test_without_its_key_nothing_opens():
    with pytest.raises(InvalidState, match=r"'old'.*secrets\.key_file"):
        sealer(NEW).open(sealer(OLD).seal("x"))


@pytest.mark.parametrize(("text", "before"), BY_EARLIER_CODE.items())
def test_what_earlier_code_sealed_opens_and_stays_until_a_rotation(text, before):
    known = sealer(KNOWN)
    assert known.open(before) == text
    assert known.seal(text, before) == before, "an unchanged text is not written anew"
    assert not known.is_current(before)
    assert known.is_current(known.seal(text))
    assert known.seal(known.open(before)) != before


@pytest.mark.parametrize("place", range(0, 38, 3))
def test_a_changed_byte_of_what_earlier_code_sealed_is_noticed(place):
    head = "sealed:v1:old:"
    whole = bytearray(base64.b64decode(BY_EARLIER_CODE["Bearer abc"].removeprefix(head)))
    whole[place] ^= 1
    with pytest.raises(InvalidState, match="cannot be decrypted with key 'old'"):
        sealer(KNOWN).open(head + base64.b64encode(whole).decode())


def test_the_two_forms_are_not_taken_for_each_other():
    known = sealer(KNOWN)
    for text in (
        known.seal("x").replace(":siv.", ":"),
        BY_EARLIER_CODE["x"].replace("sealed:v1:old:", "sealed:v1:old:siv."),
    ):
        with pytest.raises(InvalidState):
            known.open(text)


def test_a_sealed_text_is_bound_to_the_name_of_its_key():
    material = KNOWN.partition(":")[2]
    moved = sealer(KNOWN).seal("x").replace("sealed:v1:old:", "sealed:v1:other:")
    with pytest.raises(InvalidState):
        sealer(f"other:{material}").open(moved)


@pytest.mark.parametrize("place", range(0, 39, 3))
def test_a_byte_that_was_changed_is_noticed(place):
    head, text = "sealed:v1:old:siv.", sealer(OLD).seal("a secret of some length")
    whole = bytearray(base64.b64decode(text.removeprefix(head)))
    whole[place] ^= 1
    with pytest.raises(InvalidState, match="cannot be decrypted with key 'old'"):
        sealer(OLD).open(head + base64.b64encode(whole).decode())


def test_another_key_of_the_same_name_does_not_open():
    with pytest.raises(InvalidState):
        sealer(sealing.new_key_line("old")).open(sealer(OLD).seal("x"))


def test_without_any_key_texts_stay_as_they_are_and_sealed_ones_are_never_laid_open():
    plain = Sealer()
    assert plain.first is None
    assert (plain.seal("x"), plain.open("x")) == ("x", "x")
    with pytest.raises(InvalidState, match=r"secrets\.key_file"):
        plain.seal("x", sealer(OLD).seal("x"))


def test_of_a_task_the_secret_headers_and_the_signing_secret_are_sealed_and_nothing_else():
    spec = TaskSpec(name="a", headers={"Authorization": "Bearer x", "Accept": "a/b", "X-Token": ""}, secret="whsec_x")
    found = sealed(spec, sealer(OLD))
    assert is_sealed(found.headers["Authorization"])
    assert is_sealed(found.secret or "")
    assert (found.headers["Accept"], found.headers["X-Token"]) == ("a/b", "")
    assert opened(found, sealer(OLD)) == spec


def test_of_a_channel_the_address_is_sealed_too():
    channel = Channel(name="c", url="https://hooks.test/T0/B0/xyz", headers={"X-Api-Key": "k"}, secret="s")
    found = sealed(channel, sealer(OLD))
    assert all(map(is_sealed, (found.url, found.headers["X-Api-Key"], found.secret or "")))
    assert opened(found, sealer(OLD)) == channel


def write(path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_key_file_may_have_remarks_and_empty_lines(tmp_path):
    found = sealing.from_file(write(tmp_path / "keys", f"# ours\n\n{NEW}\n{OLD}\n"))
    assert found.first == "new"


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644, 0o666, 0o620])
def test_a_key_file_that_others_can_read_or_change_is_refused(tmp_path, mode):
    with pytest.raises(SettingsError, match=r"secrets\.key_file.*chmod 600"):
        sealing.from_file(write(tmp_path / "keys", NEW, mode))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_a_key_file_of_its_owner_and_a_reading_group_is_taken(tmp_path, mode):
    assert sealing.from_file(write(tmp_path / "keys", NEW, mode)).first == "new"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "canary-without-a-colon",
        "id:not base64 canary",
        "id:" + base64.b64encode(b"canary").decode(),
        ":" + base64.b64encode(os.urandom(32)).decode(),
        "bad id:" + base64.b64encode(os.urandom(32)).decode(),
        f"{NEW}\n{NEW}",
        f"{NEW}\ncanary",
        "x" * 70_000,
        "\ufeff\x00canary",
    ],
    ids=range(11),  # keys are random, and every process has to collect the same tests
)
def test_a_malformed_key_file_is_refused_and_nothing_of_it_is_told(tmp_path, text):
    with pytest.raises(SettingsError) as caught:
        sealing.from_file(write(tmp_path / "keys", text))
    assert list(caught.value.details) == ["secrets.key_file"]
    assert "canary" not in str(caught.value)
    assert NEW.partition(":")[2] not in str(caught.value)


def test_a_key_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"secrets\.key_file.*No such file"):
        sealing.from_file(str(tmp_path / "none"))


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(SettingsError, match=r"noonbell\[encryption\]"):
        sealing.from_file(write(tmp_path / "keys", NEW))
