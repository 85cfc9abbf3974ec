"""The kit in deploy/: every metric, path, command and setting that it names is one that Noonbell has.

Compose files and Kubernetes manifests are not run here: they are held against the schemas of those who read them, what they name
is looked up, and selectors are held against labels.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from noonbell.api.openapi import document
from noonbell.cli.root import COMMANDS, root
from noonbell.settings import Settings
from noonbell.telemetry.metrics import Metrics
from services.endpoints import endpoint_table

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/noonbell.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus/noonbell.rules.yml").read_text())
COMPOSE = sorted((DEPLOY / "compose").glob("*.yml"))
MANIFESTS = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
PAGE = (Path(__file__).parents[2] / "docs/how-to/deploy.md").read_text()

NAME = re.compile(r"\b(?:noonbell|cronjob|task|concurrency|runs)_[a-z_]+\b(?=[\[{) ]|$)")
BY_PROMETHEUS = {"up"}


def metric_names() -> set[str]:
    """Every series that a page of metrics may have."""
    names: set[str] = set()
    for family in Metrics().registry.collect():
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        elif family.type == "counter":
            names.add(f"{family.name}_total")
        else:
            names.add(family.name)
    return names


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    alerts = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    scaled = [
        trigger["metadata"]["query"]
        for document in MANIFESTS
        if document["kind"] == "ScaledObject"
        for trigger in document["spec"]["triggers"]
    ]
    return [*shown, *alerts, *scaled]


def test_every_metric_that_a_panel_or_a_rule_asks_for_is_there():
    known = metric_names()
    named = {name for query in queries() for name in NAME.findall(query)}
    assert len(named) > 25, "the expression finds the names"
    assert named - known == set()


def test_every_query_names_a_metric():
    assert [
        query for query in queries() if not NAME.search(query) and not BY_PROMETHEUS & set(re.split(r"\W", query))
    ] == []


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(panel["title"] and panel["description"] for panel in panels())


def promtool(path: str, *arguments: str) -> None:
    told = subprocess.run(
        [path, *arguments],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_promtool_takes_the_rules(program):
    promtool(program("promtool", "prometheus"), "check", "rules", "noonbell.rules.yml")
    promtool(program("promtool", "prometheus"), "check", "config", "--syntax-only", "prometheus.yml")


def test_every_rule_fires_as_its_test_says(program):
    promtool(program("promtool", "prometheus"), "test", "rules", "noonbell.test.yml")
    tested = (DEPLOY / "prometheus/noonbell.test.yml").read_text()
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert f"alertname: {rule['alert']}" in tested, rule["alert"]


def takes(words: list[str]) -> bool:
    """Whether this is a command of ours with options that it has."""
    command = root.get_command(click.Context(root), words[0]) if words[0] in COMMANDS else None
    known = {option for each in (command.params if command else []) for option in each.opts}
    return command is not None and all(word in known for word in words if word.startswith("--"))


def is_setting(name: str) -> bool:
    section, _, key = name.removeprefix("NOONBELL_").lower().partition("__")
    return name.startswith("NOONBELL_") and hasattr(getattr(Settings(), section, None), key)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_names_commands_settings_and_volumes_that_there_are(path):
    compose = yaml.safe_load(path.read_text())
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            assert mount.split(":")[0] in compose["volumes"], name
        for needed in service.get("depends_on", {}):
            assert needed in compose["services"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "nothing is open to others unless you say so"
        if service["image"].startswith("noonbell"):
            assert takes(service["command"]), name
            assert [each for each in service["environment"] if not is_setting(each)] == []


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["spec"]["template"]["spec"]["containers"] if document["kind"] in ("Deployment", "Job") else []


def test_manifests_name_commands_settings_and_paths_that_there_are():
    paths = set(document(endpoint_table())["paths"])
    for manifest in MANIFESTS:
        for container in containers(manifest):
            assert takes(container["args"]), container["args"]
            assert [each["name"] for each in container["env"] if not is_setting(each["name"])] == []
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["path"] in paths


def against_schemas(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DEPLOY.parent / "tools/kit", folder], capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.full
def test_manifests_compose_files_and_the_dashboard_fit_the_schemas_of_those_who_read_them():
    told = against_schemas(DEPLOY)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "old", "new", "named"),
    [
        ("kubernetes/noonbell.yaml", "replicas: 2", "replicas: two", "Deployment: spec.replicas: 'two' is not"),
        ("kubernetes/noonbell.yaml", "  maxUnavailable: 1", "  maxUnavailabel: 1", "'maxUnavailabel' was unexpected"),
        ("kubernetes/worker.yaml", "kind: Deployment", "kind: Deploymint", "no such kind as apps/v1"),
        ("compose/postgres.yml", "condition: service_healthy", "condition: healthy", "postgres.yml"),
        ("grafana/noonbell.json", '"gridPos"', '"gridPoss"', "panels[0].gridPoss is nothing that Grafana knows"),
    ],
)
def test_what_does_not_fit_its_schema_is_named(tmp_path, path, old, new, named):
    folder = shutil.copytree(DEPLOY, tmp_path / "deploy")
    text = (folder / path).read_text()
    (folder / path).write_text(text.replace(old, new, 1))
    told = against_schemas(folder)
    assert (told.returncode, named in told.stdout) == (1, True), told.stdout + told.stderr


def test_selectors_meet_the_labels_of_what_they_select():
    pods = [document["spec"]["template"]["metadata"]["labels"] for document in MANIFESTS if containers(document)]
    selectors = [
        selector.get("matchLabels", selector)
        for document in MANIFESTS
        if isinstance(selector := document["spec"].get("selector"), dict)
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1, selector
    names = {document["metadata"]["name"] for document in MANIFESTS if document["kind"] == "Deployment"}
    scaled = [document for document in MANIFESTS if document["kind"] == "ScaledObject"]
    assert all(document["spec"]["scaleTargetRef"]["name"] in names for document in scaled)


def test_a_node_has_longer_to_end_than_it_waits():
    for each in MANIFESTS:
        if each["kind"] == "Deployment":
            assert (
                each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > Settings().server.graceful_timeout
            )


def test_what_is_not_run_says_so_and_every_file_has_its_place_on_the_page():
    for path in (DEPLOY / "kubernetes").glob("*.yaml"):
        assert "NOT RUN" in path.read_text().split("apiVersion")[0]
    for path in DEPLOY.glob("*/*"):
        assert str(path.relative_to(DEPLOY.parent)) in PAGE, path
