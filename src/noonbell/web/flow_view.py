"""A run of a flow as a page shows it: the graph of its steps, when each of them ran, and the critical path. Pure.

The critical path is the row of steps that the flow waited for: the step that ended last, before it the one of its needs that
ended last, and so on up to a step that needs none. Had one of them been faster, the flow would have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from noonbell.clock import Instant
from noonbell.model.flow import OPEN_STEP, StepInGraph, StepStatus
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import Step
from noonbell.service.runs import step_in_graph
from noonbell.web import graph_layout
from noonbell.web.charts import mark_of
from noonbell.web.graph_layout import Spacing

AT_ONCE: Final = 100
"""Steps on one page."""
WIDTH: Final = 1000.0
"""Of the axis of time."""
_NARROWEST: Final = 4.0
SPACING: Final = Spacing()
_LONGEST_LABEL: Final = 19
"""Characters of an id that a box has room for."""


@dataclass(frozen=True, slots=True)
class StepBox:
    """A step in the graph."""

    step: StepInGraph
    label: str
    x: float
    y: float
    is_critical: bool

    @property
    def succeeded(self) -> float:
        """Which part of a `foreach` has succeeded, from 0 to 1."""
        return self.step.succeeded / self.step.total if self.step.total else 0.0

    @property
    def failed(self) -> float:
        return self.step.failed / self.step.total if self.step.total else 0.0


@dataclass(frozen=True, slots=True)
class StepLine:
    source: str
    target: str
    path: str
    is_taken: bool
    """Whether the step below has started because of it."""
    on: str
    """Which end of the step above it stands for."""
    is_critical: bool


@dataclass(frozen=True, slots=True)
class StepBar:
    """When a step ran, on an axis of WIDTH; before it, how long it waited for a worker."""

    step: StepInGraph
    start: Instant
    """When its turn came."""
    begun: Instant
    """When its run began; of a `foreach`, when its turn came."""
    end: Instant
    x: float
    wait: float
    width: float
    mark: str
    is_open: bool
    is_critical: bool


@dataclass(frozen=True, slots=True)
class CriticalStep:
    step: StepInGraph
    took: int
    """Microseconds from the end of the one before, or the start of the flow, to its own end."""


@dataclass(frozen=True, slots=True)
class FlowView:
    boxes: list[StepBox]
    lines: list[StepLine]
    width: float
    height: float
    bars: list[StepBar]
    first: Instant
    last: Instant
    critical: list[CriticalStep]
    counts: dict[str, int]
    """How many of all its steps have each status, in the order of a step's life."""
    total: int
    begin: int
    """The place of the first step that is shown; all that is drawn is of AT_ONCE steps from there."""
    spacing: Spacing = SPACING
    axis: float = WIDTH

    @property
    def steps(self) -> list[StepInGraph]:
        return [box.step for box in self.boxes]

    @property
    def previous(self) -> int | None:
        return max(0, self.begin - AT_ONCE) if self.begin else None

    @property
    def next(self) -> int | None:
        return self.begin + AT_ONCE if self.begin + AT_ONCE < self.total else None


def view(
    steps: Sequence[StepInGraph],
    start: Instant | None,
    end: Instant | None,
    now: Instant,
    begun: Mapping[RunId, Instant] | None = None,
    begin: int | None = None,
) -> FlowView:
    """`start` and `end` of the run; `begun`: when the runs of the steps began, as far as that is known.

    `begin`: where the steps that are shown begin, as `shown_steps` has it.
    """
    begin, shown = shown_steps(steps, begin)
    critical = critical_path(steps, start, now)
    on_path = [each.step.id for each in critical]
    drawn = graph_layout.layout({step.id: step.needs for step in shown}, SPACING)
    by_id = {step.id: step for step in shown}
    pairs = set(pairwise(on_path))
    bars, first, last = _bars(shown, start, end or now, now, begun or {}, set(on_path))
    return FlowView(
        boxes=[
            StepBox(step, _label(step.id), drawn.nodes[step.id].x, drawn.nodes[step.id].y, step.id in on_path)
            for step in shown
        ],
        lines=[
            StepLine(
                edge.source,
                edge.target,
                edge.path,
                by_id[edge.target].started_at is not None,
                str(by_id[edge.target].on),
                (edge.source, edge.target) in pairs,
            )
            for edge in drawn.edges
        ],
        width=drawn.width,
        height=drawn.height,
        bars=bars,
        first=first,
        last=last,
        critical=critical,
        counts={str(status): count for status in StepStatus if (count := sum(step.status is status for step in steps))},
        total=len(steps),
        begin=begin,
    )


