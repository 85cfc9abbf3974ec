"""What must hold in every history, however its processes and messages fared.

After each commit      no limit is passed: of a task, of a queue, of a key, of the items of a `foreach`; no lease is taken from a
                       worker before it has run out, or renewed by another process; nothing that is final changes
At random moments      the audit of the whole store finds no flaw; no loop of a node has failed
At the end             besides: each slot has one outcome, by a count that does not ask the store's own account; what is delivered
                       at most once was delivered at most once; every attempt of a run carried the same key, and no two runs the
                       same; what is recorded of an attempt is what the target answered to that attempt; events of a run are in
                       order; all that was due is final, no lease is held, no place is taken
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from noonbell.clock import SECOND, slot_of
from noonbell.model.run import FINAL
from noonbell.service.consistency import audit
from noonbell.stores.sql.active_runs import Place
from noonbell.testing.simulation.cluster import Cluster
from noonbell.testing.simulation.history import History
from noonbell.testing.simulation.targets import ReceivedCall
from noonbell.testing.simulation.world import World, quiet, run_now


@dataclass(frozen=True, slots=True)
class Violation:
    law: str
    message: str

    def __str__(self) -> str:
        return f"{self.law}: {self.message}"


class LawBroken(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


_HELD = f"({int(Place.LEASED)}, {int(Place.PARKED)}, {int(Place.PARENT)})"
_EXECUTING = f"({int(Place.LEASED)}, {int(Place.PARKED)})"
_WATCHES = """
create temp trigger born after insert on runs begin select saw_change(new.id); end;
create temp trigger changed after update on runs begin select saw_change(new.id); end;
create temp trigger gone after delete on runs begin select saw_change(old.id); end;
create temp trigger lost after update of lost_count on live when old.place = 4 and new.lost_count > old.lost_count
 begin select saw_loss(new.run_id, old.expires_at); end;
create temp trigger renewed after update of expires_at on live when old.place = 4 and new.place = 4 and new.token = old.token
 begin select saw_renewal(new.run_id, new.token); end;
create temp trigger started after update of token on live when old.place <> 4 and new.place = 4
 begin select saw_start(new.run_id); end;
create temp trigger numbered after update on counters when old.name = 'ids' and new.value <= old.value
 begin select saw_numbers(old.value, new.value); end
"""
_TASK_LIMIT = f"""
select t.name, count(*) from live l join tasks t on t.id = l.task_id
 where l.place in {_HELD} and l.parent_id is null and t.max_concurrency is not null
 group by l.task_id having count(*) > t.max_concurrency
"""
_QUEUE_LIMIT = f"""
select q.name, count(*) from live l join queues q on q.name = l.queue
 where l.place in {_EXECUTING} and q.concurrency is not null group by q.name having count(*) > q.concurrency
"""
_KEY_LIMIT = f"""
select k.key_id, count(*) from live l join keyed_runs k on k.run_id = l.run_id
 where l.place in {_EXECUTING} group by k.key_id having count(*) > 1
"""
_ITEMS = """
select r.parent_id, count(*) from live l join runs r on r.id = l.run_id where r.item_index is not null
 group by r.parent_id, r.step_id having count(*) > 2
