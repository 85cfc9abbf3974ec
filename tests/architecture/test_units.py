"""The systemd units: what a process of ours cannot do, even when it runs code of an attacker."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ("noonbell.service", "noonbell-worker@.service")

SWITCHED_ON = (
    *("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules"),
    *("ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname", "RestrictNamespaces"),
    *("RestrictRealtime", "RestrictSUIDSGID", "LockPersonality"),
)
NAMED = {
    "UMask": "0077",
    "ProtectProc": "invisible",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "CapabilityBoundingSet": "",
}


def options(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / unit).read_text().splitlines():
        name, mark, value = line.partition("=")
        if mark:
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_takes_away_what_it_does_not_need(unit):
    given = options(unit)
    assert [name for name in SWITCHED_ON if given.get(name) != ["yes"]] == []
    assert {name: given.get(name) for name in NAMED} == {name: [value] for name, value in NAMED.items()}
    assert given["SystemCallFilter"][0] == "@system-service"
    assert "RestrictAddressFamilies" in given
    assert given["ProtectHome"][0] in ("yes", "read-only")


@pytest.mark.parametrize(("unit", "most"), [("noonbell.service", 2.0), ("noonbell-worker@.service", 3.0)])
def test_systemd_finds_little_exposure(unit, most):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(DEPLOY / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told.stdout)
    assert found is not None, told.stderr
    assert float(found[1]) <= most, told.stdout
