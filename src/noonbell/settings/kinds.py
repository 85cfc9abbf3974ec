"""What a setting takes: each kind reads a value as it stands in a file, a variable or a flag, or says what it takes.

Addresses of stores are read here too: their hosts, and the parameters that each kind of database takes after the `?`.

`postgresql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?NAME=VALUE`. A parameter that would have no effect is refused: who wrote
`?ssl-ca=FILE` believes that the connection is encrypted.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from noonbell.masking import mask_addresses


@dataclass(frozen=True, slots=True)
class SettingKind:
    takes: str
    """In words, for the message and the reference: `a whole number from 0 to 65535`."""
    read: Callable[[Any], Any]
    """The value in its own type. ValueError where it is none; what it has read before, it reads again unchanged."""
    write: Callable[[Any], Any] = lambda value: value
    """As it would stand in a file."""


_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})
_NOTHING = frozenset({"", "null", "none"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWNED_HEADERS = frozenset({"host", "content-length", "transfer-encoding"})


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(char) < 32 for char in value):
        raise ValueError
    return value.strip()


text = SettingKind("a single-line text", _read_text)


def sql_name(most: int) -> SettingKind:
    """A name that every database takes without quotes and stores as it is."""

    def read(value: Any) -> str:
        name = value.strip() if isinstance(value, str) else ""
        if len(name) > most or not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
            raise ValueError
        return name

    return SettingKind(f"up to {most} lower-case letters, digits and underscores, a digit not first", read)


def number(least: int, most: int) -> SettingKind:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return SettingKind(f"a whole number from {least} to {most}", read)


def fraction(least: float, most: float) -> SettingKind:
    def read(value: Any) -> float:
        found = float(_text_of(value))
        if not least <= found <= most:
            raise ValueError
        return found

    return SettingKind(f"a number from {least:.16g} to {most:.16g}", read)


def _read_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError


boolean = SettingKind("true or false", _read_boolean)


def _read_switch(value: Any) -> bool | None:
    if value is None or (isinstance(value, str) and value.strip().lower() == "auto"):
        return None
    return _read_boolean(value)


switch = SettingKind("auto, true or false", _read_switch, lambda value: "auto" if value is None else value)
"""Three ways: None stands for `auto`."""


def choice(*words: str) -> SettingKind:
    def read(value: Any) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in words:
            raise ValueError
        return word

    return SettingKind(f"{', '.join(words[:-1])} or {words[-1]}", read)


def seconds_of(value: Any) -> float:
    """10, 10.0, "10", "10s", "500ms", "5m", "1h30m" → seconds."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - one error for all that cannot be read
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004
    words = value.replace(" ", "").lower()
    if _DURATION.fullmatch(words):
        return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(words))
    return float(words)


def duration_text(seconds: float) -> str:
    if seconds and seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def duration(least: float, most: float = 366 * 86_400.0) -> SettingKind:
    def read(value: Any) -> float:
        seconds = seconds_of(value)
        if not math.isfinite(seconds) or not least <= seconds <= most:
            raise ValueError
        return seconds

    limits = f"{duration_text(least)} or more" if least else "0 or more"
    return SettingKind(
        f"a duration of {limits}, such as 10s, 500ms or 5m; a bare number is seconds", read, duration_text
    )


def optional(kind: SettingKind) -> SettingKind:
    """The kind, or nothing: null, none or an empty text."""

    def read(value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return None
        return kind.read(value)

    return SettingKind(f"{kind.takes}; or null", read, lambda value: None if value is None else kind.write(value))


def _read_web_address(value: Any) -> str:
    address = _read_text(value)
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    _ = parts.port  # ValueError for one out of range
    return address.rstrip("/")


web_address = SettingKind("an address such as https://cron.example.com, without ? or #", _read_web_address)


def _read_store_address(value: Any) -> str:
    address = _read_text(value)
    scheme, mark, rest = address.partition("://")
    if not mark or scheme not in ("sqlite", "postgresql", "postgres", "mysql", "mariadb", "memory"):
        raise ValueError
    if scheme == "sqlite" and not rest.removeprefix("/"):
        raise ValueError
    check_parameters(address)
    if scheme not in ("sqlite", "memory") and not urlsplit(address).path.strip("/"):
        raise ValueError
    return address


def sqlite_file(address: str) -> str | None:
    """The file of a SQLite store; None for any other."""
    return unquote(address.removeprefix("sqlite://").removeprefix("/")) if address.startswith("sqlite:") else None


def shown_store_address(address: str) -> str:
    """Without passwords; of SQLite, one that names the same file in every folder."""
    file = sqlite_file(address)
    return mask_addresses(address) if file is None else f"sqlite:///{str(Path(file).absolute()).replace('%', '%25')}"


store_address = SettingKind(
    "sqlite:///FILE, postgresql://USER:PASSWORD@HOST:PORT/DATABASE (or HOST:PORT,HOST:PORT), mysql://… or memory://",
    _read_store_address,
)


def _read_wakeup_address(value: Any) -> str:
    address = _read_text(value)
    if address.startswith(("postgresql://", "postgres://")):
        return str(_read_store_address(address))
    parts = urlsplit(address)
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.path):
        raise ValueError
    if parts.scheme != "unix":
        _ = parts.port
    return address


