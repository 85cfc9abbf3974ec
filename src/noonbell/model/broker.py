"""Messages that tasks publish to brokers: where each goes, with what, and how the consumer answers.

One Struct for each kind of broker, the value of a task's field of that name. The body of the message is the run's payload.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import msgspec

from noonbell.fields import meta as described

_YEAR: Final = 31_536_000
_Url = Annotated[str, described(anything=True, min_length=1, max_length=2_048)]
HeaderValues = dict[str, Annotated[str, described(anything=True, max_length=8_192)]]
Headers = Annotated[HeaderValues, described(max_length=100, expected="an object of at most 100 headers")]

_HEADERS: Final = described(
    "Sent with the message; placeholders allowed in values. All but harmless ones are masked in answers."
)
_CALLBACK: Final = described(
    "The message carries a callback's address and token; the run waits for the callback once the broker has the message."
)
_CALLBACK_SECONDS: Final = described("With `callback`: how long to wait for it.", ge=1, le=_YEAR)


class BrokerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the messages of all brokers have."""

    url: _Url
    headers: Annotated[Headers, _HEADERS] = {}
    callback: Annotated[bool, _CALLBACK] = False
    callback_timeout_sec: Annotated[int, _CALLBACK_SECONDS] = 300

    @property
    def destination(self) -> str:
        """Where at the broker it goes; placeholders may stand in it."""
        raise NotImplementedError

    @property
    def awaits_reply(self) -> bool:
        """Whether the attempt itself waits for the consumer's answer."""
        return False

    @property
    def has_headers(self) -> bool:
        """Whether the protocol carries headers beside the body."""
        return True

    def destination_problem(self, text: str) -> str | None:
        """What is wrong with a destination whose placeholders are filled in."""
        return None if text.isprintable() else "holds a control character"


