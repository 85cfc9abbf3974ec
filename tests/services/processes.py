"""Several processes for the tests of one run: `--processes 4`.

The tests are collected once, by the process that was started, which then forks the others: collecting is a part of a minute of a processor,
and would be so in each. They take one stretch of tests after another (`order`), and tell what became of each test; the first one
prints and counts. A process that ends in the middle of a test has failed that test, and another one takes its place.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest

from services.order import Stretch, stretches

PATIENCE: Final = 30
"""Seconds that the processes get to end their fixtures when a run is broken off."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """None where pytest is to run the tests itself."""
    option = session.config.option
    if option.processes < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    reporter.showfspath = False
    Run(session, min(option.processes, len(session.items))).go()
    return True


# ---- the process that was started


@dataclass
class Helper:
    """A forked process as the first one knows it."""

    pid: int
    channel: Connection
    from_the_end: bool
    given: deque[int] = field(default_factory=deque)
    """The tests that it has been given and has not told of yet; the first is the one that it runs."""


class Run:
    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._count = session, count
        self._left: deque[Stretch] = deque(stretches(session.items))
        self._helpers: dict[Connection, Helper] = {}
        self._temporary = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._forked = 0

    def go(self) -> None:
        try:
            for number in range(self._count):
                self._fork(from_the_end=number % 2 == 1)
            while self._helpers:
                for channel in wait(list(self._helpers)):
                    self._hear(self._helpers[channel])  # type: ignore[index]
                    self._stop_if_asked()
        finally:
            self._end()

    def _fork(self, *, from_the_end: bool) -> None:
        self._forked += 1
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if (pid := os.fork()) == 0:
            for channel in (ours, *self._helpers):
                channel.close()
            become_helper(self._session, theirs, self._forked, self._temporary / f"process-{self._forked}")
        theirs.close()
        self._helpers[ours] = Helper(pid, ours, from_the_end)

    def _hear(self, helper: Helper) -> None:
        try:
            told = helper.channel.recv()
        except (EOFError, OSError):
            self._lose(helper)
            return
        if told is None:
            self._give(helper)
        else:
            self._report(helper.given.popleft(), told)

    def _give(self, helper: Helper) -> None:
        stretch = None
        if self._left:
            stretch = self._left.pop() if helper.from_the_end else self._left.popleft()
            helper.given.extend(stretch)
        with contextlib.suppress(OSError):  # it has just ended
            helper.channel.send(stretch)

    def _report(self, index: int, told: list[dict[str, Any]]) -> None:
        item, hook = self._session.items[index], self._session.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in told:
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _lose(self, helper: Helper) -> None:
        """It has ended: as it should, or in the middle of a test."""
        del self._helpers[helper.channel]
        helper.channel.close()
        _, status = os.waitpid(helper.pid, 0)
        if not helper.given:
            return
        index, hook = helper.given.popleft(), self._session.config.hook
        item = self._session.items[index]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the process of this test ended with {os.waitstatus_to_exitcode(status)}",
            when="call",
        )
        self._report(index, [hook.pytest_report_to_serializable(config=self._session.config, report=report)])
        if helper.given:
            self._left.appendleft(list(helper.given))
        if self._left:
            self._fork(from_the_end=helper.from_the_end)

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _end(self) -> None:
        """Of a run that was broken off: they end their fixtures, servers and databases among them."""
        for helper in self._helpers.values():
            os.kill(helper.pid, signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while self._helpers and (ready := wait(list(self._helpers), max(0.0, deadline - time.monotonic()))):
            for channel in ready:
                try:
                    channel.recv()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    os.waitpid(self._helpers.pop(channel).pid, 0)  # type: ignore[call-overload]
        for helper in self._helpers.values():
            os.kill(helper.pid, signal.SIGKILL)
            os.waitpid(helper.pid, 0)


# ---- the forked ones


class Reports:
    """What pytest says of the test that runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.told: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.told.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


class Silent:
    """In the place of the plugin that prints: pytest-timeout writes with its writer what each thread did."""

    def __init__(self, writer: Any) -> None:
        self._tw = writer


def become_helper(session: pytest.Session, channel: Connection, number: int, temporary: Any) -> None:
    code = 1
    try:
        set_apart(session.config, temporary)
        try:
            work(session, channel)
            code = 0
        except (KeyboardInterrupt, EOFError, OSError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def set_apart(config: pytest.Config, temporary: Any) -> None:
    """What a forked process must not share with the others: captured output, the folder for files, random numbers."""
    manager = config.pluginmanager
    capture: Any = manager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporter: Any = manager.getplugin("terminalreporter")
    manager.unregister(reporter)
    manager.register(Silent(reporter._tw), "terminalreporter")
    temporary.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = temporary  # type: ignore[attr-defined]
    random.seed()


def work(session: pytest.Session, channel: Connection) -> None:
    reports = Reports(session.config)
    session.config.pluginmanager.register(reports)
    given = ask(channel)
    while given:
        following: Stretch | None = None
        for place, index in enumerate(given):
            if place + 1 == len(given):  # what ends with the last test depends on what comes after it
                following = ask(channel)
            after = given[place + 1] if place + 1 < len(given) else following[0] if following else None
            item = session.items[index]
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=None if after is None else session.items[after]
            )
            channel.send(reports.told)
            reports.told = []
        given = following


def ask(channel: Connection) -> Stretch | None:
    channel.send(None)
    stretch: Stretch | None = channel.recv()
    return stretch
