"""Signatures of outgoing requests, as Standard Webhooks: a target checks them with any library of that name. And of
callbacks, which a target may sign in the same way, with the same secret.

`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. While a secret is being replaced, a
task holds both, parted by a space, and each signs.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence

from noonbell.errors import InvalidArgument
from noonbell.model.callback_refusal import refused

PREFIX = "whsec_"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE = 300
"""Seconds by which a signature may be older, or newer, than now."""


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers, by a task's secret."""
    return sign_with(keys(secret), message_id, timestamp, body)


def sign_with(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers. `timestamp` is in seconds; the id is the same for every attempt of a run, and has no dot."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    signatures = ["v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    return {ID: message_id, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(signatures)}


def objection(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str:
    """What is wrong with a signature that came in; nothing where all is well. `now` is in seconds."""
    message_id, timestamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not message_id or not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return refused("unsigned", id=ID, timestamp=TIMESTAMP)
    made = sign(secret, message_id, int(timestamp), body)[SIGNATURE].encode()
    given = headers.get(SIGNATURE, "").encode()
    if not any(hmac.compare_digest(one, ours) for one in given.split() for ours in made.split()):
        return refused("signature")
    if abs(away := now - int(timestamp)) > TOLERANCE:
        side = "old" if away > 0 else "ahead"
        return refused("clock", seconds=abs(away), side=side, allowed=TOLERANCE)
    return ""


def keys(secret: str) -> list[bytes]:
    """The keys in a task's secret: `whsec_` and base64, base64 alone, or any other text, taken as its bytes."""
    found = [_key(word) for word in secret.split()]
    if not found:
        raise InvalidArgument("the secret is empty; expected whsec_ and base64")
    return found


def _key(word: str) -> bytes:
    text = word.removeprefix(PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        if text != word:
            raise InvalidArgument("the secret starts with whsec_, and what follows is not base64") from None
        key = word.encode()
    if not key:
        raise InvalidArgument("the secret is empty; expected whsec_ and base64")
    return key