class AmqpProperties(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of an AMQP message that a task may set; the others follow from the run."""

    noun: ClassVar[str] = "properties"

    content_type: Annotated[str, described("The type of the body.", max_length=255)] = "application/json"
    content_encoding: Annotated[str | None, described("How the body is encoded.", max_length=255)] = None
    type: Annotated[str | None, described("The name of the message's type.", max_length=255)] = None
    app_id: Annotated[str | None, described("The name of the sender.", max_length=255)] = None
    priority: Annotated[int | None, described("For queues that have priorities.", ge=0, le=255)] = None
    expiration_ms: Annotated[
        int | None, described("Milliseconds after which the broker drops it.", ge=0, le=2**31 - 1)
    ] = None


class AmqpMessage(BrokerMessage, frozen=True, kw_only=True):
    """Published to an exchange of RabbitMQ. It is a success when the broker has confirmed and routed it."""

    noun: ClassVar[str] = "an AMQP message"

    url: Annotated[
        _Url,
        described(
            "amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps. The password is masked in answers.",
            missing="an address such as amqp://USER:PASSWORD@HOST/VHOST",
            examples=["amqp://shop:secret@rabbit.internal/"],
        ),
    ]
    exchange: Annotated[
        str, described("The exchange. Empty: the default one, which routes by the name of a queue.")
    ] = ""
    routing_key: Annotated[
        str, described("The routing key; placeholders allowed.", max_length=255, examples=["orders.created"])
    ] = ""
    properties: Annotated[AmqpProperties, described("Properties of the message.")] = AmqpProperties()
    persistent: Annotated[bool, described("Kept by durable queues when the broker restarts.")] = True
    mandatory: Annotated[bool, described("Fails if no queue is bound for it.")] = True
    reply: Annotated[
        bool, described("The attempt waits, within its timeout, for the consumer's answer to `reply-to`.")
    ] = False

    @property
    def destination(self) -> str:
        return self.routing_key

    @property
    def awaits_reply(self) -> bool:
        return self.reply


class NatsMessage(BrokerMessage, frozen=True, kw_only=True):
    """Published to a subject of NATS. It is a success when the server has it; with `jetstream`, when a stream has stored it."""

    noun: ClassVar[str] = "a NATS message"

    url: Annotated[
        _Url,
        described(
            "nats://USER:PASSWORD@HOST:PORT, nats://TOKEN@HOST, or tls. Password and token are masked in answers.",
            missing="an address such as nats://HOST:4222",
            examples=["nats://nats.internal:4222"],
        ),
    ]
    subject: Annotated[
        str,
        described(
            "The subject; placeholders allowed.",
            min_length=1,
            max_length=1_024,
            missing="the subject that the message is published to",
            examples=["orders.created"],
        ),
    ]
    jetstream: Annotated[
        bool, described("Waits until a stream has stored it; `Nats-Msg-Id` is the Idempotency-Key.")
    ] = False
    reply: Annotated[
        bool, described("A request: the attempt waits, within its timeout, for the consumer's answer.")
    ] = False

    @property
    def destination(self) -> str:
        return self.subject

    def destination_problem(self, text: str) -> str | None:
        tokens = text.split(".")
        if not text.isprintable() or " " in text or "" in tokens:
            return "is no subject; expected words without blanks, parted by single dots"
        if "*" in tokens or ">" in tokens:
            return "has a wildcard; expected the one subject that the message is published to"
        return None

    @property
    def awaits_reply(self) -> bool:
        return self.reply


class RedisMessage(BrokerMessage, frozen=True, kw_only=True):
    """Added to a stream of Redis (XADD), or published on a channel (PUBLISH)."""

    noun: ClassVar[str] = "a Redis message"

    url: Annotated[
        _Url,
        described(
            "redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss. The password is masked in answers.",
            missing="an address such as redis://HOST:6379/0",
            examples=["redis://redis.internal:6379/0"],
        ),
    ]
    stream: Annotated[
        str | None,
        described(
            "The stream that it is added to, the body in the field `payload` and each header in one of its name;"
            " placeholders allowed.",
            min_length=1,
            max_length=1_024,
            examples=["orders"],
        ),
    ] = None
    channel: Annotated[
        str | None,
        described(
            "The channel that it is published on, without headers; placeholders allowed.",
            min_length=1,
            max_length=1_024,
        ),
    ] = None
    maxlen: Annotated[
        int | None, described("The stream is cut to about this many entries.", ge=0, le=2**53 - 1, examples=[10000])
    ] = None

    @property
    def destination(self) -> str:
        return self.stream or self.channel or ""

    @property
    def has_headers(self) -> bool:
        return self.stream is not None


class MqttVersion(enum.StrEnum):
    V5 = "5"
    V311 = "3.1.1"


class MqttMessage(BrokerMessage, frozen=True, kw_only=True):
    """Published to a topic of MQTT. With QoS 1 and 2 it is a success when the broker has acknowledged it."""

    noun: ClassVar[str] = "an MQTT message"

    url: Annotated[
        _Url,
        described(
            "mqtt://USER:PASSWORD@HOST:PORT, or mqtts. The password is masked in answers.",
            missing="an address such as mqtt://HOST:1883",
            examples=["mqtt://mqtt.internal:1883"],
        ),
    ]
    topic: Annotated[
        str,
        described(
            "The topic; placeholders allowed.",
            min_length=1,
            max_length=1_024,
            missing="the topic that the message is published to",
            examples=["plant/line1/orders"],
        ),
    ]
    qos: Annotated[int, described("0: sent. 1: acknowledged. 2: delivered to the broker exactly once.", ge=0, le=2)] = 1
    retain: Annotated[bool, described("The broker keeps it for those who subscribe later.")] = False
    version: Annotated[MqttVersion, described("Of the protocol; 3.1.1 has no headers.")] = MqttVersion.V5

    @property
    def destination(self) -> str:
        return self.topic

    @property
    def has_headers(self) -> bool:
        return self.version is MqttVersion.V5

    def destination_problem(self, text: str) -> str | None:
        if "#" in text or "+" in text:
            return "has a wildcard; expected the one topic that the message is published to"
        return super().destination_problem(text)


def destination_field(message: BrokerMessage) -> str:
    """The name of the field that says where at the broker it goes."""
    match message:
        case AmqpMessage():
            return "routing_key"
        case NatsMessage():
            return "subject"
        case RedisMessage():
            return "stream" if message.stream is not None else "channel"
        case _:
            return "topic"


# Addresses


class BrokerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's URL, taken apart. `user`, `password` and `path` are decoded."""

    scheme: str
    host: str
    port: int
    is_tls: bool
    user: str | None = None
    password: str | None = None
    path: str = ""

    @property
    def shown(self) -> str:
        """For messages: without its credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


_SCHEMES: Final[Mapping[str, tuple[int, bool]]] = {
    "amqp": (5672, False),
    "amqps": (5671, True),
    "nats": (4222, False),
    "tls": (4222, True),
    "redis": (6379, False),
    "rediss": (6379, True),
    "mqtt": (1883, False),
    "mqtts": (8883, True),
}
"""The usual port of each, and whether it is TLS."""

SCHEMES_OF: Final[Mapping[str, tuple[str, str]]] = {
    "AMQP": ("amqp", "amqps"),
    "NATS": ("nats", "tls"),
    "REDIS": ("redis", "rediss"),
    "MQTT": ("mqtt", "mqtts"),
}


def read_address(url: str) -> BrokerAddress:
    """Raises ValueError, in words that do not repeat the URL: it may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        user = None if parts.username is None else unquote(parts.username, errors="strict")
        password = None if parts.password is None else unquote(parts.password, errors="strict")
        path = unquote(parts.path[1:], errors="strict")
    except (ValueError, UnicodeError):
        raise ValueError("a URL with a host, and a port from 1 to 65535") from None
    if parts.scheme not in _SCHEMES or not host or port == 0:
        raise ValueError("a URL with a host, and a port from 1 to 65535")
    if any(not each.isprintable() for each in (host, user or "", password or "", path)) or " " in host:
        raise ValueError("a URL without spaces and control characters")
    if parts.query or parts.fragment:
        raise ValueError("a URL without a query and a fragment")
    usual, is_tls = _SCHEMES[parts.scheme]
    return BrokerAddress(
        scheme=parts.scheme,
        host=host,
        port=port or usual,
        is_tls=is_tls,
        user=user or None,
        password=password,
        path=path,
    )


def origin_of(url: str) -> Any:
    """What must be the same for a secret to be kept: scheme, host and port, or the text of a URL that cannot be read."""
    try:
        found = read_address(url)
    except ValueError:
        return url
    return found.scheme, found.host, found.port
