"""A run's id as a UUID, and back."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.model.run import execution_id_of, run_of_execution


@given(st.integers(1, 2**53 - 1))
def test_an_execution_id_names_its_run_and_is_a_uuid(run_id: int):
    found = execution_id_of(run_id)
    assert run_of_execution(uuid.UUID(str(found))) == run_id
    assert (found.version, found.variant) == (8, uuid.RFC_4122)


def test_execution_ids_sort_as_their_runs_do():
    ids = [execution_id_of(run_id) for run_id in (1, 2, 255, 7_340_033, 2**53 - 1)]
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    "other", [uuid.UUID(int=0), uuid.UUID("4bf92f35-77b3-4da6-a3ce-929d0e0e4736"), execution_id_of(0)]
)
def test_a_uuid_from_elsewhere_names_no_run(other: uuid.UUID):
    assert run_of_execution(other) is None
