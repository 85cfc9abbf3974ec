"""Every query of the Grafana dashboard and every alert rule in deploy/, asked of a Prometheus that scrapes two nodes at work.

The nodes share a store on PostgreSQL. What a panel shows only in bad times is provoked: retries, timeouts, a lost lease, a full key, runs
without a worker. Of what did not happen (errors of the store, an event loop that stood still) a panel has to show its 0. The settings are those of deploy/, with other addresses and a shorter interval.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from acceptance.harness import PATIENCE, Nodes, ServerNode, Target, until
from services import forked
from services.launch import spare_port

pytestmark = pytest.mark.acceptance

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/noonbell.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus/noonbell.rules.yml").read_text())
RATE_INTERVAL = "20s"
"""What Grafana puts in place of `$__rate_interval`: four scrapes at least."""


def queries() -> list[str]:
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return [query.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*") for query in shown]


class LivePrometheus:
    def __init__(self, folder: Path, program: str, nodes: list[ServerNode], sent: str = "nb_unasked") -> None:
        settings = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (scrape,) = settings["scrape_configs"]
        self.token_file = folder / "token"
        self.token_file.write_text(f"{sent}\n")
        scrape["authorization"]["credentials_file"] = str(self.token_file)
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{node.port}" for node in nodes]}]
        settings["rule_files"] = [str(DEPLOY / "prometheus/noonbell.rules.yml")]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self._log = folder / "prometheus.log"
        self.port = spare_port()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **query: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def numbers(self, query: str) -> list[float]:
        """One for each series of the answer that has a number now."""
        found = [float(series["value"][1]) for series in self.ask("query", query=query)["result"]]
        return [number for number in found if not math.isnan(number)]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def active_rules(self) -> set[str]:
        """Those whose condition is met, for however short a time so far."""
        return {rule["name"] for rule in self.rules() if rule["state"] != "inactive"}

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)


@pytest.fixture
def pair(nodes: Nodes, postgres_url: str) -> list[ServerNode]:
    return [nodes.start(postgres_url), nodes.start(postgres_url)]


@pytest.fixture
def live(tmp_path: Path, program: Callable[[str, str], str], pair: list[ServerNode]) -> Iterator[LivePrometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    prometheus = LivePrometheus(folder, program("prometheus", "prometheus"), pair)
    try:
        until(prometheus.is_ready, "Prometheus to be ready")
        yield prometheus
    finally:
        prometheus.stop()


def keep_busy(node: ServerNode, target: Target) -> None:
    """Tasks for every panel: in good times and in bad ones."""
    each = {"schedule": {"type": "interval", "every": 1, "unit": "second"}}
    node.create(name="well", target_url=target.url("/ok"), misfire_policy="SKIP", **each)
    retried = {"max_retries": 1, "initial_delay": 0}
    node.create(name="failing", target_url=target.url("/status/500"), retry_policy=retried, **each)
    node.create(
        name="slow", target_url=target.url("/slow/1"), timeout_seconds=0.2, retry_policy={"max_retries": 0}, **each
    )
    node.create(name="overlapping", target_url=target.url("/slow/3"), overlap_action="SKIP", **each)
    node.create(name="answered", target_url=target.url("/accept"), exec_type="ASYNC", callback_timeout_sec=60, **each)
    node.create(name="behind", target_url=target.url("/ok"), after={"tasks": [{"task": "well"}]})
    node.create(name="flow", steps=[{"id": "first", "target_url": target.url("/ok")}], **each)
    node.create(name="nobody", job_type="nobody", **each)
    keyed = {"job_type": "keyed", "queue": "keyed", "concurrency_key": "payload.of", "max_per_key": 1}
    node.create(name="keyed", worker_timeout_ms=500, **keyed)
    for _ in range(3):
        node.ask("POST", "/tasks/name:keyed/trigger", {"payload": {"of": "acme"}})
    node.ask("POST", "/alerts/channels", {"name": "ops", "url": target.url("/hook")}, expect=201)
    node.ask("POST", "/alerts/rules", {"name": "failed", "kind": "failed"}, expect=201)
    hook = {"name": "hook", "url": target.url("/events"), "types": ["run.failed"]}
    node.ask("POST", "/subscriptions", hook, expect=201)


def call_back(node: ServerNode, target: Target, ended: threading.Event) -> None:
    """Answer each run of the task that waits for it, and claim runs whose lease then runs out."""
    answered = 0
    while not ended.wait(0.3):
        for arrival in target.at("/accept")[answered:]:
            address = urllib.parse.urlsplit(arrival.headers["X-Callback-Url"])
            node.call("POST", f"{address.path}?{address.query}", {"status": "SUCCESS"}, base="")
            answered += 1
        node.call("POST", "/workers/w1/claim", {"queues": ["keyed"], "job_types": ["keyed"], "wait_seconds": 0})


def miss_slots(node: ServerNode, live: LivePrometheus) -> None:
    """A pause, until three slots of a task that is due each second have passed."""
    node.wait_for_run(node.trigger(node.ask("GET", "/tasks/name:well")["id"]))
    node.ask("POST", "/pause", {"reason": "to miss slots"})
    until(lambda: live.numbers("count_over_time((max(noonbell_paused) == 1)[30s:1s])") >= [3], "a pause to be scraped")
    node.ask("POST", "/resume")


def test_every_panel_has_something_to_show_and_every_rule_is_understood(live, pair, target):
    first, second = pair
    keep_busy(first, target)
    ended = threading.Event()
    caller = threading.Thread(target=call_back, args=(second, target, ended))
    caller.start()
    try:
        miss_slots(first, live)
        left = dict.fromkeys(queries())
        assert len(left) > 35
        deadline = time.monotonic() + 2 * PATIENCE
        while left and time.monotonic() < deadline:
            left = {query: None for query in left if not live.numbers(query)}
            time.sleep(0.5)
        assert list(left) == [], "these panels show nothing"
        assert live.numbers('count(noonbell_build_info{instance=~".*"})') == [2]
        assert len(live.numbers("sum by (instance) (cronjob_run_total)")) == 2, "both nodes carry runs out"
        metric, label = variable_of_the_dashboard()
        chosen = live.ask(f"label/{label}/values", **{"match[]": metric})
        assert set(chosen) == {f"127.0.0.1:{node.port}" for node in pair}
        rules = live.rules()
        assert {rule["name"] for rule in rules} == {
            rule["alert"] for group in RULES["groups"] for rule in group["rules"]
        }
        assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
        until(lambda: "NoonbellNoWorker" in live.active_rules(), "the rule of runs without a worker to be met")
    finally:
        ended.set()
        caller.join()


def test_the_token_of_the_settings_opens_metrics_where_tokens_are_asked_for(tmp_path, program, nodes, sqlite_url):
    """Made by the command that the file names. Another one is refused."""
    node = nodes.start(sqlite_url, env={"NOONBELL_AUTH__ENABLED": "true"})
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    (command,) = re.findall(r"^# noonbell (token create .+) > /etc/prometheus/noonbell\.token$", text, re.MULTILINE)
    made = forked.run(*command.split(), "--store", sqlite_url)
    assert made.returncode == 0, made.stderr
    live = LivePrometheus(tmp_path, program("prometheus", "prometheus"), [node], "nb_wrong")
    try:
        until(live.is_ready, "Prometheus to be ready")
        until(lambda: live.numbers("up") == [0], "a scrape that is refused")
        (refused,) = live.ask("targets")["activeTargets"]
        assert "401" in refused["lastError"]
        live.token_file.write_text(made.stdout)
        until(lambda: live.numbers("up") == [1], "a scrape that is let in")
        assert live.numbers("noonbell_store_up") == [1]
    finally:
        live.stop()


def variable_of_the_dashboard() -> tuple[str, str]:
    """The metric and the label whose values the nodes to choose from are."""
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
    return metric, label
