"""Ends of a process, wanted and not: nothing is lost, and it says what it does."""

from __future__ import annotations

import signal

import pytest

from acceptance.harness import until

pytestmark = pytest.mark.acceptance

SHORT = ("--config", "short.yaml")


@pytest.fixture
def short(tmp_path):
    """Work in hand gets half a second when the node stops."""
    (tmp_path / "short.yaml").write_text("server: {graceful_timeout: 500ms}")
    return SHORT


def test_a_stop_lets_running_work_end(nodes, sqlite_url, target):
    node = nodes.start(sqlite_url)
    run_id = node.trigger(node.create(name="a", target_url=target.url("/hold/a"), timeout_seconds=60))
    target.wait_for("/hold/a")
    node.send(signal.SIGTERM)
    until(lambda: "stopping" in node.log, "the node to say that it stops")
    assert node.is_running
    assert "stopping: 1 run that is still running may take 10 s; a second Ctrl-C or signal stops at once" in node.log
    target.release("a")
    assert node.wait_ended() == 0
    assert nodes.start(sqlite_url).run(run_id)["status"] == "SUCCESS"
    assert len(target.at("/hold/a")) == 1


def test_work_that_takes_too_long_is_handed_back_and_not_counted(nodes, sqlite_url, target, short):
    node = nodes.start(sqlite_url, *short)
    run_id = node.trigger(node.create(name="a", target_url=target.url("/hold/a"), timeout_seconds=60))
    target.wait_for("/hold/a")
    assert node.stop() == 0
    target.release("a")
    run = nodes.start(sqlite_url).wait_for_run(run_id, "SUCCESS")
    assert (run["attempt"], run["retry_count"]) == (1, 0)
    assert len(target.at("/hold/a")) == 2


def test_an_idle_node_stops_at_once(nodes, sqlite_url):
    node = nodes.start(sqlite_url)
    assert node.stop(4) == 0
    assert "stopping: no runs are running" in node.log


def test_a_second_signal_ends_it_at_once(nodes, sqlite_url, target):
    node = nodes.start(sqlite_url)
    node.trigger(node.create(name="a", target_url=target.url("/hold/a"), timeout_seconds=60))
    target.wait_for("/hold/a")
    node.send(signal.SIGTERM)
    until(lambda: "stopping" in node.log, "the node to say that it stops")

    def has_ended() -> bool:
        node.send(signal.SIGTERM)
        return not node.is_running

    until(has_ended, "a signal that is not taken for the first one")
    assert node.wait_ended(2) == 130
    assert "SIGTERM again" in node.log


def test_two_signals_of_the_same_moment_are_one(nodes, sqlite_url):
    """As `timeout` sends them: to the process, and to its group. One that is stopped gets both when it goes on."""
    node = nodes.start(sqlite_url)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        node.send(number)
    assert node.wait_ended() == 0
    assert "again" not in node.log


def test_waiting_runs_survive_a_stop(nodes, sqlite_url, target):
    node = nodes.start(sqlite_url, "--no-worker")
    run_id = node.trigger(node.create(name="a", target_url=target.url("/a")))
    assert node.stop() == 0
    assert nodes.start(sqlite_url).wait_for_run(run_id, "SUCCESS")["attempt"] == 1


def test_kill_and_restart_keep_everything(nodes, store_url, target):
    node = nodes.start(store_url)
    lease = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}
    ticking = node.create(
        name="tick", cron_expr="* * * * * *", target_url=target.url("/tick"), misfire_policy="FIRE_NOW"
    )
    held = node.trigger(node.create(name="held", target_url=target.url("/hold/h"), timeout_seconds=60, **lease))
    done = node.trigger(node.create(name="done", target_url=target.url("/done")))
    node.wait_for_run(done, "SUCCESS")
    target.wait_for("/hold/h")
    target.wait_for("/tick", 2)
    node.kill()

    target.release("h")
    again = nodes.start(store_url)
    assert again.ask("GET", "/tasks")["total"] == 3
    assert again.run(done)["status"] == "SUCCESS"
    lost = again.wait_for_run(held, "SUCCESS")
    assert lost["attempt"] == 2
    assert len(target.at("/done")) == 1

    seen = len(target.at("/tick"))
    target.wait_for("/tick", seen + 2)
    again.ask("PATCH", f"/tasks/{ticking}/disable")
    until(lambda: all(run["final_status"] for run in again.runs_of(ticking)), "every run to end")
    assert_every_second_is_there(again.runs_of(ticking))


def assert_every_second_is_there(runs):
    """No slot lost, none doubled."""
    seconds = sorted(_second(run["scheduled_time"]) for run in runs)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))


def _second(text):
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp())
