"""A bulk operation outlives the process that carries it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.bulk_trial import retried_once_each


@pytest.mark.parametrize("point", ["K44:2", pytest.param("K44", marks=pytest.mark.full)])
def test_a_node_that_is_killed_in_a_batch_loses_and_repeats_nothing(point: str, sqlite_url: str, tmp_path: Path):
    retried_once_each(sqlite_url, point, tmp_path)
