"""What the declarations of a task's fields cannot say of its target: addresses, headers, commands and messages to brokers.

Calls of gRPC have `grpc_fields`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from noonbell.errors import InvalidArgument, Sentence
from noonbell.fields import shortened
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import ReadContext, shown
from noonbell.model.broker import SCHEMES_OF, BrokerMessage, NatsMessage, RedisMessage, destination_field, read_address
from noonbell.model.service_url import SERVICE_FORM, is_service_url, service_name
from noonbell.model.target_kind import MQTT, NATS, REDIS, TargetKind
from noonbell.sealing import is_sealed
from noonbell.service.secrets import MASK, credentials

OWNED_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding"})
"""What the client that sends the request must set by itself."""
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "expect", "http2-settings", "keep-alive", "te", "trailer", "upgrade"}
)


def is_of_the_connection(header: str) -> bool:
    """Whether a header speaks to the next hop and not to the target: a proxy may drop others because of it.

    Some servers take an underscore for a dash, so such a spelling of what the client sets is one of these as well.
    """
    name = header.lower()
    dashed = name.replace("_", "-")
    is_disguised = dashed != name and dashed in OWNED_HEADERS
    return dashed in _OF_THE_CONNECTION or dashed.startswith("proxy-") or is_disguised


LONGEST_VALUE: Final = 8_192
LONGEST_ADDRESS: Final = 2_048

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}")

CheckTemplate = Callable[[str], None]
"""Raises InvalidArgument for a text with an unknown placeholder."""


def check_http(values: Mapping[str, Any], at: ReadContext, check_template: CheckTemplate) -> None:
    """What the schema of a task cannot say of its HTTP target: the address, headers, placeholders, secrets."""
    url, body, secret = values.get("target_url"), values.get("body_template"), values.get("secret")
    if not url and at.name_of("target_url") not in at.problems.found:
        at.wrong("target_url", "is missing; expected an http or https URL, a job_type for a job, or steps for a flow")
    elif url:
        problem = url_problem(url)
        if problem is not None:
            at.expected("target_url", url, problem)
        _check_template(at, "target_url", url, check_template)
    _check_headers(values.get("headers") or {}, at.inside("headers"), check_template)
    if body is not None:
        _check_template(at, "body_template", body, check_template)
    if (cancel_url := values.get("cancel_url")) is not None:
        _check_cancel_url(cancel_url, at)
    if secret == MASK:
        at.wrong("secret", "is the mask shown in place of secrets; expected the secret itself, or nothing")
    elif secret is not None and is_sealed(secret):
        at.wrong("secret", "is encrypted, and no key in secrets.key_file decrypts it; expected the secret itself")


def _check_cancel_url(url: str, at: ReadContext) -> None:
    if "{{" in url:
        at.wrong(
            "cancel_url", "has a placeholder, but is called as it is; the notice itself names the run and its task"
        )
    elif (problem := url_problem(url)) is not None:
        at.expected("cancel_url", url, problem)


MOST_ARGUMENTS: Final = 1_000
LONGEST_COMMAND: Final = 65_536
"""Bytes of a command with all its arguments. A single argument may have up to 128 kB on Linux."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")


def check_command(values: dict[str, Any], at: ReadContext, _check_template: CheckTemplate) -> None:
    """What the schema of a task cannot say of its command. Whether a worker may run it is decided by the worker's own file."""
    command = values.get("command")
    if command is None:
        at.wrong("command", "is missing; expected a program and its arguments, or a text with `shell`")
    elif (problem := _command_problem(command, is_shell=values.get("shell") is True)) is not None:
        at.wrong("command", problem)
    elif not isinstance(command, str):
        values["command"] = list(command)
    cwd, user = values.get("cwd"), values.get("user")
    if cwd is not None and not is_plain_path(cwd):
        at.expected("cwd", cwd, "an absolute path without `.`, `..` and doubled slashes")
    if user is not None and _USER.fullmatch(user) is None:
        at.expected("user", user, "the name of a user")
    _check_env(values.get("env") or {}, at.inside("env"))


def is_plain_path(path: str) -> bool:
    """Whether a path is absolute and says the same in no other words."""
    return path.startswith("/") and posixpath.normpath(path) == path and not path.startswith("//")


