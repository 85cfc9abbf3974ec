"""Sealed texts: secrets as they lie in the store, so that whoever has the store without the key cannot read them.

    sealed:v1:KEYID:BASE64        AES-256-GCM; in the base64, the nonce of 12 bytes comes first

The key file has one `KEYID:BASE64` of 32 bytes on each line. The first key seals, all of them open: a new key is put on
top, everything is sealed anew, and the old one can go.

Sealing is deterministic. The nonce is made of the text and of a key that serves for nothing else, so the same text
under the same key is the same sealed text, and a task that did not change compares as equal. What that gives away is
which secrets are equal, and their length; a nonce comes twice for two texts with a chance of one in 2^96.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import os
import re
import secrets
import stat
from collections.abc import Sequence
from typing import Any, Final

from noonbell.errors import InvalidState, SettingsError

PREFIX: Final = "sealed:v1:"
SETTING: Final = "secrets.key_file"

_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_LARGEST: Final = 64 * 1024
"""Bytes of a key file: whatever is larger is something else."""


class Key:
    def __init__(self, key_id: str, material: bytes) -> None:
        self.id = key_id
        self._for_nonces = hmac.digest(material, b"noonbell nonce", "sha256")
        self._cipher = _cipher(hmac.digest(material, b"noonbell seal", "sha256"))
        self._head = f"{PREFIX}{key_id}:"

    def seal(self, text: str) -> str:
        plain = text.encode()
        nonce = hmac.digest(self._for_nonces, plain, "sha256")[:_NONCE_BYTES]
        sealed: bytes = self._cipher.encrypt(nonce, plain, self._head.encode())
        return self._head + base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str) -> str:
        """ValueError for what this key has not sealed, or what was changed since."""
        whole = base64.b64decode(sealed.removeprefix(self._head), validate=True)
        try:
            plain: bytes = self._cipher.decrypt(whole[:_NONCE_BYTES], whole[_NONCE_BYTES:], self._head.encode())
        except Exception as error:  # the library has an error of its own for it
            raise ValueError("not sealed by this key") from error
        return plain.decode()


class Sealer:
    """Seals with the first key and opens with all. Without a key, texts stay as they are."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = {key.id: key for key in keys}
        self._first = keys[0] if keys else None
        # A text is opened again and again, and is always the same.
        self._opened = functools.lru_cache(maxsize=4096)(self._open)

    @property
    def first(self) -> str | None:
        """The id of the key that seals; None without a key."""
        return None if self._first is None else self._first.id

    def seal(self, text: str, kept: str | None = None) -> str:
        """The text, sealed. `kept` is what is stored in its place: it stays, if it is the same text under any of our keys.

        InvalidState for one that is sealed where we have no key at all: nothing sealed is ever laid open again.
        """
        if kept is not None and is_sealed(kept) and self._is(kept, text):
            return kept
        return text if self._first is None else self._first.seal(text)

    def open(self, text: str) -> str:
        """The text itself, where it is not sealed. InvalidState where no key of ours opens it."""
        return self._opened(text) if is_sealed(text) else text

    def _is(self, kept: str, text: str) -> bool:
        if self._first is None:
            raise InvalidState(_missing(kept))
        try:
            return self.open(kept) == text
        except InvalidState:
            return False  # its key is lost, and here is a new value

    def _open(self, sealed: str) -> str:
        key = self._keys.get(key_id_of(sealed))
        if key is None:
            raise InvalidState(_missing(sealed))
        try:
            return key.open(sealed)
        except ValueError:
            raise InvalidState(
                f"a secret is not what key {key.id!r} sealed: another key has that name, or it was changed;"
                " write the value anew"
            ) from None


def is_sealed(text: str) -> bool:
    return text.startswith(PREFIX)


def key_id_of(sealed: str) -> str:
    return sealed.removeprefix(PREFIX).partition(":")[0]


def from_file(path: str | None) -> Sealer:
    """By the keys in the file; None: without a key. SettingsError for a file that is unsafe or cannot be read."""
    if path is None:
        return Sealer()
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - what is looked at is what is read
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise SettingsError.field(SETTING, f"is {path!r}, which cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise SettingsError.field(
            SETTING, f"is {path!r}, which others may read or write (mode {mode & 0o777:o}): chmod 600 {path}"
        )
    return Sealer(read_keys(text))


def read_keys(text: bytes) -> list[Key]:
    """SettingsError names the line, and nothing of what it holds."""
    materials: dict[str, bytes] = {}
    if len(text) > _LARGEST:
        raise SettingsError.field(SETTING, f"has more than {_LARGEST} bytes; expected one ID:BASE64 on each line")
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key_id, _, encoded = line.strip().partition(":")
        try:
            material = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            material = b""
        if _KEY_ID.fullmatch(key_id) is None or len(material) != _KEY_BYTES:
            raise SettingsError.field(
                SETTING,
                f"has a line {number} that is not ID:BASE64 of {_KEY_BYTES} bytes; `noonbell secrets key` makes one",
            )
        if key_id in materials:
            raise SettingsError.field(SETTING, f"names key {key_id!r} a second time in line {number}")
        materials[key_id] = material
    if not materials:
        raise SettingsError.field(SETTING, "names a file without a key; `noonbell secrets key` makes one")
    return [Key(key_id, material) for key_id, material in materials.items()]


def new_line(key_id: str) -> str:
    """A line for a key file, with a new key."""
    if _KEY_ID.fullmatch(key_id) is None:
        raise SettingsError.field(
            "ID", f"is {key_id!r}; expected up to 40 letters, digits, dots, dashes and underscores"
        )
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}"


def _missing(sealed: str) -> str:
    return f"a secret is sealed with key {key_id_of(sealed)[:40]!r}, which {SETTING} does not hold; add it, or write the value anew"


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise SettingsError.field(
            SETTING, "needs cryptography, which is not installed: pip install 'noonbell[encryption]'"
        ) from None
    return AESGCM(key)
