"""Redirects: what the next request is, and what it leaves behind."""

from __future__ import annotations

import pytest
from yarl import URL

from noonbell.targets.http.request import BadRedirect, Request, redirected
from unit.targets.make import TOKEN

SECRETS = {
    "Authorization": "Bearer abcdef",
    "Cookie": "a=b",
    "X-Api-Key": "k",
    "X-My-Token": "t",
    "Ocp-Apim-Subscription-Key": "o",
    "X-Anything": "a",
    "X-Forwarded-Access-Token": "f",
    "X-RateLimit-Token": "r",
    "X-Callback-Token": TOKEN,
    "X-Callback-Url": f"http://bell.test/{TOKEN}",
    "webhook-id": "run_42",
    "webhook-timestamp": "1",
    "webhook-signature": "v1,x",
}
PLAIN = {"X-Noonbell-Run": "42", "Idempotency-Key": "k", "Accept": "*/*", "X-Forwarded-For": "192.0.2.1"}


def first(method: str = "POST", body: str | None = "body") -> Request:
    content = None if body is None else body.encode()
    headers = SECRETS | PLAIN | ({"Content-Type": "text/plain"} if body else {})
    return Request(method, URL("http://a.test/x/y?q=1"), headers, body, content)


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", True),
        (301, "PUT", "PUT", True),
        (302, "GET", "GET", True),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
    ],
)
def test_method_and_body_follow_the_rules_of_http(status, method, then, keeps_body):
    request = redirected(first(method), status, "/z", TOKEN)
    assert request.method == then
    assert (request.content is not None) is keeps_body
    assert ("Content-Type" in request.headers) is keeps_body
    assert ("webhook-signature" in request.headers) is keeps_body


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/z", "http://a.test/z"),
        ("z?p=2", "http://a.test/x/z?p=2"),
        ("//b.test/", "http://b.test/"),
        ("HTTPS://B.test:8443/z#part", "https://b.test:8443/z"),
        ("http://evil:word@b.test/", "http://b.test/"),
    ],
)
def test_a_location_is_read_beside_the_url(location, url):
    assert str(redirected(first("GET", None), 302, location, TOKEN).url) == url


def test_the_same_origin_gets_all_headers_again():
    assert redirected(first(), 307, "http://a.test:80/z", TOKEN).headers == first().headers


@pytest.mark.parametrize(
    "location", ["http://b.test/", "https://a.test/", "http://a.test:81/", "http://sub.a.test/", "//b.test/"]
)
def test_another_origin_gets_no_secret(location):
    request = redirected(first(), 307, location, TOKEN)
    assert request.headers == PLAIN | {"Content-Type": "text/plain"}


def test_a_body_with_the_callback_token_is_not_handed_to_another_origin():
    with pytest.raises(BadRedirect, match="callback token"):
        redirected(first(body=f"call {TOKEN}"), 307, "http://b.test/", TOKEN)
    assert redirected(first(body=f"call {TOKEN}"), 307, "/z", TOKEN).content
    assert redirected(first(body=f"call {TOKEN}"), 303, "http://b.test/", TOKEN).content is None


@pytest.mark.parametrize("location", [None, "", "http://[::1", "http://a.test:99999/"])
def test_a_location_that_leads_nowhere_is_an_error(location):
    with pytest.raises(BadRedirect):
        redirected(first(), 302, location, None)
