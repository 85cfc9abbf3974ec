"""Hold manifests, Compose files and the dashboard of deploy/ against the schemas of those who read them.

It runs in an environment of its own, which `tools/kit` makes: the schemas of Kubernetes alone are some 100 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

WITHOUT_SCHEMA = {"ScaledObject"}
"""KEDA's own kind, which Kubernetes does not know."""

NOT_IN_THE_SDK = {"templating.list[1].definition"}
"""Grafana writes it beside the query of a variable, and its SDK leaves it out."""


def manifest_flaws(path: Path) -> Iterator[str]:
    version = kubernetes_validate.latest_version()
    for manifest in yaml.safe_load_all(path.read_text()):
        name = f"{path.name}: {manifest.get('kind')}"
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as flaw:
            yield f"{name}: {'.'.join(map(str, flaw.path))}: {flaw.message}"
        except kubernetes_validate.SchemaNotFoundError:
            if manifest.get("kind") not in WITHOUT_SCHEMA:
                yield f"{name}: Kubernetes {version} has no such kind as {manifest.get('apiVersion')}"


def compose_flaws(path: Path) -> Iterator[str]:
    checker = Path(sys.executable).with_name("check-jsonschema")
    told = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", path], capture_output=True, text=True, check=False
    )
    if told.returncode:
        yield f"{path.name}: {told.stdout}{told.stderr}"


def lost(given: Any, known: Any, where: str = "") -> Iterator[str]:
    """What Grafana's own types do not know of the dashboard, or know otherwise."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            place = f"{where}.{key}" if where else key
            if key in known:
                yield from lost(value, known[key], place)
            else:
                yield place
    elif isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        for number, (one, other) in enumerate(zip(given, known, strict=True)):
            yield from lost(one, other, f"{where}[{number}]")
    elif given != known:
        yield where


def dashboard_flaws(path: Path) -> Iterator[str]:
    given = json.loads(path.read_text())
    known = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(given)))
    for place in lost(given, known):
        if place not in NOT_IN_THE_SDK:
            yield f"{path.name}: {place} is nothing that Grafana knows"


def flaws(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "kubernetes").glob("*.yaml")):
        yield from manifest_flaws(path)
    for path in sorted((folder / "compose").glob("*.yml")):
        yield from compose_flaws(path)
    for path in sorted((folder / "grafana").glob("*.json")):
        yield from dashboard_flaws(path)


if __name__ == "__main__":
    found = list(flaws(Path(sys.argv[1])))
    print("\n".join(found) or "manifests, Compose files and dashboard fit the schemas of those who read them")
    sys.exit(bool(found))