"""
_LIMITS = {
    "task limit": _TASK_LIMIT,
    "queue limit": _QUEUE_LIMIT,
    "key limit": _KEY_LIMIT,
    "items under way": _ITEMS,
}
_STARTS = frozenset({"claim", "settle", "settle_and_claim", "cancel", "callback"})
"""Calls that let runs start, or that put items of a flow on their queue."""


class Laws:
    def __init__(self, world: World, cluster: Cluster, history: History) -> None:
        self._world, self._cluster, self._history = world, cluster, history
        self._db = world._db
        self.checks = 0
        self._finals: dict[int, list[Any]] = {}
        """The facts of each run that is final."""
        self._changes: dict[int, None] = {}
        self._losses: list[tuple[int, int | None]] = []
        self._renewals: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._numbers: list[tuple[int, int]] = []
        """What the transaction that is open has done; of what is rolled back, nothing is left."""
        self._db.create_function("saw_change", 1, lambda run_id: self._changes.update({run_id: None}))
        self._db.create_function("saw_loss", 2, lambda *loss: self._losses.append(loss))
        self._db.create_function("saw_renewal", 2, lambda *renewal: self._renewals.append(renewal))
        self._db.create_function("saw_start", 1, self._starts.append)
        self._db.create_function("saw_numbers", 2, lambda *numbers: self._numbers.append(numbers))
        self._db.executescript(_WATCHES)
        world.on_commit, world.on_rollback = self._after_commit, self._forget

    def _break(self, law: str, message: str) -> None:
        raise LawBroken(Violation(law, message))

    # After each commit

    def _forget(self) -> None:
        self._changes.clear()
        self._losses.clear()
        self._renewals.clear()
        self._starts.clear()
        self._numbers.clear()

    def _after_commit(self, who: str, name: str) -> None:
        """In the database's process."""
        try:
            self._check_commit(who, name)
        except LawBroken as broken:
            self._world.loop.fail(broken)

    def _check_commit(self, who: str, name: str) -> None:
        if name in _STARTS:
            for law, sql in _LIMITS.items():
                found = self._db.execute(sql).fetchone()
                if found is not None:
                    self._break(law, f"{found[1]} runs of {found[0]} are under way after {name} of {who}")
        now = self._world.clock.now()
        for run_id, expires_at in self._losses:
            if expires_at is not None and expires_at > now:
                self._break(
                    "a lease holds until it runs out",
                    f"run {run_id} was taken {(expires_at - now) / SECOND:.3f} s early",
                )
        if self._numbers:
            before, after = self._numbers[0]
            self._break(
                "numbers are given out once", f"{who} took those up to {after} when {before} had been given out"
            )
        if self._starts and self._db.execute("select 1 from installation_pauses where standing = 1").fetchone():
            self._break("nothing starts while all is paused", f"{name} of {who} started run {self._starts[0]}")
        self._check_renewals(who)
        if self._changes:
            self._check_finals(f"{name} of {who}")
        self._forget()

    def _check_renewals(self, who: str) -> None:
        """The process that carries out an attempt is the one that renews its lease."""
        for run_id, token in self._renewals:
            holder = self._cluster.log.holders.get((run_id, token))
            if holder is not None and holder != who:
                self._break("only its holder renews a lease", f"{who} renewed run {run_id}, which {holder} carries out")

    def _check_finals(self, by: str) -> None:
        """What was final when the transaction began is as it was."""
        changed = self._db.execute(
            "select c.value, r.status, r.attempt, r.end_time, r.result, r.worker_id"
            " from json_each(?) c left join runs r on r.id = c.value",
            (json.dumps(list(self._changes)),),
        ).fetchall()
        for run_id, *facts in changed:
            before = self._finals.get(run_id)
            if before is not None and facts != before:
                self._break("final is final", f"run {run_id} was {before}, and is {facts} after {by}")
            if facts[0] in FINAL:
                self._finals[run_id] = facts

    # At any moment

    def check(self) -> None:
        self.checks += 1
        report = run_now(audit(self._world.direct))
        if not report.is_sound:
            flaw = report.flaws[0]
            self._break(f"audit: {flaw.kind}", f"task {flaw.task_id}: {flaw.message}")
        if self._world.said:
            self._break("no loop fails", "; ".join(quiet(self._world.said))[:500])
        if self._world.loop.errors:
            self._break("no loop fails", "; ".join(quiet(self._world.loop.errors))[:500])
        self._check_deliveries()

    def _check_deliveries(self) -> None:
        """What the target's own log says by itself."""
        times = Counter(one.run_id for one in self._cluster.log.deliveries if one.at_most_once)
        for run_id, count in times.items():
            if count > 1:
                self._break("at most once", f"run {run_id} was delivered {count} times")
        keys: dict[int, str] = {}
        owners: dict[str, int] = {}
        for one in self._cluster.log.deliveries:
            if keys.setdefault(one.run_id, one.key) != one.key:
                self._break("one key for each run", f"run {one.run_id} was delivered under two keys")
            if owners.setdefault(one.key, one.run_id) != one.run_id:
                self._break("one key for each run", f"runs {owners[one.key]} and {one.run_id} have the same key")

    # At the end

    def unfinished(self) -> str:
        """What is not final yet, in words; nothing when the store is at rest."""
        rows = self._db.execute(
            "select r.id, t.name, r.status, l.place from live l join runs r on r.id = l.run_id join tasks t on t.id = l.task_id"
            " order by r.id limit 5"
        ).fetchall()
        if rows:
            return "; ".join(f"run {row[0]} of {row[1]} is {row[2]} in place {row[3]}" for row in rows)
        rows = self._db.execute("select id, task_id from joins where state = 'open' limit 5").fetchall()
        if rows:
            return "; ".join(f"join {row[0]} of task {row[1]} is open" for row in rows)
        return ""

    def check_end(self) -> None:
        left = self.unfinished()
        self._check_resumed()
        if left:
            self._break("what is due becomes final", f"a minute after the last fault: {left}")
        self.check()
        self._check_places()
        self._check_outcomes()
        self._check_slots()
        self._check_families()
        self._check_events()
        self._check_processes()

    def usurped(self) -> str:
        """The worker id that more than one process claims under; empty if there is none."""
        working = Counter(
            node.worker_id
            for node in self._cluster.all_nodes
            if node.is_alive and node.worker is not None and node.worker.in_flight.is_open
        )
        return next((worker_id for worker_id, count in working.items() if count > 1), "")

    def _check_processes(self) -> None:
        """Of processes that work under one id, the one that has taken the id over is the only one that claims."""
        if worker_id := self.usurped():
            self._break("one process for each worker id", f"two processes claim as {worker_id}")

    def _check_places(self) -> None:
        for what, sql in (
            ("gate", "select task_id, used, waiting from gates where used <> 0 or waiting <> 0"),
            ("key", "select id, used, waiting from run_keys where used <> 0 or waiting <> 0"),
        ):
            found = self._db.execute(sql).fetchone()
            if found is not None:
                self._break("no place stays taken", f"{what} {found[0]}: {found[1]} used, {found[2]} waiting")

    def _check_outcomes(self) -> None:
        """What is recorded of a run is what the target answered to the attempt that it is recorded for."""
        log: dict[int, list[ReceivedCall]] = defaultdict(list)
        for one in self._cluster.log.deliveries:
            log[one.run_id].append(one)
        rows = self._db.execute(
            "select id, status, attempt, result, parent_id, step_id, shard_index from runs"
        ).fetchall()
        known = {row[0] for row in rows}
        for run_id in log:
            if run_id not in known:
                self._break("no delivery without a run", f"run {run_id} was delivered and is not in the store")
        for run_id, status, attempt, result, *_ in rows:
            deliveries = log.get(run_id, ())
            for one in deliveries:
                is_taken_back = one.is_handed_back and one.answer == "-" and not one.at_most_once
                if one.attempt > attempt and not is_taken_back:
                    self._break("attempts are counted", f"run {run_id} was delivered beyond its {attempt} attempts")
            answer = json.loads(result) if result else None
            if status != "SUCCESS" or not isinstance(answer, dict) or "attempt" not in answer:
                continue
            if answer["attempt"] != attempt:
                self._break(
                    "an outcome is its attempt's",
                    f"run {run_id}: attempt {answer['attempt']} answered, {attempt} is recorded",
                )
            if not any(one.number == answer["delivery"] and one.attempt == attempt for one in deliveries):
                self._break("an outcome is its attempt's", f"run {run_id} has a result that no delivery gave")

    def _check_slots(self) -> None:
        """Of tasks that no step has changed: every slot from its creation to its end, counted without the store's account."""
        touched = {
            step.what
            for step in self._history.steps
            if step.kind in ("edit", "disable", "enable", "delete", "skip", "pause_task")
        }
        if any(step.kind == "clock" for step in self._history.steps):
            return
        for name, begun, until in self._db.execute(
            "select t.name, t.created_at, c.accounted_to from tasks t join cursors c on c.task_id = t.id"
            " where t.schedule is not null and t.deleted_at is null"
        ).fetchall():
            if name in touched:
                continue
            given = next(task for task in self._history.tasks if task["name"] == name)
            if given["schedule"].get("mode") == "fixed_delay":
                continue
            every = given["schedule"]["every"]
            task_id = self._db.execute("select id from tasks where name = ?", (name,)).fetchone()[0]
            slots = [
                row[0] // SECOND
                for row in self._db.execute(
                    "select slot from runs where task_id = ? and slot is not null and parent_id is null", (task_id,)
                )
            ]
            dropped = self._db.execute(
                "select coalesce(sum(count), 0) from dropped where task_id = ?", (task_id,)
            ).fetchone()[0]
            if len(set(slots)) != len(slots):
                self._break("one outcome for each slot", f"{name} has a slot with two runs")
            first, last = min(slots, default=0), slot_of(until)
            expected = (last - slot_of(begun)) // every
            if slots and not expected - 1 <= len(slots) + dropped <= expected + 1:
                self._break(
                    "one outcome for each slot",
                    f"{name}: {len(slots)} runs and {dropped} dropped of {expected} slots since {first}",
                )

    def _check_resumed(self) -> None:
        early = self._cluster.log.resumed_early
        if early:
            self._break("a parent waits for its children", f"run {early[0]} was resumed before its children were final")

    def _check_families(self) -> None:
        found = self._db.execute(
            "select parent_id, step_id, coalesce(item_index, -1), count(*) from runs where step_id is not null"
            " group by 1, 2, 3 having count(*) > 1"
        ).fetchone()
        if found is not None:
            self._break("a step runs once", f"step {found[1]} of run {found[0]} has {found[3]} runs")
        found = self._db.execute(
            "select task_id, root, edge_version, redrive, count(*) from joins group by 1, 2, 3, 4 having count(*) > 1"
        ).fetchone()
        if found is not None:
            self._break("a join completes once", f"task {found[0]} has {found[4]} joins of {found[1]}")
        for run_id, result in self._db.execute(
            "select r.id, r.result from runs r join tasks t on t.id = r.task_id"
            " where t.job_type = 'parent' and r.status = 'SUCCESS'"
        ).fetchall():
            states = json.loads(result)["children"]
            if any(state not in FINAL for state in states):
                self._break("a parent waits for its children", f"run {run_id} ended with {states}")

    def _check_events(self) -> None:
        """Readers see the events of a run in the order in which they happened, where the clock was not set."""
        if any(step.kind == "clock" for step in self._history.steps):
            return
        store, after = self._world.direct, 0
        order: dict[int, list[str]] = defaultdict(list)
        while True:
            page = run_now(store.event_page(after, 1000))
            for event in page.events:
                if event.run_id is not None:
                    order[event.run_id].append(event.type)
            if not page.is_full or page.upto <= after:
                break
            after = page.upto
        for run_id, types in order.items():
            ended = [number for number, type_ in enumerate(types) if type_ in _ENDS]
            if len(ended) > 1:
                self._break("one ending", f"run {run_id} is told to have ended {len(ended)} times: {types}")
            begun = [number for number, type_ in enumerate(types) if type_ in _BEGINS]
            if ended and any(number > ended[0] for number in begun):
                self._break("events in their order", f"run {run_id}: {types}")
            for one, other in itertools.pairwise(types):
                if other == "run.scheduled" and one == "run.started":
                    self._break("events in their order", f"run {run_id}: {types}")


_BEGINS = frozenset({"run.started", "run.scheduled"})
_ENDS = frozenset({"run.succeeded", "run.failed", "run.canceled", "run.timeout", "run.skipped"})
