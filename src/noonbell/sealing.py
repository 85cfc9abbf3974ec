"""Sealed texts: secrets as the store holds them, so that a copy of the store without the key shows none of them.

    sealed:v1:KEYID:siv.BASE64    AES-256-SIV (RFC 5297); in the base64, the tag of 16 bytes comes first
    sealed:v1:KEYID:BASE64        AES-256-GCM, of earlier versions, nonce of 12 bytes first; opened, and never written

The key file has one `KEYID:BASE64` of 32 bytes on each line. The first key seals, all of them open: to change the key, put a new
one on top, reseal everything (`noonbell secrets rotate`), then remove the old one. A rotation reseals the older form too. Code
that knows only the older form sees a newer text as sealed and refuses to open it; it never sends it on as a plain text.

Sealing is deterministic: the same text under the same key gives the same sealed text, so a task that did not change compares as
equal. A reader of the store learns which secrets are equal, and their length; nothing else. The prefix and the key's id are
authenticated with the text.

The same keys sign: `KEYID:HEX` is an HMAC-SHA-256. Each purpose (seal, sign) has a key of its own, derived from the file's.
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
"""Of AES-GCM."""
_SIV: Final = "siv."
_LARGEST: Final = 64 * 1024
"""Bytes of a key file; a larger one is refused."""


class SealingKey:
    def __init__(self, key_id: str, material: bytes) -> None:
        self.id = key_id
        siv, gcm = _ciphers()
        self._siv = siv(hmac.digest(material, b"noonbell siv", "sha512"))
        self._gcm = gcm(hmac.digest(material, b"noonbell seal", "sha256"))
        self._for_signatures = hmac.digest(material, b"noonbell sign", "sha256")
        self._head = f"{PREFIX}{key_id}:"

    def sign(self, text: str) -> str:
        return f"{self.id}:{hmac.digest(self._for_signatures, text.encode(), 'sha256').hex()}"

    def seal(self, text: str) -> str:
        sealed: bytes = self._siv.encrypt(text.encode(), [self._head.encode()])
        return self._head + _SIV + base64.b64encode(sealed).decode()

    def open(self, sealed: str) -> str:
        """ValueError for what this key has not sealed, or what was changed since."""
        body, head = sealed.removeprefix(self._head), self._head.encode()
        whole = base64.b64decode(body.removeprefix(_SIV), validate=True)
        plain: bytes
        try:
            if body.startswith(_SIV):
                plain = self._siv.decrypt(whole, [head])
            else:
                plain = self._gcm.decrypt(whole[:_NONCE_BYTES], whole[_NONCE_BYTES:], head)
        except Exception as error:  # InvalidTag of cryptography, which may not be installed
            raise ValueError("not sealed by this key") from error
        return plain.decode()


class Sealer:
    """Seals and signs with the first key, opens and checks with all. Without a key, texts stay as they are."""

    def __init__(self, keys: Sequence[SealingKey] = ()) -> None:
        self._keys = {key.id: key for key in keys}
        self._first = keys[0] if keys else None
        # A text is opened again and again, and is always the same.
        self._opened = functools.lru_cache(maxsize=4096)(self._open)

    @property
    def first(self) -> str | None:
        """The id of the key that seals; None without a key."""
        return None if self._first is None else self._first.id

    def sign(self, text: str) -> str | None:
        """By the first key; None without a key."""
        return None if self._first is None else self._first.sign(text)

    def is_signed(self, text: str, signature: str) -> bool | None:
        """Whether it is the text's signature; None where the key that it names is not ours."""
        key = self._keys.get(signature.partition(":")[0])
        return None if key is None else hmac.compare_digest(key.sign(text).encode(), signature.encode())

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

    def is_current(self, text: str) -> bool:
        """Whether it is sealed as `seal` would do it now: with the first key, in today's form."""
        return self._first is not None and text.startswith(f"{PREFIX}{self._first.id}:{_SIV}")

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
                f"a secret cannot be decrypted with key {key.id!r}: another key has that name, or the secret was"
                " changed; enter the value again"
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


def read_keys(text: bytes) -> list[SealingKey]:
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
                f"has a line {number} that is not ID:BASE64 of {_KEY_BYTES} bytes; create one with `noonbell secrets"
                " key`",
            )
        if key_id in materials:
            raise SettingsError.field(SETTING, f"names key {key_id!r} a second time in line {number}")
        materials[key_id] = material
    if not materials:
        raise SettingsError.field(SETTING, "names a file without a key; create one with `noonbell secrets key`")
    return [SealingKey(key_id, material) for key_id, material in materials.items()]


def new_key_line(key_id: str) -> str:
    """A line for a key file, with a new key."""
    if _KEY_ID.fullmatch(key_id) is None:
        raise SettingsError.field(
            "ID", f"is {key_id!r}; expected up to 40 letters, digits, dots, dashes and underscores"
        )
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}"


def _missing(sealed: str) -> str:
    return f"a secret is sealed with key {key_id_of(sealed)[:40]!r}, which {SETTING} does not hold; add it, or write the value anew"


def _ciphers() -> tuple[Any, Any]:
    """AES-SIV, and AES-GCM for texts that earlier code sealed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
    except ModuleNotFoundError:
        raise SettingsError.field(
            SETTING, "needs cryptography, which is not installed: pip install 'noonbell[encryption]'"
        ) from None
    return AESSIV, AESGCM