wakeup_address = SettingKind(
    "redis://USER:PASSWORD@HOST:PORT/0, rediss://…, unix:///SOCKET, or postgresql://… past a pooler",
    _read_wakeup_address,
)


def parse_udp_address(text: str) -> tuple[str, int | None]:
    """The IP address, and the port where one is given. ValueError for anything else, and for no address in particular."""
    host, port = text, None
    if "]:" in text or text.count(":") == 1:
        host, _, given = text.rpartition(":")
        port = int(given)
        if not 1 <= port <= 65_535:
            raise ValueError(port)
    address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    if address.is_unspecified or address.is_multicast:
        raise ValueError(host)
    return str(address), port


def _read_udp_address(value: Any) -> str:
    text = _read_text(value)
    parse_udp_address(text)
    return text


udp_address = SettingKind("an IP address, or ADDRESS:PORT", _read_udp_address)


def _as_items(value: Any) -> list[Any]:
    if isinstance(value, str):
        value = (
            json.loads(value) if value.lstrip().startswith("[") else [part for part in value.split(",") if part.strip()]
        )
    if not isinstance(value, list | tuple):
        raise ValueError  # noqa: TRY004 - one error for all that cannot be read
    return list(value)


def _read_networks(value: Any) -> tuple[str, ...]:
    found = [_read_text(item) for item in _as_items(value)]
    return tuple(str(ipaddress.ip_network(item, strict=False)) for item in found)


networks = SettingKind("a list of networks such as [10.0.0.0/8, '::1']", _read_networks, list)


_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


def _read_host_names(value: Any) -> tuple[str, ...]:
    found = tuple(_read_text(item).lower().rstrip(".") for item in _as_items(value))
    if any(name != "*" and not _HOST_NAME.fullmatch(name) for name in found):
        raise ValueError
    return found


host_names = SettingKind(
    "a list of host names such as [cron.example.com], without a scheme or a port; or ['*']", _read_host_names, list
)


def words(*known: str) -> SettingKind:
    def read(value: Any) -> tuple[str, ...]:
        found = tuple(_read_text(item) for item in _as_items(value))
        if any(word not in known for word in found):
            raise ValueError
        return found

    return SettingKind(f"a list of {', '.join(known)}", read, list)


def _as_mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return dict(value)


def _text_of(given: Any) -> str:
    """Of a text or a number. A bare yes in YAML is a boolean: better refused than sent as "True"."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError  # noqa: TRY004 - one error for all that cannot be read
    return str(given)


def _read_headers(value: Any) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for name, given in _as_mapping(value).items():
        content = _text_of(given)
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWNED_HEADERS:
            raise ValueError
        if any(ord(char) < 32 or ord(char) == 127 for char in content):
            raise ValueError
        headers[name] = content
    return headers


headers = SettingKind(
    "a mapping of header names to texts of one line (not Host, Content-Length, Transfer-Encoding)", _read_headers, dict
)
mapping = SettingKind("a mapping", _as_mapping, dict)

SERVICE_NAME = r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?"
"""A pattern: what stands between `service://` and the path."""


def _read_services(value: Any) -> Mapping[str, str]:
    found = {name: _read_web_address(address) for name, address in _as_mapping(value).items()}
    if any(not re.fullmatch(SERVICE_NAME, name) or "@" in urlsplit(url).netloc for name, url in found.items()):
        raise ValueError
    return found


services = SettingKind(
    "a mapping of names (lower-case letters, digits, and . _ - inside) to addresses such as"
    " https://billing.internal:8443/api, without user, ? or #",
    _read_services,
    dict,
)


def _read_labels(value: Any) -> Mapping[str, str]:
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        value = {name.strip(): text.strip() if equals else _refuse() for name, equals, text in pairs}
    found: dict[str, str] = {}
    for name, given in _as_mapping(value).items():
        text = _text_of(given)
        if not 1 <= len(name) <= 255 or "=" in name or len(text) > 255 or not f"{name}{text}".isprintable():
            raise ValueError
        found[name] = text
    return found


labels = SettingKind("a mapping of names to texts, or NAME=VALUE,NAME=VALUE", _read_labels, dict)


def _read_mappings(value: Any) -> tuple[dict[str, Any], ...]:
    return tuple(_as_mapping(item) if isinstance(item, Mapping) else _refuse() for item in _as_items(value))


def _refuse() -> Any:
    raise ValueError


mappings = SettingKind("a list of mappings", _read_mappings, list)


POSTGRES_PARAMETERS: Final = (
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "krbsrvname",
    "gsslib",
    "options",
)
"""What the driver and the server take. It would send any other name to the server as a setting of the session."""
MYSQL_PARAMETERS: Final = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key")
_WRITABLE: Final = ("any", "read-write", "primary")
_PORTS: Final = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306}

Host = tuple[str, int]


class UnusableAddress(ValueError):
    """Says what is wrong with an address, without repeating it: it may hold a password."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    hosts: tuple[Host, ...]
    """In the order of the address; empty where it leaves the host to the driver."""
    user: str
    password: str
    database: str
    parameters: Mapping[str, str]