def _command_problem(command: Any, *, is_shell: bool) -> str | None:
    words = [command] if isinstance(command, str) else command
    if is_shell and not isinstance(command, str):
        return "is no text; with `shell` it is one text, which the shell reads"
    if not is_shell and isinstance(command, str):
        return "is a text; expected a list, the program and each argument, or `shell: true` beside it"
    if not isinstance(words, list | tuple) or not 1 <= len(words) <= MOST_ARGUMENTS:
        return Sentence("is {value}; expected a list of 1 to {most} texts", value=shown(command), most=MOST_ARGUMENTS)
    if not all(isinstance(word, str) for word in words):
        return "has an argument that is no text"
    for number, word in enumerate(words):
        problem = unfit(word, lines=True)
        if problem is not None:
            return (
                problem
                if len(words) == 1
                else Sentence("{problem} of argument {number}", problem=problem, number=number)
            )
    if sum(len(word.encode()) + 1 for word in words) > LONGEST_COMMAND:
        return Sentence(
            "has more than {most} bytes; give the rest as payload, which is its stdin", most=LONGEST_COMMAND
        )
    if is_shell:
        return None if command.strip() else "is empty; expected what the shell shall do"
    if is_plain_path(words[0]):
        return None
    return Sentence("names {value}; expected the program by its absolute path", value=shown(words[0]))


def _check_env(env: Mapping[str, Any], at: ReadContext) -> None:
    seen: set[str] = set()
    for name, value in env.items():
        if _VARIABLE.fullmatch(name) is None:
            at.wrong(name[:60], "is not the name of a variable")
        elif name.startswith("NOONBELL_"):
            at.wrong(name, "is set for each run; leave it out")
        elif name.lower() in seen:
            at.wrong(name, "is listed twice; names must differ in more than case")
        elif problem := value_problem(value, LONGEST_VARIABLE) or unfit(value, lines=True):
            at.wrong(name, problem)
        seen.add(name.lower())


LONGEST_VARIABLE: Final = 32_768


def is_web_address(url: str) -> bool:
    """Whether it can be called as it stands: http or https, with a host and without user and password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError for one out of range
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def url_problem(url: str) -> str | None:
    """What a target's URL should be and this one is not."""
    if is_service_url(url) and service_name(url) is None:
        return SERVICE_FORM
    filled = _PLACEHOLDER.sub("1", url)
    if any(blank in filled for blank in (" ", "\t", "\\")):
        return "a URL without spaces and backslashes; encode them"
    try:
        parts = urlsplit(filled)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "an http or https URL with a host, and a port from 0 to 65535"
    if parts.scheme not in ("http", "https", "service") or not host:
        if "://" in filled:
            return "an http or https URL with a host, or service://NAME/PATH"
        return "an http or https URL with a host, or service://NAME/PATH; it has to begin with http:// or https://"
    if "@" in parts.netloc:
        return "a URL without user and password; send them in the header Authorization, which is masked"
    return None


def service_problem(url: str, services: Mapping[str, str]) -> str | None:
    """What is wrong with the name of a service in a URL; None of any other URL."""
    name = service_name(url)
    if name is None or name in services:
        return None
    if not services:
        return Sentence("names the service {name}, which is not in executor.services; it is empty", name=repr(name))
    template = "names the service {name}, which is not in executor.services; expected one of {words}"
    return Sentence(template, name=repr(name), words=shortened(sorted(services)))


def check_http_headers(headers: Mapping[str, Any], at: ReadContext) -> None:
    """Of a request whose headers hold no placeholders."""
    _check_headers(headers, at, any_text)


def _check_headers(
    headers: Mapping[str, Any], at: ReadContext, check_template: CheckTemplate, *, is_http: bool = True
) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        problem = _header_problem(name, value, seen, is_http=is_http)
        if problem is not None:
            at.wrong(name[:60], problem)
        else:
            _check_template(at, name, value, check_template)


def _header_problem(name: Any, value: Any, seen: set[str], *, is_http: bool) -> str | None:
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        return "is not the name of a header"
    if is_http and (name.lower() in OWNED_HEADERS or is_of_the_connection(name)):
        return "is set by the client that sends the request; leave it out"
    if name.lower() in seen:
        return "is listed twice; names of headers are case-insensitive"
    seen.add(name.lower())
    if problem := value_problem(value):
        return problem
    return unfit(value.replace("\t", " "))


