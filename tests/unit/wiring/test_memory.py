"""What a serving process tells the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest

from noonbell.wiring import process


@pytest.fixture
def collector():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("collector")
def test_what_is_there_is_not_looked_at_again_and_what_comes_later_is():
    Cycle()
    process.settle_down()
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    later = weakref.ref(Cycle())
    gc.collect()
    assert later() is None


@pytest.mark.usefixtures("collector")
def test_garbage_is_found_without_being_asked_for():
    process.settle_down()
    first = weakref.ref(Cycle())
    cycles = 0
    while first() is not None and cycles < 200_000:
        Cycle()
        cycles += 1
    assert first() is None
