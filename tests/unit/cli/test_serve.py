"""Before a node starts: who could reach it, what it can listen on, what it has to say."""

from __future__ import annotations

import logging
import socket

import pytest

from noonbell.errors import AlreadyExists, SettingsError
from noonbell.model.target_kind import OWN_QUEUES
from noonbell.settings import (
    AuthSettings,
    CallbackSettings,
    ExecutorSettings,
    JobSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
from noonbell.wiring import asks_for_tokens, assembled, is_loopback, listen, make_store, warn


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_nobody_is_asked_unless_it_is_written_out(host):
    assert is_loopback(host)
    assert not asks_for_tokens(Settings(server=ServerSettings(host=host)))
    assert asks_for_tokens(Settings(server=ServerSettings(host=host), auth=AuthSettings(enabled=True)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "no.such.host.invalid"])
def test_elsewhere_everybody_is_asked_unless_it_is_written_out(host):
    assert not is_loopback(host)
    assert asks_for_tokens(Settings(server=ServerSettings(host=host)))
    assert not asks_for_tokens(Settings(server=ServerSettings(host=host), auth=AuthSettings(enabled=False)))


def test_a_taken_port_is_named_with_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AlreadyExists, match=rf"127\.0\.0\.1:{port}.*--port"):
            listen(Settings(server=ServerSettings(port=port)))


def test_port_zero_takes_a_free_one():
    with listen(Settings(server=ServerSettings(port=0))) as listener:
        assert listener.getsockname()[1] > 0


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(SettingsError, match=r"server\.host"):
        listen(Settings(server=ServerSettings(host="203.0.113.7", port=0), auth=AuthSettings(enabled=False)))


def test_the_pool_has_the_size_of_the_settings():
    store = make_store(Settings(store=StoreSettings(url="postgresql://h/d", pool_size=3)))
    assert store._connections == 3


def test_callbacks_that_cannot_come_back_are_told(caplog):
    with caplog.at_level(logging.WARNING):
        warn(Settings(server=ServerSettings(host="0.0.0.0"), callback=CallbackSettings(base_url="http://x.example")))
        assert caplog.messages == []
        warn(Settings(server=ServerSettings(host="0.0.0.0")))
    assert "callback.base_url" in caplog.text


def test_a_server_that_others_reach_without_a_token_is_told(caplog):
    callback = CallbackSettings(base_url="http://x.example")
    with caplog.at_level(logging.WARNING):
        warn(Settings(server=ServerSettings(host="127.0.0.1"), auth=AuthSettings(enabled=False), callback=callback))
        warn(Settings(server=ServerSettings(host="0.0.0.0"), auth=AuthSettings(enabled=True), callback=callback))
        assert caplog.messages == []
        warn(Settings(server=ServerSettings(host="0.0.0.0"), auth=AuthSettings(enabled=False), callback=callback))
    assert "auth.enabled is false and server.host is 0.0.0.0" in caplog.text


async def test_parts_are_left_out_as_asked():
    settings = Settings(store=StoreSettings(url="memory://"))
    async with assembled(settings, scheduler=False, worker=False) as parts:
        assert parts.node.planner is None
        assert parts.node.workers == ()
    async with assembled(settings) as parts:
        assert parts.node.planner is not None
        calls, jobs = parts.node.workers
        assert (calls.queues, calls.in_flight.concurrency) == (tuple(OWN_QUEUES), 16)
        assert (jobs.queues, jobs.in_flight.concurrency) == (("default", "system"), 4)


async def test_without_a_place_for_jobs_there_is_no_worker_for_them():
    settings = Settings(store=StoreSettings(url="memory://"), jobs=JobSettings(worker_concurrency=0))
    async with assembled(settings) as parts:
        assert [worker.queues for worker in parts.node.workers] == [tuple(OWN_QUEUES)]


async def test_the_worker_has_the_size_of_the_settings():
    settings = Settings(store=StoreSettings(url="memory://"), executor=ExecutorSettings(worker_pool_size=3))
    async with assembled(settings) as parts:
        assert parts.node.workers[0].in_flight.concurrency == 3
