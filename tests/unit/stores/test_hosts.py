"""Which of several hosts is worked on, by what each of them says."""

from __future__ import annotations

import asyncio
import logging

import asyncpg
import pytest

from noonbell.errors import StoreUnavailable
from noonbell.stores import hosts, mysql, postgres
from noonbell.stores.hosts import HostFinder, HostState, choose

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def test_the_only_one_that_takes_writes_is_taken():
    states = [HostState(A, "is a standby"), HostState(B, server="s"), HostState(C, "refused")]
    assert choose(states).host == B


def test_without_any_it_is_said_what_each_of_them_said():
    with pytest.raises(
        StoreUnavailable, match=r"none of the hosts accepts writes: a:1 \(is a standby\), b:2 \(refused\)"
    ):
        choose([HostState(A, "is a standby"), HostState(B, "refused")])


def test_the_highest_timeline_is_taken_and_the_other_is_named(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "noonbell.store"):
        chosen = choose([HostState(A, "", 1, "s", "x"), HostState(B, "", 2, "t", "x")], before=A)
    assert chosen.host == B
    assert "a:1 takes writes on timeline 1, beside b:2 on timeline 2" in caplog.text


@pytest.mark.parametrize(
    "states",
    [
        [HostState(A, "", 2, "s", "x"), HostState(B, "", 2, "t", "x")],  # promoted twice
        [HostState(A, "", 1, "s", "x"), HostState(B, "", 2, "t", "y")],  # no copies of one database
        [HostState(A, "", 0, "s"), HostState(B, "", 0, "t")],  # MySQL without a cluster
    ],
)
def test_two_that_take_writes_are_refused(states: list[HostState]):
    with pytest.raises(StoreUnavailable, match="two hosts accept writes: a:1 and b:2"):
        choose(states)


def test_two_names_of_one_server_are_one():
    assert choose([HostState(A, "", 1, "s", "x"), HostState(B, "", 1, "s", "x")]).host == A


def test_of_a_cluster_with_several_writers_the_one_before_is_kept():
    states = [HostState(each, "", 0, each[0], "x", shares_writes=True) for each in (A, B)]
    assert choose(states).host == A
    assert choose(states, before=B).host == B


def test_a_timeline_below_the_one_that_was_seen_is_refused():
    with pytest.raises(StoreUnavailable, match="timeline 1, but this node has worked on timeline 2"):
        choose([HostState(A, "", 1, "s", "x"), HostState(B, "refused")], timeline=2)


async def test_callers_who_lose_the_same_host_share_one_look():
    looks: list[tuple[str, int]] = []

    async def look(host: tuple[str, int]) -> HostState:
        looks.append(host)
        await asyncio.sleep(0)
        return HostState(host, "" if host == (B if len(looks) > 2 else A) else "refused")

    finder = HostFinder([A, B], look)
    assert await finder.find(None) == A
    assert await asyncio.gather(*(finder.find(A) for _ in range(5))) == [B] * 5
    assert len(looks) == 4


async def test_an_error_of_a_host_is_what_it_is_refused_for():
    async def look(host: tuple[str, int]) -> HostState:
        raise OSError(f"{host[0]} is away")

    with pytest.raises(StoreUnavailable, match=r"a:1 \(a is away\), b:2 \(b is away\)"):
        await HostFinder([A, B], look).find(None)


@pytest.mark.parametrize(
    ("kind", "said", "way"),
    [
        ("InvalidPasswordError", 'password authentication failed for user "ann"', "ALTER ROLE NAME PASSWORD"),
        ("InvalidAuthorizationSpecificationError", 'role "ann" does not exist', "createuser NAME"),
        (
            "InvalidAuthorizationSpecificationError",
            'no pg_hba.conf entry for host "10.0.0.1", user "ann"',
            "by a line in the server's pg_hba.conf",
        ),
        ("InvalidCatalogNameError", 'database "bell" does not exist', "createdb NAME"),
    ],
)
def test_whom_postgresql_does_not_let_in_learns_what_to_do(kind, said, way):
    found = postgres._translated(getattr(asyncpg, kind)(said))
    assert isinstance(found, StoreUnavailable)
    assert found.message.startswith(f"PostgreSQL: {said}; ")
    assert way in found.message
    assert "store.url" in found.message


@pytest.mark.parametrize(
    ("code", "said", "way"),
    [
        (1044, "Access denied for user 'ann'@'%' to database 'bell'", "GRANT ALL ON DATABASE.* TO"),
        (
            1045,
            "Access denied for user 'ann'@'localhost' (using password: YES)",
            "check user and password in store.url",
        ),
        (1698, "Access denied for user 'ann'@'localhost'", "CREATE USER"),
        (1049, "Unknown database 'bell'", "make it first: CREATE DATABASE NAME"),
    ],
)
def test_whom_mysql_does_not_let_in_learns_what_to_do(code, said, way):
    found = mysql._translated(mysql.mysql_errors.OperationalError(code, said))
    assert isinstance(found, StoreUnavailable)
    assert found.message.startswith(f"MySQL: {said} ({code}); ")
    assert way in found.message


def test_a_refused_connection_is_said_in_words_and_with_the_address_once():
    said = "[Errno 111] Connect call failed ('127.0.0.1', 5432)"
    told = hosts.unreachable([("127.0.0.1", 5432)], said)
    assert told == (
        "no connection to 127.0.0.1:5432: connection refused, nothing listens there;"
        " is the server running, and is the address right?"
    )
    assert "Name or service not known" in hosts.unreachable([("x", 1)], "[Errno -2] Name or service not known")
