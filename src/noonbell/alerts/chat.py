"""Channels whose messages people read in a chat: what their kinds share. A file of a kind has what only that service does.

A service says by status, or by a code in its answer with status 200, that it did not take a message. Its sender says which.
"""

from __future__ import annotations

import base64
import hmac
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec
from yarl import URL

from noonbell.alerts.channel_kind import ChannelKind, Undeliverable
from noonbell.alerts.posting import SHOWN, Answer, PostSender, check_web_address, is_success, maker, refused
from noonbell.fields.problems import ReadContext
from noonbell.masking import origin_alone
from noonbell.model.alert import Channel
from noonbell.model.failure_text import failure_text
from noonbell.service.target_fields import is_web_address


@dataclass(frozen=True, slots=True)
class ChatRequest:
    url: URL
    body: Mapping[str, Any]


class ChatSender(PostSender):
    """Sends to a service that shows messages to people."""

    @abstractmethod
    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[ChatRequest]:
        """The requests that show the message."""

    def problem_of(self, answer: Answer) -> Undeliverable | None:
        """Why the service did not take it; None if it did. Here: by its status, and the body has the reason as a text."""
        return None if is_success(answer) else refused(answer, text_in(answer))

    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        del delivery_id  # the services have no field for it
        status = None
        requests = self.request_of(channel, message)
        if not requests:
            raise Undeliverable(failure_text("alert_no_recipients"), again=False)
        for asked in requests:
            answer = await self.post(asked.url, msgspec.json.encode(asked.body), channel.headers, {})
            problem = self.problem_of(answer)
            if problem is not None:
                raise problem
            status = answer.status
        return status


class CodedSender(ChatSender):
    """Of a service that answers 200 with a code in its JSON, 0 for success."""

    code_names: ClassVar[tuple[str, ...]] = ("errcode",)
    text_name: ClassVar[str] = "errmsg"
    busy_codes: ClassVar[frozenset[int]]
    """After these another attempt may deliver it."""

    def problem_of(self, answer: Answer) -> Undeliverable | None:
        if not is_success(answer):
            return refused(answer)
        said = read_json(answer.body)
        code = next((said[name] for name in self.code_names if name in said), None)
        if code == 0:
            return None
        if code is None:
            return Undeliverable(failure_text("alert_no_code"), again=False)
        why = failure_text("alert_answered_why", status=code, error=str(said.get(self.text_name))[:SHOWN])
        return Undeliverable(why, again=code in self.busy_codes, response_code=answer.status)


def chat_kind(
    name: str,
    make: type[ChatSender],
    url_examples: Mapping[str, str],
    owns: Callable[[str], bool],
    *,
    check: Callable[[Channel, ReadContext], None] = check_web_address,
    signs: str = "",
) -> ChannelKind:
    """Of a service whose url is all that a channel needs. `signs`: what its secret signs, where it may have one."""
    return ChannelKind(
        name=name,
        make_sender=maker(make),
        check=check,
        shown_url=origin_alone,
        credential=signs,
        fields=("url", "secret") if signs else ("url",),
        url_examples=url_examples,
        owns=owns,
    )


def check_address(expected: str, is_right: Callable[[URL], bool]) -> Callable[[Channel, ReadContext], None]:
    """The check of a kind whose urls look like `expected`."""

    def check(channel: Channel, at: ReadContext) -> None:
        if not is_web_address(channel.url) or not is_right(URL(channel.url)):
            at.wrong("url", "is missing or wrong; expected {url}", url=expected)

    return check


def is_at(url: str, *hosts: str) -> bool:
    """Whether an address is at one of these hosts, or under one that begins with a dot."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return any(host == each or (each.startswith(".") and host.endswith(each)) for each in hosts)


def signature(key: str, content: str) -> str:
    """HMAC-SHA256 in base64."""
    return base64.b64encode(hmac.digest(key.encode(), content.encode(), "sha256")).decode()


def text_in(answer: Answer) -> str:
    return answer.body.decode(errors="replace")


def read_json(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_PREFIX: Final = "Noonbell: "
"""In front of each title: robots that want a keyword are given this word, and readers know who speaks."""


def title_of(message: Mapping[str, Any]) -> str:
    title = str(message["title"])
    return title if title.startswith(_PREFIX) else f"{_PREFIX}{title}"


def link_of(message: Mapping[str, Any]) -> str | None:
    """The link that shows the most: the run, its task, the dashboard."""
    links = message.get("links") or {}
    return next((links[name] for name in ("run", "task", "dashboard") if name in links), None)


def text_of(message: Mapping[str, Any], longest: int) -> str:
    """Title, text and link, a line each; at most `longest` bytes, of which the text gives way."""
    title, link = title_of(message), link_of(message)
    said = str(message["message"] or "")
    left = longest - len("\n".join(filter(None, (title, link))).encode()) - 1
    return "\n".join(filter(None, (shortened(title, longest), shortened(said, left), link)))


def shortened(text: str, longest: int) -> str:
    """At most that many bytes, and no half of a character."""
    content = text.encode()
    if len(content) <= longest:
        return text
    return content[: max(0, longest - 3)].decode(errors="ignore") + "…"
