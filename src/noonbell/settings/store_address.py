"""Addresses of stores: their hosts, and the parameters that each kind of database takes after the `?`.

`postgresql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?NAME=VALUE`. A parameter that would have no effect is refused: who wrote
`?ssl-ca=FILE` believes that the connection is encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

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
            f"has {_listed(names)}; takes no parameters after the ? (a ? in the name of a file is written %3F)"
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
        raise UnusableAddress("has a list of hosts with an empty place")
    return ServerAddress(hosts, unquote(user), unquote(password), unquote(path), parameters)


def _parameters(scheme: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    is_postgres = scheme.startswith("postgres")
    if not is_postgres:
        given = {name.replace("_", "-").lower(): value for name, value in given.items()}
    known = (*POSTGRES_PARAMETERS, "database") if is_postgres else MYSQL_PARAMETERS
    if unknown := [name for name in given if name not in known]:
        takes = POSTGRES_PARAMETERS if is_postgres else MYSQL_PARAMETERS
        more = "; a setting of the session is written options=-c%20NAME=VALUE" if is_postgres else ""
        raise UnusableAddress(f"has {_listed(unknown)} after the ?; takes {', '.join(takes)}{more}")
    wanted = given.get("target_session_attrs", "any")
    if wanted not in _WRITABLE:
        raise UnusableAddress(f"has target_session_attrs {wanted!r}; takes {', '.join(_WRITABLE)}: Noonbell writes")
    return given


def _host(text: str, default: int) -> Host:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise UnusableAddress("has an IPv6 address with something other than a port behind it")
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    number = int(port) if port else default
    if not 1 <= number <= 65_535:
        raise UnusableAddress(f"has port {number}; takes 1 to 65535")
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
