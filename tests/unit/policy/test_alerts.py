"""Which alerts are raised and which are over, as tables: no store, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.model.alert import AlertMessageType, AlertState, AlertStep, Mute, OverdueTask, Rule, RuleKind
from noonbell.model.event import Event
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.policy.alerts import Pass, concerns, types_wanted
from services.steps import calls_in

RAISED, REPEATED, RECOVERED = AlertMessageType.RAISED, AlertMessageType.REPEATED, AlertMessageType.RECOVERED


def event(type_: str, task: int = 1, second: float = 0, **data: Any) -> Event:
    return Event(
        seq=1,
        index=0,
        at=Instant(round(second * SECOND)),
        type=type_,
        task_id=TaskId(task),
        run_id=RunId(9),
        data=data,
        topic=f"t{task}",
    )


def late(task: int = 1, since: int = 0, **fields: Any) -> OverdueTask:
    return OverdueTask(task_id=TaskId(task), task_name=f"t{task}", since=Instant(since * SECOND), **fields)


class Story:
    """Passes one after the other, each over what the last one left."""

    def __init__(self, *rules: Rule, channels: Iterable[str] = ("c",)) -> None:
        self.rules, self.channels = rules, tuple(channels)
        self.states: dict[tuple[str, str], AlertState] = {}
        self.labels: dict[int, dict[str, str]] = {}
        self.mutes: tuple[Mute, ...] = ()
        self.acknowledged: tuple[tuple[str, str], ...] = ()

    def _pass(self) -> Pass:
        return Pass(self.rules, self.channels, dict(self.states), self.labels, self.mutes, self.acknowledged)

    def look(self, second: float) -> AlertStep:
        judged = self._pass()
        judged.tell_unmuted(Instant(round(second * SECOND)))
        return self._taken(judged)

    def hear(self, *events: Event) -> AlertStep:
        judged = self._pass()
        for one in events:
            judged.hear(one)
        return self._taken(judged)

    def read(self, *found: OverdueTask, second: float = 0, is_whole: bool = True) -> AlertStep:
        judged = self._pass()
        judged.read(self.rules[0], found, Instant(round(second * SECOND)), is_whole=is_whole)
        return self._taken(judged)

    def _taken(self, judged: Pass) -> AlertStep:
        step = judged.step()
        for state in step.states:
            self.states[state.rule, state.subject] = state
        for key in step.closed:
            del self.states[key]
        assert self.states == judged.states, "what is written is what was judged"
        return step


def told(step: AlertStep) -> list[AlertMessageType]:
    assert [what for what, _ in step.told] == [one.type for _, one in step.notices]
    return [what for what, _ in step.told]


def test_a_failing_task_is_told_once_and_so_is_its_recovery():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    assert told(story.hear(event("run.failed", status="FAILED", error="503"))) == [RAISED]
    for second in range(1, 5):
        assert told(story.hear(event("run.failed", second=second))) == []
    step = story.hear(event("run.succeeded", second=9))
    assert told(step) == [RECOVERED]
    assert (step.notices[0][1].count, step.notices[0][1].title) == (5, "t1 succeeds again")
    assert told(story.hear(event("run.succeeded", second=10))) == []
    assert told(story.hear(event("run.failed", second=11))) == [RAISED], "the next time is another time"


def test_a_failure_and_a_success_in_one_pass_are_both_told():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    assert told(story.hear(event("run.failed"), event("run.succeeded"), event("run.succeeded"))) == [RAISED, RECOVERED]
    assert story.states == {}


def test_tasks_are_told_apart():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    step = story.hear(event("run.failed", 1), event("run.failed", 2), event("run.succeeded", 1))
    assert [(what, state.task_name) for what, state in step.told] == [(RAISED, "t1"), (RAISED, "t2"), (RECOVERED, "t1")]
    assert list(story.states) == [("r", "task:2")]


def test_failures_are_counted_in_a_row():
    story = Story(Rule(name="r", kind=RuleKind.FAILURES, count=3))
    assert told(story.hear(event("run.failed"), event("run.failed"), event("run.succeeded"))) == []
    assert told(story.hear(event("run.failed"), event("run.failed"))) == []
    step = story.hear(event("run.failed"))
    assert told(step) == [RAISED]
    assert step.notices[0][1].title == "t1 failed 3 times in a row"
    assert told(story.hear(event("run.failed"))) == []
    assert told(story.hear(event("run.succeeded"))) == [RECOVERED]


@pytest.mark.parametrize(
    ("kind", "bad", "harmless", "good"),
    [
        (
            RuleKind.CALLBACK_TIMEOUT,
            event("run.failed", status="FAILED_TIMEOUT"),
            event("run.failed", status="FAILED"),
            event("run.succeeded"),
        ),
        (RuleKind.LOST, event("run.lost", worker_id="w"), event("run.failed", kind="http_5xx"), event("run.succeeded")),
        (RuleKind.LOST, event("run.failed", kind="lost"), event("run.failed"), event("run.succeeded")),
        (RuleKind.NO_WORKER, event("task.no_worker", queue="q"), event("run.failed"), event("task.has_worker")),
        (RuleKind.NO_WORKER, event("task.no_worker", queue="q"), event("run.scheduled"), event("run.started")),
        (RuleKind.MISFIRE, event("task.misfired", count=4), event("run.skipped"), event("run.succeeded")),
    ],
)
def test_a_kind_hears_what_it_is_for(kind: RuleKind, bad: Event, harmless: Event, good: Event):
    story = Story(Rule(name="r", kind=kind))
    assert told(story.hear(harmless)) == []
    assert told(story.hear(good)) == []
    assert told(story.hear(bad)) == [RAISED]
    assert told(story.hear(harmless, bad)) == []
    assert told(story.hear(good)) == [RECOVERED]


def test_a_deleted_task_is_forgotten_in_silence():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    story.hear(event("run.failed"))
    assert told(story.hear(event("task.deleted"))) == []
    assert story.states == {}


def test_what_goes_on_is_repeated_where_the_rule_says_so():
    story = Story(Rule(name="r", kind=RuleKind.FAILED, repeat_seconds=60))
    assert told(story.hear(event("run.failed", second=0))) == [RAISED]
    assert told(story.hear(event("run.failed", second=59))) == []
    assert told(story.hear(event("run.failed", second=60))) == [REPEATED]
    assert told(story.hear(event("run.failed", second=119))) == []
    assert told(story.hear(event("run.succeeded", second=120))) == [RECOVERED]


def test_a_rule_is_for_the_tasks_that_it_names_and_tells_the_channels_that_it_names():
    rule = Rule(name="r", kind=RuleKind.FAILED, tasks=("t1*",), channels=("b",))
    story = Story(rule, channels=("a", "b", "c"))
    step = story.hear(event("run.failed", 1), event("run.failed", 2), event("run.failed", 10))
    assert [(channel, one.task_name) for channel, one in step.notices] == [("b", "t1"), ("b", "t10")]
    assert concerns(rule, "t12")
    assert not concerns(rule, "T1"), "names are told apart by their case"


def test_names_and_patterns_of_one_rule_stand_beside_each_other():
    rule = Rule(name="a", kind=RuleKind.FAILED, tasks=("exact", "dotted.name", "x-*", "[ab]?", "open[end"))
    assert [
        name for name in ("exact", "dotted.name", "x-", "x-1\n2", "a1", "open[end") if not concerns(rule, name)
    ] == []
    assert [name for name in ("exac", "exact2", "dottedXname", "yx-1", "c1", "a12", "") if concerns(rule, name)] == []


def test_the_patterns_of_a_rule_are_compiled_once_however_many_events_come():
    rule = Rule(name="a", kind=RuleKind.FAILED, tasks=tuple(f"team{number}-*" for number in range(1_000)))
    again = Rule(name="a", kind=RuleKind.FAILED, tasks=tuple(f"team{number}-*" for number in range(1_000)))
    concerns(rule, "first")
    assert calls_in(lambda: [concerns(again, f"task {number}") for number in range(100)]) < 2_000


def test_many_at_once_are_told_as_one():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    step = story.hear(*(event("run.failed", task) for task in range(1, 41)))
    ((_, one),) = step.notices
    assert (one.subject, one.title) == ("tasks", "t1 failed, and 39 other tasks")
    assert "t20 and 20 more" in one.message
    assert len(step.told) == len(story.states) == 40, "each has its state and its event all the same"


def test_what_is_found_late_is_told_until_it_is_found_no_more():
    story = Story(Rule(name="r", kind=RuleKind.OVERDUE))
    step = story.read(late(1, since=5), second=20)
    assert told(step) == [RAISED]
    assert step.notices[0][1].message.endswith("was due 15 s ago and has not been planned")
    again = story.read(late(1, since=5), second=25)
    assert (told(again), again.states) == ([], []), "nothing new is nothing to write"
    assert told(story.read(late(2, since=20), second=30)) == [RAISED, RECOVERED]
    assert told(story.read(second=31)) == [RECOVERED]


def test_a_look_that_did_not_see_everything_says_of_nobody_that_it_is_over():
    story = Story(Rule(name="r", kind=RuleKind.OVERDUE))
    story.read(late(1), late(2), second=20)
    assert told(story.read(late(2), second=21, is_whole=False)) == []
    assert len(story.states) == 2


def test_the_states_of_a_rule_that_was_switched_off_go():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    story.hear(event("run.failed"))
    story.rules = (Rule(name="other", kind=RuleKind.LOST),)
    assert story.hear().closed == [("r", "task:1")]


def test_good_news_is_only_read_where_there_was_bad():
    rules = [Rule(name="r", kind=RuleKind.FAILED), Rule(name="o", kind=RuleKind.OVERDUE)]
    assert types_wanted(rules, []) == {"run.failed"}
    state = AlertState(rule="r", subject="task:1", since=Instant(0))
    assert types_wanted(rules, [state]) == {"run.failed", "run.succeeded", "task.deleted"}
    assert types_wanted([rules[1]], []) == frozenset()


# ---- labels, mutes, acknowledgements


def sent(step: AlertStep) -> list[AlertMessageType]:
    return [one.type for _, one in step.notices]


def test_a_rule_with_labels_is_about_tasks_that_have_all_of_them():
    story = Story(Rule(name="r", kind=RuleKind.FAILED, labels={"team": "billing", "tier": "1"}))
    story.labels = {1: {"team": "billing", "tier": "1", "more": "x"}, 2: {"team": "billing"}, 3: {}}
    step = story.hear(*(event("run.failed", task) for task in (1, 2, 3, 4)))
    assert [state.task_id for state in step.states] == [1]
    late_rule = Story(Rule(name="r", kind=RuleKind.OVERDUE, labels={"team": "billing"}))
    late_rule.labels = story.labels
    assert [state.task_id for state in late_rule.read(late(1), late(2), late(3)).states] == [1, 2]


MUTES = [
    (Mute(until=Instant(1)), True),
    (Mute(until=Instant(1), rule="r"), True),
    (Mute(until=Instant(1), rule="other"), False),
    (Mute(until=Instant(1), tasks=("t1",)), True),
    (Mute(until=Instant(1), tasks=("x*", "t?")), True),
    (Mute(until=Instant(1), tasks=("x*",)), False),
    (Mute(until=Instant(1), labels={"team": "billing"}), True),
    (Mute(until=Instant(1), labels={"team": "web"}), False),
    (Mute(until=Instant(1), rule="r", tasks=("t1",), labels={"team": "web"}), False),
]


@pytest.mark.parametrize(("mute", "is_held"), MUTES)
def test_a_mute_holds_what_has_its_rule_its_task_and_its_labels(mute: Mute, is_held: bool):
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    story.labels, story.mutes = {1: {"team": "billing"}}, (mute,)
    step = story.hear(event("run.failed"))
    assert [what for what, _ in step.told] == [RAISED], "it is raised and shown all the same"
    assert sent(step) == ([] if is_held else [RAISED])


def test_what_was_raised_while_muted_is_told_when_the_mute_is_over_and_only_then():
    story = Story(Rule(name="r", kind=RuleKind.FAILED, repeat_seconds=60))
    story.mutes = (Mute(until=Instant(1)),)
    assert sent(story.hear(event("run.failed", second=0))) == []
    assert sent(story.hear(event("run.failed", second=100))) == []
    assert sent(story.look(101)) == []
    story.mutes = ()
    assert sent(story.look(102)) == [RAISED]
    assert sent(story.look(103)) == []
    assert sent(story.hear(event("run.succeeded", second=104))) == [RECOVERED]


def test_what_began_and_ended_while_muted_is_never_told():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    story.mutes = (Mute(until=Instant(1)),)
    story.hear(event("run.failed"))
    story.mutes = ()
    assert sent(story.hear(event("run.succeeded"))) == []
    assert story.states == {}


def test_what_was_told_and_ends_while_muted_ends_in_silence():
    story = Story(Rule(name="r", kind=RuleKind.FAILED))
    assert sent(story.hear(event("run.failed"))) == [RAISED]
    story.mutes = (Mute(until=Instant(1)),)
    assert sent(story.hear(event("run.succeeded"))) == []


def test_an_acknowledged_alert_is_not_repeated_and_its_end_is_told():
    story = Story(Rule(name="r", kind=RuleKind.FAILED, repeat_seconds=60))
    assert sent(story.hear(event("run.failed"))) == [RAISED]
    story.acknowledged = (("r", "task:1"),)
    assert sent(story.hear(event("run.failed", second=100))) == []
    story.acknowledged = ()
    assert sent(story.hear(event("run.failed", second=101))) == [REPEATED]
    story.acknowledged = (("r", "task:1"),)
    assert sent(story.hear(event("run.succeeded", second=102))) == [RECOVERED]
