"""A node dies in a batch of a bulk operation (K44: before its commit; K44:2: after it). The next one goes on: nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.bulk_trial import retried_once_each


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K44", "K44:2", "K44:3", "K44:4"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_bulk_operation_goes_on_after_a_death(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    retried_once_each(url, point, tmp_path)
