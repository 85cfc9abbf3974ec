"""A fleet of worker processes for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.jobs.fleet import FRESH, Fleet, fleet_on


@pytest.fixture(params=["postgres"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """On PostgreSQL, unless a test asks for others."""
    async with fleet_on(str(request.getfixturevalue(FRESH[request.param])), tmp_path) as fleet:
        yield fleet
