"""What handlers say while the store is away: it waits, in its order, and a run that ends does not wait for ever."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.errors import StoreUnavailable
from noonbell.targets.jobs import reporting
from noonbell.targets.jobs.reporting import AttemptReports, ReportWriter
from unit.targets.jobs.conftest import eventually
from unit.targets.make import assignment


class Away:
    """A store of which only this is asked, and that does not always answer."""

    def __init__(self):
        self.is_away = False
        self.lines, self.progresses, self.calls = [], [], 0

    async def log(self, _run_id, _token, lines):
        await self._answer()
        self.lines += lines
        return True

    async def progress(self, _run_id, _token, progress):
        await self._answer()
        self.progresses.append(progress)
        return True

    async def _answer(self):
        self.calls += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")


@pytest.fixture
def store():
    return Away()


@pytest.fixture
def words(store):
    return AttemptReports(ReportWriter(store, every=0.01), assignment().lease)


async def test_lines_that_could_not_be_written_come_later_and_in_their_order(store, words):
    store.is_away = True
    words.log("info", "first")
    words.progress({"current": 1, "total": None, "message": ""})
    await eventually(lambda: store.calls >= 3)
    words.log("info", "second")
    words.progress({"current": 2, "total": None, "message": ""})
    store.is_away = False
    await eventually(lambda: store.progresses)
    assert store.lines == [("info", "first"), ("info", "second")]
    assert [one["current"] for one in store.progresses] == [2]
    await words.scribe.close()


async def test_the_last_words_wait_for_a_store_that_comes_back(store, words):
    store.is_away = True
    words.put_line("info", "the end")
    waiting = asyncio.create_task(words.scribe.last_words(words))
    await eventually(lambda: store.calls >= 2)
    store.is_away = False
    await asyncio.wait_for(waiting, 60)
    assert store.lines == [("info", "the end")]


async def test_the_last_words_do_not_wait_for_ever(store, words, monkeypatch, caplog):
    monkeypatch.setattr(reporting, "_LAST_WORDS", 0.05)
    store.is_away = True
    words.put_line("info", "the end")
    await asyncio.wait_for(words.scribe.last_words(words), 60)
    assert "did not take the last words" in caplog.text


async def test_a_handler_that_is_faster_than_the_store_is_told_how_many_lines_it_lost(store, words, monkeypatch):
    monkeypatch.setattr(reporting, "_MOST_LINES", 3)
    for number in range(10):
        words.put_line("info", str(number))
    await words.write()
    assert store.lines == [
        *[("info", str(number)) for number in range(3)],
        ("warning", "7 lines were dropped: they came faster than they could be written"),
    ]
    words.put_line("info", "after")
    await words.write()
    assert store.lines[4:] == [("info", "after")]


async def test_a_very_long_line_is_cut_and_says_so(store, words):
    words.put_line("info", "x" * 100_000)
    await words.write()
    ((_, line),) = store.lines
    assert len(line) < 20_000
    assert line.endswith("… (cut)")