def value_problem(value: Any, most: int = LONGEST_VALUE) -> str | None:
    """What is wrong with the value of a header, of metadata or of a variable, any of which may be a secret."""
    if not isinstance(value, str) or len(value) > most:
        return Sentence("has a value that is not a text of at most {most} characters", most=most)
    if value == MASK:
        return "has the mask shown in place of secrets as its value; expected the value itself"
    if is_sealed(value):
        return "is encrypted, and no key in secrets.key_file decrypts it; expected the value itself"
    return None


def check_message(kind: TargetKind, values: Mapping[str, Any], at: ReadContext, check_template: CheckTemplate) -> None:
    """What the schema of a task cannot say of its message to a broker: the client, the address, headers, placeholders."""
    field = kind.named_by
    message: BrokerMessage | None = values.get(field)
    if kind.lacks_client():
        template = "requires a client that is not installed on this server: {command}"
        at.wrong(field, template, command=kind.how_to_install)
        return
    if message is None:
        if at.name_of(field) not in at.problems.found:
            template = "is missing; expected an object that says what a task of exec_type {kind} publishes"
            at.wrong(field, template, kind=kind.name)
        return
    inside = at.inside(field)
    has_more = any(name.startswith(f"{inside.path}.") for name in at.problems.found)
    problem = None if inside.name_of("url") in at.problems.found else _broker_url_problem(kind, message.url)
    if problem is not None:
        inside.wrong("url", problem)
    if has_more:
        return
    _check_headers(message.headers, inside.inside("headers"), check_template, is_http=False)
    _check_destination(message, inside, check_template)
    for name, wrong in _message_problems(message):
        inside.wrong(name, wrong)


def _broker_url_problem(kind: TargetKind, url: object) -> str | None:
    """What is wrong with the URL, in words that do not repeat it: it may hold a password."""
    schemes = SCHEMES_OF[kind.name]
    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST_ADDRESS:
        return Sentence("is wrong; expected a URL of at most {most} characters", most=LONGEST_ADDRESS)
    if is_sealed(credentials(url) or ""):
        return (
            "has sealed credentials, and no key of secrets.key_file opens them; expected user and password themselves"
        )
    try:
        address = read_address(url)
    except ValueError as error:
        return f"is wrong; expected {' or '.join(f'{scheme}://' for scheme in schemes)}, {error}"
    if address.scheme not in schemes:
        return Sentence("has the scheme {scheme}; expected {words}", scheme=address.scheme, words=" or ".join(schemes))
    if MASK in (address.password, address.user):
        return "has the mask shown in place of the password; expected the password itself"
    if kind is REDIS and not (address.path == "" or (address.path.isascii() and address.path.isdecimal())):
        return "has a path that is no number; expected that of a database, or none"
    if kind in (NATS, MQTT) and address.path:
        return "has a path; expected none"
    return None


def _check_destination(message: BrokerMessage, at: ReadContext, check_template: CheckTemplate) -> None:
    text, name = message.destination, destination_field(message)
    if not text:
        return
    _check_template(at, name, text, check_template)
    problem = message.destination_problem(_PLACEHOLDER.sub("1", text))
    if problem is not None:
        at.wrong(name, problem)


def _message_problems(message: BrokerMessage) -> Iterator[tuple[str, str]]:
    """What does not go together."""
    if message.callback and message.awaits_reply:
        yield "reply", "waits for the consumer, and so does callback; leave one of the two out"
    if not message.has_headers and message.callback:
        yield "callback", "needs headers, and a channel of Redis and MQTT 3.1.1 have none"
    if not message.has_headers and message.headers:
        yield "headers", "are not sent: a channel of Redis and MQTT 3.1.1 have none; leave them out"
    match message:
        case NatsMessage(jetstream=True, reply=True):
            yield "reply", "is the consumer's answer, and with jetstream the stream answers; leave one of the two out"
        case RedisMessage(stream=None, channel=None):
            yield "stream", "is missing; expected a stream, or a channel"
        case RedisMessage(stream=str(), channel=str()):
            yield "channel", "and stream are both there; leave one of the two out"
        case RedisMessage(channel=str(), maxlen=int()):
            yield "maxlen", "is for streams; leave it out"
        case _:
            pass


def _check_template(at: ReadContext, name: str, text: str, check_template: CheckTemplate) -> None:
    try:
        check_template(text)
    except InvalidArgument as error:
        at.wrong(name, error.message)


def any_text(text: str) -> None:
    del text
