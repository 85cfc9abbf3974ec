"""Signatures: the reference library accepts ours, and nobody else's."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from noonbell.errors import InvalidArgument
from noonbell.targets.http.signing import TOLERANCE, keys, objection, sign

SECRET = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of ours, 32 bytes").decode()
BODY = b'{"test": 2432232314}'


def test_the_fixed_vector():
    headers = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("secret", [SECRET, f"whsec_{SECRET}", OTHER])
@pytest.mark.parametrize("body", [BODY, b"", "Glocke 🔔".encode()])
def test_the_reference_library_accepts_it(secret, body):
    Webhook(secret).verify(body, sign(secret, "run_42", int(time.time()), body), json_parse=False)


def test_a_secret_that_is_not_base64_is_taken_as_its_bytes():
    text = "not base64 at all!".replace(" ", "_")
    assert keys(text) == [text.encode()]
    Webhook(text.encode()).verify(BODY, sign(text, "run_42", int(time.time()), BODY))


@pytest.mark.parametrize("place", range(0, len(BODY), 3))
def test_any_other_byte_is_refused(place):
    headers = sign(SECRET, "run_42", int(time.time()), BODY)
    other = bytearray(BODY)
    other[place] ^= 1
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(bytes(other), headers)


def test_id_and_time_are_signed_too():
    now = int(time.time())
    headers = sign(SECRET, "run_42", now, BODY)
    for change in ({"webhook-id": "run_43"}, {"webhook-timestamp": str(now + 1)}):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(BODY, headers | change)


def test_an_old_signature_is_refused():
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(SECRET).verify(BODY, sign(SECRET, "run_42", int(time.time()) - 301, BODY))


def test_while_a_secret_is_replaced_both_are_accepted():
    headers = sign(f"{SECRET} {OTHER}", "run_42", int(time.time()), BODY)
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(BODY, headers)


@pytest.mark.parametrize("secret", ["", "   ", "whsec_", "whsec_$$$"])
def test_a_secret_that_signs_nothing_is_refused(secret):
    with pytest.raises(InvalidArgument):
        keys(secret)


# What comes in


@pytest.mark.parametrize("secret", [SECRET, f"{OTHER} {SECRET}"])
def test_what_the_reference_library_signs_is_believed(secret):
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "done_42",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": "v1a,b2xk " + Webhook(SECRET).sign("done_42", now, BODY.decode()),
    }
    assert objection(secret, headers, BODY, int(now.timestamp())) == ""


@pytest.mark.parametrize(
    ("changed", "body", "later", "why"),
    [
        ({}, BODY + b" ", 0, "does not match"),
        ({"webhook-id": "run_43"}, BODY, 0, "does not match"),
        ({"webhook-timestamp": "1614265331"}, BODY, 0, "does not match"),
        ({"webhook-signature": "v1,"}, BODY, 0, "does not match"),
        ({"webhook-signature": "v1,\u00e9"}, BODY, 0, "does not match"),
        ({"webhook-id": ""}, BODY, 0, "without a webhook-id"),
        ({"webhook-timestamp": "soon"}, BODY, 0, "without a webhook-id"),
        ({"webhook-timestamp": "9" * 5_000}, BODY, 0, "without a webhook-id"),
        ({}, BODY, TOLERANCE + 1, "301 s old"),
        ({}, BODY, -TOLERANCE - 1, "301 s ahead"),
    ],
)
def test_what_is_wrong_with_a_signature_is_named(changed, body, later, why):
    headers = sign(SECRET, "run_42", 1614265330, BODY)
    assert objection(SECRET, headers, BODY, 1614265330) == ""
    assert why in objection(SECRET, headers | changed, body, 1614265330 + later)


def test_another_secret_does_not_match():
    assert "does not match" in objection(OTHER, sign(SECRET, "run_42", 1614265330, BODY), BODY, 1614265330)
