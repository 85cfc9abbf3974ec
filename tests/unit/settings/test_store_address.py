"""Addresses of stores: hosts, parameters, and what is refused with a line that names it."""

from __future__ import annotations

import pytest

from noonbell.errors import SettingsError
from noonbell.settings import load
from noonbell.settings.kinds import UnusableAddress, check_parameters, parse_server_address
from noonbell.stores import open_store


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("postgresql://u@h1:1,h2:2/db", (("h1", 1), ("h2", 2))),
        ("postgresql://u:p%40w@h1,h2/db", (("h1", 5432), ("h2", 5432))),
        ("postgresql://u@[::1]:7,[fd00::2]/db", (("::1", 7), ("fd00::2", 5432))),
        ("postgresql://u@/db?host=h1,h2&port=1,2&target_session_attrs=read-write", (("h1", 1), ("h2", 2))),
        ("postgresql:///db?host=/var/run/postgresql", (("/var/run/postgresql", 5432),)),
        ("postgresql:///db", ()),
        ("mysql://u@h1:1,h2/db", (("h1", 1), ("h2", 3306))),
        ("mariadb://u@h1/db?ssl_ca=%2Fca.pem", (("h1", 3306),)),
    ],
)
def test_the_hosts_of_an_address_are_read_in_their_order(address: str, hosts: tuple[tuple[str, int], ...]):
    assert parse_server_address(address).hosts == hosts


def test_the_parts_of_an_address_are_unquoted():
    found = parse_server_address("mysql://a%40b:p%2F%40@h/d%20b?ssl-mode=DISABLED")
    assert (found.user, found.password, found.database) == ("a@b", "p/@", "d b")
    assert found.parameters == {"ssl-mode": "DISABLED"}


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("postgresql://u:hunter2@h/db?sslmod=require", "'sslmod'"),
        ("postgresql://u:hunter2@h/db?connect_timeout=3&foo=1", "'connect_timeout', 'foo'"),
        ("postgresql://u:hunter2@h/db?target_session_attrs=standby", "target_session_attrs 'standby'"),
        ("postgresql://u:hunter2@h1,,h2/db", "empty entry"),
        ("postgresql://u:hunter2@h:70000/db", "70000"),
        ("postgresql://u@/db?host=h1,h2,h3&port=1,2&password=hunter2", "3 hosts and 2 ports"),
        ("mysql://u:hunter2@h/db?parseTime=True", "'parsetime'"),
        ("sqlite:///a.db?mode=ro", "'mode'"),
        ("memory://?x=1", "'x'"),
    ],
)
def test_what_an_address_cannot_have_is_named_and_passwords_are_not_repeated(address: str, says: str):
    with pytest.raises(UnusableAddress) as refused:
        check_parameters(address)
    assert says in str(refused.value)
    with pytest.raises(SettingsError) as of_settings:
        load([], {"NOONBELL_STORE__URL": address}, {})
    assert says in str(of_settings.value)
    assert "store.url" in str(of_settings.value)
    assert "hunter2" not in f"{refused.value}{of_settings.value}"
    with pytest.raises(SettingsError, match=r"store\.url"):
        open_store(address)


def test_a_file_may_have_a_question_mark_in_its_name():
    check_parameters("sqlite:///what%3F.db")
