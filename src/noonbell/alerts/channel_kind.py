"""What a kind of channel has to say of itself, and what its sender has to do. `channels.KINDS` is the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from noonbell.fields.problems import ReadContext
from noonbell.model.alert import Channel
from noonbell.settings import Settings


class Undeliverable(Exception):
    """A message did not arrive. `again`: another attempt may deliver it."""

    def __init__(self, message: str, *, again: bool = True, response_code: int | None = None) -> None:
        super().__init__(message)
        self.again, self.response_code = again, response_code


class AlertSender(ABC):
    """Sends messages to channels of one kind. It is used in the event loop that it was opened in."""

    async def open(self) -> None:  # noqa: B027 - most kinds have nothing to open
        """Called once, before the first message."""

    async def close(self) -> None:  # noqa: B027
        """Called once, after the last message."""

    @abstractmethod
    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        """The response code, where there is one. Undeliverable says why it did not arrive, and whether to try again.

        `message` has the fields of AlertMessage, and `links` where the address of the dashboard is known. `delivery_id` is
        the same for every attempt, so a receiver can drop a repeat.
        """


@dataclass(frozen=True, slots=True)
class ChannelKind:
    name: str
    """As `kind` of a channel has it. The locales call it `channel.NAME` and explain it by `channel_means.NAME`."""
    make_sender: Callable[[Settings], AlertSender]
    check: Callable[[Channel, ReadContext], None]
    """Adds what is wrong with the url and the secret of a new channel."""
    shown_url: Callable[[str], str]
    """The url without its secrets."""
    credential: str = ""
    """What `secret` of a channel does. Empty: the kind takes none."""
    fields: tuple[str, ...] = ("url",)
    """Of `url`, `secret`, `headers`, `to` and `sender`, those that the kind has, in the order of the form."""
    sends_secret: bool = False
    """The secret itself goes to the url: it is not kept for another server."""
    default_url: str = ""
    """Of a channel that names none."""
    tidy: Callable[[Channel], Channel] = lambda channel: channel
    """A channel as it is kept, from what people paste."""
    owns: Callable[[str], bool] = lambda _: False
    """Whether a url is of this service for certain: no channel of another kind can send there."""
    url_examples: Mapping[str, str] = field(default_factory=dict)
    """How a url is written, by the name of the service that it leads to; the form lists them."""
    package: str = ""
    """The library that it needs, and cannot be taken for granted."""
    extra: str = ""
    """The extra of Noonbell that installs the library."""

    @property
    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None
