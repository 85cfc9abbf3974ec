"""The head of the audit log in a real server's log, and a key that comes later."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, until
from noonbell.sealing import new_key_line

pytestmark = pytest.mark.acceptance

HEAD = re.compile(r"audit log head (\d+:[0-9a-f]{64})")


def audit(url: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "audit", "-q", "--store", url, *more], capture_output=True, text=True, check=False)


def test_a_stop_leaves_the_head_in_the_servers_log(nodes, sqlite_url, target):
    node = nodes.start(sqlite_url)
    node.create(name="a", target_url=target.url("/a"))
    node.create(name="b", target_url=target.url("/b"))
    assert node.stop() == 0
    head = HEAD.findall(node.log)[-1]  # where an hour ends meanwhile, it tells of one as well
    assert head.startswith("2:")
    assert node.log.index(head) < node.log.rindex("stopped")
    again = nodes.start(sqlite_url)
    until(lambda: head in again.log, "the head of before to be in the log of the next start")
    again.create(name="c", target_url=target.url("/c"))
    assert again.stop() == 0
    assert audit(sqlite_url, "--expect-head", head).returncode == 0
    assert audit(sqlite_url, "--expect-head", head.replace("2:", "3:")).returncode == 1


def test_the_first_start_with_a_key_signs_what_is_there(nodes, sqlite_url, target, tmp_path: Path):
    plain = nodes.start(sqlite_url)
    plain.create(name="a", target_url=target.url("/a"))
    assert plain.stop() == 0
    keys, config = tmp_path / "keys", tmp_path / "keyed.yaml"
    keys.write_text(new_key_line("k1"))
    keys.chmod(0o600)
    config.write_text(f"secrets: {{key_file: '{keys}'}}\n")
    assert audit(sqlite_url, "--config", str(config)).returncode == 1
    keyed = nodes.start(sqlite_url, "--config", str(config))
    assert "the audit log is signed from entry 2 on" in keyed.log
    state = keyed.ask("GET", "/audit/check")
    assert (state["is_sound"], state["signed_since"], state["key"]) == (True, 2, "k1")
    assert keyed.stop() == 0
    told = audit(sqlite_url, "--config", str(config))
    assert (told.returncode, "2 entries, signed from entry 2 on" in told.stdout) == (0, True), told
    assert nodes.start(sqlite_url, "--config", str(config)).ask("GET", "/audit")["items"][0]["id"] == 2