def shown_steps(steps: Sequence[StepInGraph], begin: int | None = None) -> tuple[int, Sequence[StepInGraph]]:
    """Those of one page, and the place of the first; by default the page with the first step that failed, or runs."""
    if begin is None:
        begin = _where_it_stands(steps)
    begin = max(0, min(begin, max(0, len(steps) - 1)) // AT_ONCE * AT_ONCE)
    return begin, steps[begin : begin + AT_ONCE]


def _where_it_stands(steps: Sequence[StepInGraph]) -> int:
    for status in (StepStatus.FAILED, StepStatus.RUNNING):
        for place, step in enumerate(steps):
            if step.status is status:
                return place
    return 0


def _label(step_id: str) -> str:
    return step_id if len(step_id) <= _LONGEST_LABEL else step_id[: _LONGEST_LABEL - 1] + "…"


def critical_path(steps: Sequence[StepInGraph], start: Instant | None, now: Instant) -> list[CriticalStep]:
    """From the first step to the last. What a retry has kept took no time in this run."""
    by_id = {step.id: step for step in steps}
    ran = [step for step in steps if step.started_at is not None and step.copied_from is None]
    if not ran:
        return []
    path = [max(ran, key=lambda step: _end(step, now))]
    while needs := [by_id[need] for need in path[-1].needs if need in by_id]:
        needs = [step for step in needs if step.copied_from is None and step.ended_at is not None]
        if not needs:
            break
        path.append(max(needs, key=lambda step: _end(step, now)))
    path = [step for step in reversed(path) if step.started_at is not None]
    found = []
    before = min(start if start is not None else path[0].started_at or now, path[0].started_at or now)
    for step in path:
        found.append(CriticalStep(step, max(0, _end(step, now) - before)))
        before = max(before, _end(step, now))
    return found


def _end(step: StepInGraph, now: Instant) -> Instant:
    return step.ended_at if step.ended_at is not None else now


def _bars(
    steps: Sequence[StepInGraph],
    start: Instant | None,
    end: Instant,
    now: Instant,
    begun: Mapping[RunId, Instant],
    on_path: set[str],
) -> tuple[list[StepBar], Instant, Instant]:
    """And when the axis begins and ends."""
    ran = [(step, step.started_at) for step in steps if step.started_at is not None and step.copied_from is None]
    starts = [at for _, at in ran]
    first = min([*starts, start if start is not None else end], default=end)
    last = max([first, end, *(_end(step, now) for step, _ in ran)])
    scale = WIDTH / max(1, last - first)
    bars = []
    for step, at in ran:
        until = max(at, _end(step, now))
        began = begun.get(step.run_id, until if step.status in OPEN_STEP else at) if step.run_id is not None else at
        began = min(max(at, began), until)
        x = min((at - first) * scale, WIDTH - _NARROWEST)
        bars.append(
            StepBar(
                step,
                at,
                Instant(began),
                Instant(until),
                round(x, 1),
                round((began - at) * scale, 1),
                round(max((until - at) * scale, _NARROWEST), 1),
                mark_of(str(step.status)),
                step.status in OPEN_STEP,
                step.id in on_path,
            )
        )
    return bars, first, last


def as_written(steps: Sequence[Step]) -> list[StepInGraph]:
    """The steps of a task, of which no run is shown."""
    return [step_in_graph(step, None, RunStatus.SCHEDULED) for step in steps]