def check_parameters(address: str) -> None:
    """Raises UnusableAddress for parameters that the kind of store does not take."""
    scheme, _, rest = address.partition("://")
    if scheme in _PORTS:
        parse_server_address(address)
    elif names := [name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)]:
        raise UnusableAddress(
            f"has {_listed(names)}; expected no parameters after the ? (a ? in the name of a file is written %3F)"
        )


def parse_server_address(address: str) -> ServerAddress:
    """The parts of an address of PostgreSQL or MySQL. ValueError where it cannot be read."""
    scheme, _, rest = address.partition("://")
    whole, _, query = rest.partition("#")[0].partition("?")
    authority, _, path = whole.partition("/")
    info, _, listed = authority.rpartition("@")
    user, _, password = info.partition(":")
    parameters = _parameters(scheme, query)
    default = _PORTS[scheme]
    hosts = tuple(_host(each, default) for each in listed.split(",")) if listed else ()
    if not hosts and scheme.startswith("postgres"):
        hosts = _hosts_of_parameters(parameters, default)
    if len(hosts) > 1 and any(not host for host, _ in hosts):
        raise UnusableAddress("has an empty entry in its list of hosts")
    return ServerAddress(hosts, unquote(user), unquote(password), unquote(path), parameters)


def _parameters(scheme: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    is_postgres = scheme.startswith("postgres")
    if not is_postgres:
        given = {name.replace("_", "-").lower(): value for name, value in given.items()}
    known = (*POSTGRES_PARAMETERS, "database") if is_postgres else MYSQL_PARAMETERS
    if unknown := [name for name in given if name not in known]:
        takes = POSTGRES_PARAMETERS if is_postgres else MYSQL_PARAMETERS
        more = "; write a session setting as options=-c%20NAME=VALUE" if is_postgres else ""
        raise UnusableAddress(f"has {_listed(unknown)} after the ?; expected {', '.join(takes)}{more}")
    wanted = given.get("target_session_attrs", "any")
    if wanted not in _WRITABLE:
        raise UnusableAddress(f"has target_session_attrs {wanted!r}; expected {', '.join(_WRITABLE)}: Noonbell writes")
    return given


def _host(text: str, default: int) -> Host:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise UnusableAddress("has an IPv6 address followed by something other than a port")
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    number = int(port) if port else default
    if not 1 <= number <= 65_535:
        raise UnusableAddress(f"has port {number}; expected 1 to 65535")
    return unquote(host), number


def _hosts_of_parameters(parameters: Mapping[str, str], default: int) -> tuple[Host, ...]:
    """`?host=h1,h2&port=p1,p2`: as many ports as hosts, or one for all."""
    hosts = parameters["host"].split(",") if parameters.get("host") else []
    ports = [int(port or default) for port in parameters["port"].split(",")] if parameters.get("port") else [default]
    if len(ports) == 1:
        ports *= len(hosts)
    if hosts and len(ports) != len(hosts):
        raise UnusableAddress(f"has {len(hosts)} hosts and {len(ports)} ports")
    return tuple(zip(hosts, ports, strict=False))


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
