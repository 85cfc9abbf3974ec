"""A Chinese reader of runs that failed, were skipped or raised an alert meets no English sentence of Noonbell's: on pages, in the
terminal and in the messages of a channel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from html.parser import HTMLParser

from acceptance.harness import COMMAND, PATIENCE, Nodes, ServerNode, Target, until
from noonbell.model.failure_text import TEXTS
from noonbell.policy.alerts import TEXTS as ALERTS

ENGLISH = re.compile(r"(?:[A-Za-z]+ )(?:[a-z]{2,} ){2,}[a-z]{2,}")
"""Four words of a sentence."""


class Words(HTMLParser):
    """What a page says to people: without scripts, code, texts in JSON and what was typed by users."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "code", "pre", "template") or ("class", "json-text") in attrs:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.said.append(data)


def words_of(node: ServerNode, path: str) -> str:
    answer = node.call("GET", path, base="", headers={"Accept": "text/html", "Accept-Language": "zh-CN,zh;q=0.9"})
    assert answer.status == 200, (path, answer.text[:500])
    reader = Words()
    reader.feed(answer.text)
    return " ".join(" ".join(reader.said).split())


def pieces() -> list[str]:
    """The longest part of each sentence that has no fact in it."""
    found = []
    for text in [*TEXTS.values(), *ALERTS.values()]:
        longest = max((part.strip(" ,:;") for part in re.split(r"\{\w+\}|\|", text)), key=len)
        if longest.count(" ") >= 2:
            found.append(longest)
    return found


def check(text: str, where: str) -> None:
    assert [piece for piece in pieces() if piece in text] == [], where
    assert ENGLISH.findall(text) == [], where


def test_a_chinese_reader_meets_no_english_sentence(nodes: Nodes, target: Target):
    node = nodes.start("sqlite:///n.db")
    channel = {"name": "ops", "url": target.url("/alerts"), "language": "zh"}
    node.ask("POST", "/alerts/channels", channel, expect=201)
    node.ask("POST", "/alerts/rules", {"name": "all", "kind": "failed"}, expect=201)
    failing = {
        "answers": {"target_url": target.url("/status/503")},
        "refuses": {"target_url": "http://127.0.0.1:9/"},
        "slow": {"target_url": target.url("/slow/3"), "timeout_seconds": 0.2},
        "denied": {"target_url": "http://169.254.169.254/"},
        "silent": {"target_url": target.url("/accept/1"), "exec_type": "ASYNC", "callback_timeout_sec": 1},
        "flow": {"steps": [{"id": "call", "target_url": target.url("/status/500")}]},
    }
    tasks = {name: node.create(name=name, **fields) for name, fields in failing.items()}
    runs = {name: node.trigger(task) for name, task in tasks.items()}
    for name, run in runs.items():
        ended = node.wait_for_run(run)
        assert ended["final_status"] == "FAILED", name
        assert ended["error_message"], name
    late = node.create(name="late", job_type="nobody-has-it", sla={"start_within_seconds": 0})
    late_run = node.trigger(late)
    until(lambda: node.ask("GET", "/stats/sla?task=late")["breaches"], "the breach is told")
    told = until(lambda: len(target.at("/alerts")) >= len(failing) - 1, "the alerts arrive") and target.at("/alerts")
    for each in told:
        message = json.loads(each.body)
        check(f"{message['title']} {message['message']}", f"channel: {message}")
        assert re.search(r"[一-鿿]", message["title"] + message["message"])
    paths = ["/", "/runs", "/settings/alerts", "/queues", "/sla", f"/runs/{late_run}", f"/tasks/{late}"]
    paths += [f"/runs/{run}" for run in runs.values()] + [f"/tasks/{task}" for task in tasks.values()]
    for path in paths:
        check(words_of(node, path), path)
    page = words_of(node, f"/runs/{runs['answers']}")
    assert "目标返回 503 Service Unavailable" in page
    assert "秒内没有收到回调" in words_of(node, f"/runs/{runs['silent']}")

    env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{node.port}", "LC_ALL": "zh_CN.UTF-8"}
    done = subprocess.run(
        [COMMAND, "run", "list"], capture_output=True, text=True, env=env, timeout=PATIENCE, check=True
    )
    assert "目标返回 503" in done.stdout
    assert [piece for piece in pieces() if piece in done.stdout] == []
    for asked in (
        ("run", "explain", str(runs["answers"])),
        ("task", "explain", "answers"),
        ("run", "explain", str(late_run)),
    ):
        done = subprocess.run([COMMAND, *asked], capture_output=True, text=True, env=env, timeout=PATIENCE, check=True)
        (said, *_) = done.stdout.splitlines()
        check(said, " ".join(asked))
        assert re.search(r"[一-鿿]", said), asked
    node.ask("POST", "/alerts/channels", {"name": "down", "url": "http://127.0.0.1:9/"}, expect=201)
    for asked, code in ((("alert", "list"), 0), (("alert", "test", "down"), 1), (("alert", "deliveries"), 0)):
        done = subprocess.run([COMMAND, *asked], capture_output=True, text=True, env=env, timeout=PATIENCE, check=False)
        assert done.returncode == code
        assert [piece for piece in pieces() if piece in done.stdout + done.stderr] == [], asked
        assert re.search(r"[一-鿿]", done.stdout + done.stderr), asked
    done = subprocess.run([COMMAND, "doctor"], capture_output=True, text=True, env=env, timeout=PATIENCE, check=False)
    assert "个任务失败" in done.stdout
    assert "个问题" in done.stderr
