"""A worker dies where a job spawns children, is parked for them, or is woken by the last of them; on each store, again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.harness import Nodes
from acceptance.test_children import COUNT, POINTS, dies_and_loses_nothing, starting_in
from faults.known_slots import audited
from faults.report import TIMES, Report


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_job_gathers_its_children_once_although_its_worker_dies(
    store: str, point: str, stores_in_turn, tmp_path: Path, faults_report: Report
):
    for number, url in enumerate(stores_in_turn(store, TIMES)):
        folder = tmp_path / f"trial-{number}"
        folder.mkdir()
        nodes = Nodes(folder)
        try:
            with starting_in(folder) as start:
                dies_and_loses_nothing(point, nodes, url, start, folder)
        finally:
            nodes.end()
        assert audited(url).splitlines()[-1] == "0 holes, 0 doubles"
    faults_report.chapters.append(
        f"### Children, {point} on {store}\n\n{TIMES} deaths {POINTS[point]}: {COUNT} children gathered once after each.\n"
    )
